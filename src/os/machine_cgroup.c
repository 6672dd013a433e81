/* Where our memory cgroup is, and the limits of it and of all its ancestors, v1 and v2. No state: mounts and groups may change
 * under us, and reading them anew costs some tens of microseconds.
 *
 * /proc/self/cgroup names our group in each hierarchy ("5:memory:/a/b", v2: "0::/a/b"), /proc/self/mountinfo
 * where the hierarchy is mounted and which group lies at that mount point (a container sees the tree from its
 * own group). The groups from ours up to the mount point are read. Documentation/admin-guide/cgroup-v2.rst,
 * cgroup-v1/memory.rst. */
#include "os/machine.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/lines.h"
#include "os/text.h"

/* What the walk over the groups found. */
struct limits {
    uint64_t headroom;       /* the least; UINT64_MAX: none */
    uint64_t limit, current; /* of the group with the smallest limit; UINT64_MAX, 0: none */
};

/* The files of one version, and keys of memory.stat. NULL: it has no such thing. */
struct version {
    const char *limit, *second_limit, *current, *guard;
    const char *file_keys[2];
};
static const struct version v1 = {.limit = "memory.limit_in_bytes",
                                  .current = "memory.usage_in_bytes",
                                  .file_keys = {"total_inactive_file", "total_active_file"}};
static const struct version v2 = {.limit = "memory.max",
                                  .second_limit = "memory.high",
                                  .current = "memory.current",
                                  .guard = "memory.min",
                                  .file_keys = {"inactive_file", "active_file"}};

/* v1 has no word for "no limit": it shows the largest multiple of a page in an int64_t. */
#define V1_UNLIMITED (UINT64_C(1) << 62)

/* Where one hierarchy is seen from here. */
struct hierarchy {
    char group[4096]; /* our group, from /proc/self/cgroup */
    char root[4096];  /* the group that lies at the mount point */
    char mount[4096];
};

static int join(const char *folder, const char *file, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s/%s", folder, file);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* -ENOENT when the group has no such file (the root group, a controller that is off). */
static int read_number(const char *folder, const char *file, uint64_t *ret)
{
    char path[4096], text[64];
    int r = join(folder, file, path, sizeof path);
    if (r)
        return -EIO;
    int64_t n = mz_os_read_text(path, text, sizeof text);
    if (n < 0)
        return n == -ENOENT ? -ENOENT : -EIO;
    return mz_os_parse_number(text, ret);
}

/* What memory.min keeps in the group below when this one is full. Unknown counts as nothing. */
static uint64_t guarded_bytes(const char *folder, const char *below, const struct version *v)
{
    char file[512];
    uint64_t bytes;
    if (!below || !v->guard || join(below, v->guard, file, sizeof file) || read_number(folder, file, &bytes))
        return 0;
    return bytes;
}

/* Page cache that the kernel takes back before it calls the group full. That is all of it, as MemAvailable counts the
 * machine's: what lies unused goes first, what is in use (the mapping of a model whose embeddings are looked up) after
 * it, and nothing is killed before. `below` is the group under this one on the way to ours. Its memory.min holds against
 * this one's limit, but a group's own does not hold against its own; memory.low only says who comes last. Unknown counts
 * as none. */
static uint64_t file_bytes(const char *folder, const char *below, const struct version *v)
{
    char path[4096], text[8192];
    uint64_t bytes, sum = 0;
    if (join(folder, "memory.stat", path, sizeof path) || mz_os_read_text(path, text, sizeof text) < 0)
        return 0;
    for (int i = 0; i < 2; i++)
        if (!mz_os_find_number(text, v->file_keys[i], &bytes))
            sum += bytes;
    uint64_t guarded = guarded_bytes(folder, below, v);
    return sum > guarded ? sum - guarded : 0;
}

static int read_limit(const char *folder, const struct version *v, uint64_t *ret)
{
    uint64_t limit, second;
    int r = read_number(folder, v->limit, &limit);
    if (!r && limit >= V1_UNLIMITED)
        limit = UINT64_MAX;
    if (!r && v->second_limit) {
        r = read_number(folder, v->second_limit, &second);
        if (r == -ENOENT)
            r = 0;
        else if (!r && second < limit)
            limit = second;
    }
    if (!r)
        *ret = limit;
    return r;
}

static int add_group(const char *folder, const char *below, const struct version *v, struct limits *limits)
{
    uint64_t limit, current;
    int r = read_limit(folder, v, &limit);
    if (r == -ENOENT || (!r && limit == UINT64_MAX))
        return 0;
    if (!r)
        r = read_number(folder, v->current, &current);
    if (r)
        return r == -EBADMSG ? r : -EIO;
    uint64_t file = file_bytes(folder, below, v);
    uint64_t used = current > file ? current - file : 0;
    uint64_t headroom = limit > used ? limit - used : 0;
    if (headroom < limits->headroom)
        limits->headroom = headroom;
    if (limit < limits->limit) {
        limits->limit = limit;
        limits->current = current;
    }
    return 0;
}

/* The path from the mount point to our group: "" or "/a/b"; NULL when it lies outside of what is mounted. */
static const char *path_below(const struct hierarchy *h)
{
    size_t root = strcmp(h->root, "/") ? strlen(h->root) : 0;
    const char *ours = h->group + root;
    if (strncmp(h->group, h->root, root) || (*ours != '/' && *ours != 0) || !strncmp(ours, "/..", 3))
        return NULL;
    return strcmp(ours, "/") ? ours : "";
}

/* From our group up to the mount point. Outside of what is mounted, the mount point is the nearest we see. */
static int walk(const struct hierarchy *h, const struct version *v, struct limits *limits)
{
    char path[2 * 4096 + 1];
    size_t mount = strlen(h->mount);
    const char *ours = path_below(h), *below = NULL;
    snprintf(path, sizeof path, "%s%s", h->mount, ours ? ours : "");
    for (;;) {
        int r = add_group(path, below, v, limits);
        char *slash = strrchr(path, '/');
        if (r || strlen(path) <= mount || !slash)
            return r;
        *slash = 0;
        below = slash + 1;
        if (strlen(path) < mount)
            return 0;
    }
}

/* A comma-separated list holds the word. */
static bool lists(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == 0))
            return true;
    return false;
}

