/* A folder that stands for "/" in tests: small files below a temporary folder, removed by the names they were
 * made by. */
#ifndef MZ_TEST_TREE_H
#define MZ_TEST_TREE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_MADE_MAX 64

/* /proc/self/mountinfo of a machine with cgroup v2. */
#define TREE_CGROUP2 "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"

struct tree {
    char root[64];
    char made[TREE_MADE_MAX][256]; /* folders and files in the order of making */
    int count;
};

static inline void tree_note(struct tree *t, const char *path)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->made[i], path) == 0)
            return;
    if (t->count == TREE_MADE_MAX)
        abort();
    snprintf(t->made[t->count++], sizeof(t->made[0]), "%s", path);
}

/* Absolute path of a file of the tree; valid until the fourth call after. */
static inline const char *tree_path(const struct tree *t, const char *path)
{
    static char buf[4][512];
    static int next;
    char *p = buf[next++ % 4];

    snprintf(p, sizeof(buf[0]), "%s%s", t->root, path);
    return p;
}

static inline void tree_begin(struct tree *t)
{
    t->count = 0;
    snprintf(t->root, sizeof(t->root), "/tmp/mz-pressure-XXXXXX");
    if (mkdtemp(t->root) == NULL || setenv("MZ_SYSROOT", t->root, 1) != 0)
        abort();
}

static inline void tree_folders(struct tree *t, const char *path)
{
    char part[256];

    for (const char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        if (mkdir(tree_path(t, part), 0755) == 0)
            tree_note(t, part);
        else if (errno != EEXIST)
            abort();
    }
}

/* Writes a file as the kernel changes one: a reader sees the old text or the new one, whole. */
static inline void tree_write(struct tree *t, const char *path, const char *text)
{
    char temporary[512], final[512];
    FILE *f;

    tree_folders(t, path);
    snprintf(final, sizeof(final), "%s%s", t->root, path);
    snprintf(temporary, sizeof(temporary), "%s%s.new", t->root, path);
    f = fopen(temporary, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0 || rename(temporary, final) != 0)
        abort();
    tree_note(t, path);
}

/* Overwrites in place, for whoever keeps the file open. */
static inline void tree_patch(struct tree *t, const char *path, const char *text)
{
    int fd = open(tree_path(t, path), O_WRONLY | O_TRUNC | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0)
        abort();
}

static inline void tree_remove(struct tree *t, const char *path)
{
    if (unlink(tree_path(t, path)) != 0)
        abort();
}

static inline void tree_meminfo(struct tree *t, unsigned long long total_mib,
                                unsigned long long available_mib)
{
    char text[512];

    snprintf(
        text, sizeof(text),
        "MemTotal:       %llu kB\nMemFree:        %llu kB\nMemAvailable:   %llu kB\nBuffers:          10 kB\n"
        "SwapTotal:      4194304 kB\nSwapFree:       4194304 kB\n",
        total_mib * 1024, available_mib / 2 * 1024, available_mib * 1024);
    tree_write(t, "/proc/meminfo", text);
}

static inline void tree_psi(struct tree *t, const char *path, unsigned long long some,
                            unsigned long long full)
{
    char text[256];

    snprintf(text, sizeof(text),
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=%llu\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
             "total=%llu\n",
             some, full);
    tree_write(t, path, text);
}

static inline void tree_end(struct tree *t)
{
    unsetenv("MZ_SYSROOT");
    for (int i = t->count - 1; i >= 0; i--)
        if (unlink(tree_path(t, t->made[i])) != 0)
            (void)rmdir(tree_path(t, t->made[i]));
    (void)rmdir(t->root);
}

#endif
