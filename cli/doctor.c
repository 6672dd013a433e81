/* mzcache doctor: what on this machine keeps mzCache from working well, and what to do about it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "control/runtime.h"
#include "core/profile.h"
#include "core/profile_measure.h"
#include "core/store.h"
#include "machine.h"
#include "os/file.h"
#include "os/log.h"
#include "os/machine.h"
#include "os/mem.h"
#include "os/os.h"
#include "os/text.h"
#include "os/transfer.h"
#include "run_env.h"

enum grade { GOOD, NOTE, BAD };

/* Findings are printed as they come; only their numbers are kept. */
struct doctor {
    const struct cli_input *input;
    int counts[BAD + 1];
    bool json;
};

/* One finding: what was looked at, what it is, and what to do (NULL when nothing). */
static void find(struct doctor *d, enum grade grade, const char *what, const char *advice, const char *format,
                 ...) __attribute__((format(printf, 5, 6)));

static void find(struct doctor *d, enum grade grade, const char *what, const char *advice, const char *format,
                 ...)
{
    static const char *const grades[] = {"good", "note", "bad"};
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    d->counts[grade]++;
    if (d->json) {
        json_t *line = json_pack("{s:s, s:s, s:s, s:s}", "what", what, "grade", grades[grade], "found", text,
                                 "advice", advice ? advice : "");
        char *out = line ? json_dumps(line, JSON_COMPACT) : NULL;
        (void)puts(out ? out : "{}");
        free(out);
        json_decref(line);
        return;
    }
    (void)printf("%-4s  %-15s %s\n", grade == GOOD ? "ok" : grades[grade], what, text);
    if (advice)
        (void)printf("%23s-> %s\n", "", advice);
}

/* ----------------------------------------------------------------------------------------- the program */

/* Starts `program --list-devices` with the plugin and reads what it says, both channels, for at most 30 s.
 * -ENOENT: there is no such program; -ENOEXEC: it cannot be started; -ENODATA: it says nothing. */
