/* What all sources share: opening and closing, and finding our cgroup. No state. */
#include "pressure/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/log.h"
#include "os/pressure_fd.h"
#include "os/text.h"

void mz_pressure_source_open(struct mz_pressure_source *s, const struct mz_pressure_source_ops *ops)
{
    int r;

    *s = (struct mz_pressure_source){.ops = ops, .fd = -1};
    r = ops->open(s);
    if (r < 0)
        mz_pressure_source_close(s, s->detail[0] == '\0' ? r : 0);
    else
        s->live = true;
}

void mz_pressure_source_close(struct mz_pressure_source *s, int err)
{
    mz_pressure_fd_close(&s->fd);
    s->live = s->triggers = s->primed = false;
    if (err < 0)
        snprintf(s->detail, sizeof(s->detail), "%s", mz_log_errno(err));
}

/* Whether the comma-separated list of controllers names memory. */
static bool lists_memory(const char *list, size_t length)
{
    for (const char *p = list, *end = list + length; p < end;) {
        size_t n = strcspn(p, ",:");

        if (n == 6 && memcmp(p, "memory", 6) == 0)
            return true;
        p += n + 1;
    }
    return false;
}

/* The path in a line "id:controllers:path" of /proc/self/cgroup if it is the one looked for; its length. */
static const char *group_of_line(const char *line, bool unified, size_t *ret_length)
{
    const char *end = line + strcspn(line, "\n");
    const char *list = memchr(line, ':', (size_t)(end - line)), *path;

    if (list == NULL)
        return NULL;
    list++;
    path = memchr(list, ':', (size_t)(end - list));
    if (path == NULL || path[1] != '/')
        return NULL;
    if (unified ? strncmp(line, "0::", 3) != 0 : !lists_memory(list, (size_t)(path - list)))
        return NULL;
    path++;
    *ret_length = (size_t)(end - path);
    return path;
}

static const char *find_group(const char *text, bool unified, size_t *ret_length)
{
    const char *path = group_of_line(text, unified, ret_length);

    while (path == NULL && (text = strchr(text, '\n')) != NULL)
        path = group_of_line(++text, unified, ret_length);
    return path;
}

static bool readable(const char *path)
{
    char text[8];

    return mz_os_read_text(path, text, sizeof(text)) >= 0;
}

static const char *hierarchy(bool unified)
{
    if (!unified)
        return "/sys/fs/cgroup/memory";
    if (readable("/sys/fs/cgroup/cgroup.controllers"))
        return "/sys/fs/cgroup";
    return readable("/sys/fs/cgroup/unified/cgroup.controllers") ? "/sys/fs/cgroup/unified" : NULL;
}

int mz_group_folder(bool unified, char *buf, size_t size)
{
    char text[4096];
    const char *path, *root = hierarchy(unified);
    size_t length = 0;
    int64_t n;

    if (root == NULL)
        return -ENOENT;
    n = mz_os_read_text("/proc/self/cgroup", text, sizeof(text));
    if (n < 0)
        return n == -ENOENT ? -ENOENT : -EIO;
    path = find_group(text, unified, &length);
    if (path == NULL ||
        strncmp(path, "/..", 3) == 0) /* outside of our cgroup namespace: not to be seen here */
        return -ENOENT;
    if (length == 1)
        length = 0;
    if (strlen(root) + length >= size)
        return -ENAMETOOLONG;
    snprintf(buf, size, "%s%.*s", root, (int)length, path);
    return 0;
}