/* Our group of the hierarchy that has v1's memory controller, or of v2. -ENOENT: there is none. */
static int find_group(bool unified, char *buf, size_t size)
{
    struct mz_lines lines;
    int r = mz_lines_open(&lines, "/proc/self/cgroup", true);
    if (r)
        return r == -ENOENT ? r : -EIO;
    r = -ENOENT;
    for (char *line; r == -ENOENT && (line = mz_lines_next(&lines));) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || path[1] != '/')
            continue;
        *path++ = 0;
        controllers++;
        if (unified ? *controllers == 0 && !strncmp(line, "0:", 2) : lists(controllers, "memory"))
            r = snprintf(buf, size, "%s", path) < (int)size ? 0 : -EIO;
    }
    return mz_lines_close(&lines) ? -EIO : r;
}

/* Blanks and backslashes of mountinfo come as three octal digits. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        bool octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
                     from[2] <= '7' && from[3] >= '0' && from[3] <= '7';
        *to = octal ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : *from;
        from += octal ? 4 : 1;
    }
    *to = 0;
}

/* "36 35 98:0 /root /mount options optional... - type source super-options" */
static bool parse_mount(char *line, bool unified, struct hierarchy *h)
{
    char *save = NULL, *field[6], *tail = strstr(line, " - ");
    if (!tail)
        return false;
    *tail = 0;
    for (int i = 0; i < 6; i++)
        if (!(field[i] = strtok_r(i ? NULL : line, " ", &save)))
            return false;
    char *type = strtok_r(tail + 3, " ", &save), *source = strtok_r(NULL, " ", &save);
    char *options = strtok_r(NULL, " ", &save);
    if (!type || !source || strcmp(type, unified ? "cgroup2" : "cgroup") ||
        (!unified && !(options && lists(options, "memory"))))
        return false;
    unescape(field[3]);
    unescape(field[4]);
    snprintf(h->root, sizeof h->root, "%s", field[3]);
    snprintf(h->mount, sizeof h->mount, "%s", field[4]);
    return true;
}

/* The first mount of the hierarchy; -ENOENT when it is not mounted here. */
static int find_mount(bool unified, struct hierarchy *h)
{
    struct mz_lines lines;
    int r = mz_lines_open(&lines, "/proc/self/mountinfo", true);
    if (r)
        return r == -ENOENT ? r : -EIO;
    r = -ENOENT;
    for (char *line; r == -ENOENT && (line = mz_lines_next(&lines));)
        if (parse_mount(line, unified, h))
            r = 0;
    return mz_lines_close(&lines) ? -EIO : r;
}

static int find_hierarchy(bool unified, struct hierarchy *ret)
{
    int r = find_group(unified, ret->group, sizeof ret->group);
    return r ? r : find_mount(unified, ret);
}

int mz_machine_cgroup_folder(bool unified, char *buf, size_t size)
{
    struct hierarchy h;
    int r = find_hierarchy(unified, &h);
    const char *ours = r ? NULL : path_below(&h);
    if (r || !ours)
        return r ? r : -ENOENT;
    int n = snprintf(buf, size, "%s%s", h.mount, ours);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static int add_hierarchy(bool unified, struct limits *limits)
{
    struct hierarchy h;
    int r = find_hierarchy(unified, &h);
    if (!r)
        r = walk(&h, unified ? &v2 : &v1, limits);
    return r == -ENOENT ? 0 : r;
}

/* In a hybrid setup the controller is in one of the two; the other has no files of it and says nothing. */
static int find_limits(struct limits *ret)
{
    *ret = (struct limits){.headroom = UINT64_MAX, .limit = UINT64_MAX, .current = 0};
    int r = add_hierarchy(false, ret);
    return r ? r : add_hierarchy(true, ret);
}

int mz_machine_cgroup_headroom(uint64_t *ret_bytes)
{
    struct limits limits;
    int r = find_limits(&limits);
    if (!r)
        *ret_bytes = limits.headroom;
    return r;
}

int mz_machine_cgroup_limit(uint64_t *ret_limit, uint64_t *ret_current, uint64_t *ret_headroom)
{
    struct limits limits;
    int r = find_limits(&limits);
    if (!r) {
        *ret_limit = limits.limit;
        *ret_current = limits.current;
        *ret_headroom = limits.headroom;
    }
    return r;
}