static int list_devices(const char *program, const char *plugin, char *buf, size_t size)
{
    int pipe_fds[2];
    size_t used = 0;
    uint64_t end = mz_os_now_ns() + UINT64_C(30000000000);

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(pipe_fds[1], STDOUT_FILENO);
        (void)dup2(pipe_fds[1], STDERR_FILENO);
        (void)setenv("GGML_BACKEND_PATH", plugin, 1);
        (void)setenv("MZ_CONTROL", "off", 1);
        (void)execlp(program, program, "--list-devices", (char *)NULL);
        _exit(errno == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_RUN);
    }
    (void)close(pipe_fds[1]);
    while (pid > 0 && used + 1 < size && mz_os_now_ns() < end) {
        struct pollfd p = {.fd = pipe_fds[0], .events = POLLIN};
        if (poll(&p, 1, 500) <= 0)
            continue;
        ssize_t n = read(pipe_fds[0], buf + used, size - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    (void)close(pipe_fds[0]);
    buf[used] = '\0';
    if (pid < 0)
        return -EAGAIN;
    int status = 0;
    (void)kill(pid, SIGKILL); /* it is done, or it hangs */
    (void)waitpid(pid, &status, 0);
    if (used)
        return 0;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return code == CLI_NOT_FOUND ? -ENOENT : code == CLI_CANNOT_RUN ? -ENOEXEC : -ENODATA;
}

/* The plugin's own word on why it refused, if it gave one. */
static const char *refusal_in(char *text)
{
    char *line = strstr(text, "mzcache: ");

    if (!line)
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    return line + 9;
}

/* Why the program's devices are not known. */
static void find_no_devices(struct doctor *d, const char *program, int err)
{
    if (err == -ENOENT && !strchr(program, '/'))
        find(d, BAD, "program",
             "name it with its folder, as in mzcache doctor ./llama-server, or add that folder to PATH",
             "%s is in none of the folders of PATH", program);
    else if (err == -ENOENT)
        find(d, BAD, "program", "check the path, and whether what it needs to start is installed",
             "%s was not found", program);
    else if (err == -ENODATA)
        find(d, BAD, "program", "name a llama.cpp program that knows --list-devices, such as llama-server",
             "%s --list-devices says nothing", program);
    else
        find(d, BAD, "program", "it must be a program for this machine that you may run",
             "%s could not be started", program);
}

/* The program that was named, or llama-server where that is found. */
static void check_program(struct doctor *d, const char *plugin)
{
    static char text[65536];
    bool named = d->input->n_operands > 0;
    const char *program = named ? d->input->operands[0] : "llama-server";
    int err = list_devices(program, plugin, text, sizeof(text));

    if (err == -ENOENT && !named) {
        find(d, NOTE, "program", "name yours: mzcache doctor /path/to/llama-server",
             "not checked: llama-server is in none of the folders of PATH");
        return;
    }
    if (err < 0) {
        find_no_devices(d, program, err);
        return;
    }
    if (strstr(text, "MZ0")) {
        find(d, GOOD, "program", NULL, "%s loads mzCache and sees its device MZ0", program);
        return;
    }
    const char *refusal = refusal_in(text);
    if (!refusal && !strstr(text, "Available devices"))
        find(d, BAD, "program", "name a llama.cpp program that knows --list-devices, such as llama-server",
             "%s --list-devices says: %.*s", program, (int)strcspn(text, "\n"), text);
    else
        find(d, BAD, "program",
             "build mzCache against the same llama.cpp version as the program (-DMZ_LLAMA_DIR=); mzcache run "
             "sets up the rest",
             "%s does not show the device MZ0%s%s", program, refusal ? ": " : "", refusal ? refusal : "");
}

static void check_plugin(struct doctor *d)
{
    char plugin[PATH_MAX];

    if (run_find_plugin(plugin, sizeof(plugin)) < 0) {
        find(d, BAD, "plugin", "install mzCache, or name the file with MZ_PLUGIN",
             "libggml-mz.so was not found");
        return;
    }
    find(d, GOOD, "plugin", NULL, "%s (mzcache " MZ_VERSION ")", plugin);
    check_program(d, plugin);
}

/* --------------------------------------------------------------------------------------------- storage */

static void check_open_swap(struct doctor *d, const char *folder, const struct mz_file *file)
{
    uint64_t space = 0;
    char size[CLI_TEXT];

    if (file->direct_fd < 0)
        find(d, NOTE, "direct I/O",
             "restoring goes through the page cache; a folder on a local disk would be faster",
             "the file system of %s has none", folder);
    else
        find(d, GOOD, "direct I/O", NULL, "yes, in blocks of %u bytes", file->file_align);
    if (mz_file_space(file, &space) < 0)
        find(d, NOTE, "space", NULL, "cannot be told");
    else if (space < UINT64_C(2) << 30)
        find(d, NOTE, "space",
             "free some, or name another folder with MZ_SWAP_FOLDER: conversations go there in full",
             "%s left in %s", cli_size(space, size), folder);
    else
        find(d, GOOD, "space", NULL, "%s left in %s", cli_size(space, size), folder);
}

static void check_profile(struct doctor *d, const char *folder)
{
    char device[64];
    struct mz_profile profile;
    int rc = mz_profile_measure_device(folder, false, device, sizeof(device));

    if (rc == 0)
        rc = mz_profile_load(device, &profile);
    if (rc < 0)
        find(d, NOTE, "profile", "run: mzcache profile",
             "none for the device of %s yet; it will be measured on first use", folder);
    else
        find(d, GOOD, "profile", NULL, "%s: reads %.2f GB/s in requests of %u KiB", device, profile.read_gbps,
             profile.request_bytes / 1024);
}

/* An option and no fault: what it costs is for the user to weigh. */
static void check_packed(struct doctor *d)
{
    const char *set = getenv("MZ_REPACKED");

    if (set && strcmp(set, "on") == 0)
        find(d, GOOD, "packed weights", NULL,
             "read back from the swap file, which takes disk of their size (MZ_REPACKED=on)");
    else
        find(d, GOOD, "packed weights", NULL,
             "packed again when they come back (Q4_0 and others); --repacked on reads them, for disk of "
             "their size");
}

static void check_storage(struct doctor *d)
{
    char folder[4096], first[4096];
    struct mz_file file;
    int rc = machine_swap_folder(NULL, folder, sizeof(folder));

    if (rc == 0)
        rc = mz_file_open_swap(folder, false, &file);
    if (rc < 0 && !getenv("MZ_SWAP_FOLDER") && mz_file_open_swap(MZ_STORE_LAST_FOLDER, false, &file) == 0) {
        (void)snprintf(first, sizeof(first), "%s", rc == -ENOENT ? "no cache folder" : folder);
        find(d, NOTE, "cache folder", "make it a folder that can be written: profiles are kept there, too",
             "%s: %s; the swap file goes to " MZ_STORE_LAST_FOLDER, first, mz_log_errno(rc));
        (void)snprintf(folder, sizeof(folder), MZ_STORE_LAST_FOLDER);
        rc = 0;
    }
    if (rc == -EMEDIUMTYPE) {
        find(d, BAD, "swap folder",
             "name a folder on a disk with MZ_SWAP_FOLDER, or mzcache run --swap-folder",
             "%s lies in memory (tmpfs): evicting to it frees nothing", folder);
        return;
    }
    if (rc < 0) {
        find(d, BAD, "swap folder",
             "name a folder that can be written with MZ_SWAP_FOLDER, or mzcache run --swap-folder", "%s: %s",
             rc == -ENOENT ? "no cache folder" : folder, strerror(-rc));
        return;
    }
    find(d, GOOD, "swap folder", NULL, "%s", folder);
    check_open_swap(d, folder, &file);
    mz_file_close(&file);
    check_profile(d, folder);
    check_packed(d);
}

static void check_uring(struct doctor *d)
{
    const char *why = "";

    if (mz_transfer_uring(&why))
        find(d, GOOD, "io_uring", NULL, "allowed");
    else
        find(d, NOTE, "io_uring",
             "allow it (kernel.io_uring_disabled=0, the container's seccomp profile); threads read in its "
             "place",
             "not allowed: %s", why);
}

/* ------------------------------------------------------------------------------------------------- memory */

static void check_huge(struct doctor *d)
{
    if (mz_os_huge_pages())
        find(d, GOOD, "huge pages", NULL, "given to those who ask");
    else
        find(d, NOTE, "huge pages", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
             "off: restoring takes twice the CPU time");
}

static void check_psi(struct doctor *d)
{
    char text[512];

    if (mz_os_read_text("/proc/pressure/memory", text, sizeof(text)) > 0)
        find(d, GOOD, "pressure", NULL, "the kernel reports stalls (PSI)");
    else
        find(d, NOTE, "pressure", "boot with psi=1 for earlier warning",
             "no PSI: free memory is polled in its place");
}

static void check_memory(struct doctor *d)
{
    struct mz_machine_memory memory;
    uint64_t limit, current, headroom;
    char a[CLI_TEXT], b[CLI_TEXT];

    if (mz_machine_memory(&memory) < 0)
        find(d, NOTE, "memory", NULL, "/proc/meminfo cannot be read");
    else
        find(d, GOOD, "memory", NULL, "%s of %s available", cli_size(memory.available_bytes, a),
             cli_size(memory.total_bytes, b));
    if (mz_machine_cgroup_limit(&limit, &current, &headroom) == 0 && limit != UINT64_MAX)
        find(d, GOOD, "cgroup", NULL, "limited to %s, %s in use", cli_size(limit, a), cli_size(current, b));
}

static void check_limits(struct doctor *d)
{
    struct rlimit as, core;
    char text[64];
    uint64_t overcommit = 0;

    if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY)
        find(d, NOTE, "address space",
             "ulimit -v unlimited: models are reserved whole before they take memory", "limited to %s",
             cli_size(as.rlim_cur, text));
    if (mz_os_read_text("/proc/sys/vm/overcommit_memory", text, sizeof(text)) > 0 &&
        strtoull(text, NULL, 10) == 2)
        overcommit = 2;
    if (overcommit == 2)
        find(d, NOTE, "overcommit",
             "sysctl vm.overcommit_memory=0: with 2, reserved memory counts like used memory",
             "vm.overcommit_memory is 2");
    else
        find(d, GOOD, "limits", NULL, "memory may be reserved ahead of use");
    if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur != 0)
        find(d, GOOD, "core files", NULL, "allowed; models and conversations are left out of them");
}

