/* The folders of the control sockets: who may own them, what is refused, what is replaced. */
#include "control_test.h"

#include "control/client.h"
#include "control/runtime.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    make_folder(folder, sizeof(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unsetenv("MZ_RUNTIME_DIR");
    remove_folder(folder);
    return 0;
}

static void inside(char *buf, size_t size, const char *name)
{
    (void)snprintf(buf, size, "%s/%s", folder, name);
}

static void order_of_folders(void **state)
{
    static char list[MZ_RUNTIME_FOLDERS][MZ_RUNTIME_PATH];
    char own[64];

    (void)state;
    (void)setenv("MZ_RUNTIME_DIR", "/some/where", 1);
    assert_int_equal(mz_runtime_folders(list), 1);
    assert_int_equal(mz_runtime_own_folders(list), 1);
    assert_string_equal(list[0], "/some/where");
    (void)unsetenv("MZ_RUNTIME_DIR");
    (void)setenv("XDG_RUNTIME_DIR", "/run/user/77", 1);
    (void)snprintf(own, sizeof(own), "/tmp/mzcache-%u", (unsigned)geteuid());
    assert_int_equal(mz_runtime_own_folders(list), 2); /* nobody else's, for root either */
    assert_true(mz_runtime_folders(list) >= 2);
    assert_string_equal(list[0], "/run/user/77/mzcache");
    assert_string_equal(list[1], own);
    (void)setenv("XDG_RUNTIME_DIR", "not/absolute", 1);
    assert_int_equal(mz_runtime_own_folders(list), 1);
    assert_true(mz_runtime_folders(list) >= 1);
    assert_string_equal(list[0], own);
    (void)unsetenv("XDG_RUNTIME_DIR");
}

static void makes_and_reopens(void **state)
{
    char path[128];
    struct stat st;

    (void)state;
    inside(path, sizeof(path), "new");
    int fd = mz_runtime_make(path);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    (void)close(fd);
    fd = mz_runtime_make(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(rmdir(path), 0);
}

static void refuses_links(void **state)
{
    char link_path[128], target[128];

    (void)state;
    inside(link_path, sizeof(link_path), "link");
    inside(target, sizeof(target), "target");
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, link_path), 0);
    assert_int_equal(mz_runtime_make(link_path), -ELOOP);
    assert_int_equal(mz_runtime_open(link_path, geteuid()), -ELOOP);
    assert_int_equal(rmdir(target), 0);
    assert_int_equal(mz_runtime_make(link_path), -ELOOP); /* dangling */
}

static void refuses_what_is_no_folder(void **state)
{
    char path[128];

    (void)state;
    inside(path, sizeof(path), "file");
    int fd = open(path, O_CREAT | O_WRONLY, 0700);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(mz_runtime_make(path), -ENOTDIR);
    inside(path, sizeof(path), "missing");
    assert_int_equal(mz_runtime_open(path, geteuid()), -ENOENT);
}

static void refuses_permissions(void **state)
{
    char path[128];

    (void)state;
    inside(path, sizeof(path), "loose");
    assert_int_equal(mkdir(path, 0700), 0);
    for (mode_t extra = 1; extra < 0100; extra *= 2) {
        assert_int_equal(chmod(path, 0700 | extra), 0);
        assert_int_equal(mz_runtime_make(path), -EPERM);
    }
    assert_int_equal(rmdir(path), 0);
}

static void refuses_owners(void **state)
{
    char path[128];

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can give a folder to somebody else\n");
        skip();
    }
    inside(path, sizeof(path), "theirs");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(mz_runtime_make(path), -EPERM);
    int fd = mz_runtime_open(path, (uid_t)-1); /* what root's client allows */
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(rmdir(path), 0);
}

static int listen_here(pid_t pid)
{
    int dir = mz_runtime_open(folder, geteuid());

    assert_true(dir >= 0);
    int fd = mz_runtime_listen(dir, pid);
    (void)close(dir);
    return fd;
}

static void replaces_dead_sockets_only(void **state)
{
    char path[128];

    (void)state;
    int first = listen_here(4242), second = listen_here(4242);
    assert_true(first >= 0 && second >= 0);
    int dir = mz_runtime_open(folder, geteuid());
    int client = mz_runtime_connect(dir, 4242);
    assert_true(client >= 0);
    assert_true(accept4(second, NULL, NULL, SOCK_CLOEXEC) >= 0); /* the new one has the name */
    (void)close(client);
    (void)close(first);
    (void)close(second);
    assert_int_equal(mz_runtime_connect(dir, 4242), -ECONNREFUSED);
    assert_int_equal(mz_runtime_connect(dir, 4243), -ENOENT);
    (void)close(dir);

    inside(path, sizeof(path), "4244.sock");
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(listen_here(4244), -EADDRINUSE);
    assert_int_equal(access(path, F_OK), 0);
}

static void list_drops_the_dead(void **state)
{
    pid_t *pids;
    size_t n;
    char path[128];

    (void)state;
    (void)setenv("MZ_RUNTIME_DIR", folder, 1);
    int alive = listen_here(11), dead = listen_here(12);
    assert_true(alive >= 0 && dead >= 0);
    (void)close(dead);
    inside(path, sizeof(path), "nonsense.sock");
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(mz_client_list(&pids, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(pids[0], 11);
    free(pids);
    inside(path, sizeof(path), "12.sock");
    assert_int_equal(access(path, F_OK), -1);
    (void)close(alive);
}

static void list_ignores_unsafe_folders(void **state)
{
    pid_t *pids;
    size_t n;

    (void)state;
    (void)setenv("MZ_RUNTIME_DIR", folder, 1);
    int alive = listen_here(11);
    assert_true(alive >= 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(mz_client_list(&pids, &n), 0);
    assert_int_equal(n, 0);
    free(pids);
    assert_int_equal(chmod(folder, 0700), 0);
    (void)close(alive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order_of_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(makes_and_reopens, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_links, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_permissions, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_owners, setup, teardown),
        cmocka_unit_test_setup_teardown(replaces_dead_sockets_only, setup, teardown),
        cmocka_unit_test_setup_teardown(list_drops_the_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(list_ignores_unsafe_folders, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
