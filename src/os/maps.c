/* Parses /proc/self/maps (fs/proc/task_mmu.c, show_map_vma): "start-end perms offset major:minor inode path".
 * No state. */
#include "os/maps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "os/fault.h"
#include "os/lines.h"

/* Everything but the path. Returns the offset of the path in the line, or 0. */
static int parse_fields(const char *line, struct mz_mapping *m)
{
    char perms[5];
    unsigned major, minor;
    int path = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 "%n", &m->start, &m->end, perms,
               &m->offset, &major, &minor, &m->inode, &path) < 7)
        return 0;
    m->dev = makedev(major, minor);
    m->readable = perms[0] == 'r';
    m->writable = perms[1] == 'w';
    m->shared = perms[3] == 's';
    return path + (int)strspn(line + path, " ");
}

static bool is_file(const char *path, const struct mz_mapping *m)
{
    struct stat st;
    return !mz_fault_hit(MZ_FAULT_STAT) && !stat(path, &st) && st.st_ino == m->inode;
}

/* The kernel escapes only the newline ("\012"), and not the backslash. */
static void unescape(char *path)
{
    char *to = path;
    for (const char *from = path; *from; to++) {
        bool newline = !strncmp(from, "\\012", 4);
        *to = newline ? '\n' : *from;
        from += newline ? 4 : 1;
    }
    *to = 0;
}

/* A name may really hold "\012" or end in " (deleted)": then a file of that very name has the inode. */
static void parse_path(char *text, struct mz_mapping *m)
{
    static const char mark[] = " (deleted)";
    m->deleted = false;
    if (m->inode && !is_file(text, m)) {
        unescape(text);
        size_t length = strlen(text), tail = sizeof mark - 1;
        m->deleted = length > tail && !strcmp(text + length - tail, mark) && !is_file(text, m);
        if (m->deleted)
            text[length - tail] = 0;
    }
    snprintf(m->path, sizeof m->path, "%s", text);
}

int mz_maps_find(const void *address, struct mz_mapping *ret)
{
    struct mz_lines lines;
    struct mz_mapping m;
    if (mz_lines_open(&lines, "/proc/self/maps", false))
        return -EIO;
    int result = -ENOENT;
    for (char *line; result == -ENOENT && (line = mz_lines_next(&lines));) {
        uint64_t wanted = (uint64_t)(uintptr_t)address;
        int path = parse_fields(line, &m);
        if (path && wanted >= m.start && wanted < m.end) {
            parse_path(line + path, &m);
            result = 0;
        }
    }
    if (mz_lines_close(&lines))
        result = -EIO;
    if (!result)
        *ret = m;
    return result;
}