static void check_runtime(struct doctor *d)
{
    char(*folders)[MZ_RUNTIME_PATH] = calloc(MZ_RUNTIME_FOLDERS, sizeof(*folders));
    int fd = -ENOMEM;
    size_t n = folders ? mz_runtime_folders(folders) : 0;

    for (size_t i = 0; i < n && i < 2 && fd < 0; i++) {
        fd = mz_runtime_make(folders[i]);
        if (fd >= 0)
            find(d, GOOD, "control socket", NULL, "in %s", folders[i]);
        else
            find(d, NOTE, "control socket",
                 "make it a folder of your own with mode 0700, or set MZ_RUNTIME_DIR",
                 "%s cannot be used: %s", folders[i],
                 fd == -EPERM ? "others may write there, or own it" : strerror(-fd));
    }
    if (fd >= 0)
        (void)close(fd);
    else
        find(d, BAD, "control socket", "set MZ_RUNTIME_DIR to a folder of your own",
             "processes could not be reached");
    free(folders);
}

static int run(const struct cli_input *input)
{
    struct doctor d = {.input = input, .json = cli_value(input, "json") != NULL};

    check_plugin(&d);
    check_storage(&d);
    check_uring(&d);
    check_huge(&d);
    check_psi(&d);
    check_memory(&d);
    check_limits(&d);
    check_runtime(&d);
    if (!d.json && d.counts[BAD])
        (void)printf("\nNot ready: %d bad, to be mended as said.\n", d.counts[BAD]);
    else if (!d.json)
        (void)printf("\nReady%s.\n", d.counts[NOTE] ? "; what is noted would make it better" : "");
    return d.counts[BAD] ? CLI_FAILED : CLI_OK;
}

static const struct cli_option options[] = {
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_doctor = {
    .name = "doctor",
    .operands = "[PROGRAM]",
    .summary = "Look for what keeps mzCache from working well here, and say what to do",
    .help = "PROGRAM, or llama-server where that is found, is started with --list-devices to see whether it "
            "takes "
            "the plugin. \"note\" works, but not as well as it could. Exit code 1: something is bad.\n",
    .options = options,
    .max_operands = 1,
    .run = run,
};
