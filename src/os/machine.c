/* Memory of the machine and of this process, from /proc. No state. */
#include "os/machine.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "os/lines.h"
#include "os/text.h"

/* A missing optional figure is 0. */
static int find(const char *text, const char *key, bool optional, uint64_t *ret)
{
    int r = mz_os_find_number(text, key, ret);
    if (r == -ENOENT && optional) {
        *ret = 0;
        return 0;
    }
    return r ? -EBADMSG : 0;
}

int mz_machine_memory(struct mz_machine_memory *ret)
{
    char text[8192]; /* 1.6 KiB in Linux 6.18 */
    struct mz_machine_memory m;
    if (mz_os_read_text("/proc/meminfo", text, sizeof text) < 0)
        return -EIO;
    int r = find(text, "MemTotal:", false, &m.total_bytes);
    if (!r)
        r = find(text, "MemAvailable:", false, &m.available_bytes);
    if (!r)
        r = find(text, "MemFree:", false, &m.free_bytes);
    if (!r)
        r = find(text, "SwapTotal:", true, &m.swap_total_bytes);
    if (!r)
        r = find(text, "SwapFree:", true, &m.swap_free_bytes);
    if (!r && (m.total_bytes == 0 || m.available_bytes > m.total_bytes || m.free_bytes > m.total_bytes))
        r = -EBADMSG;
    if (!r)
        *ret = m;
    return r;
}

int mz_machine_process(struct mz_process_memory *ret)
{
    struct mz_process_memory p = {0, 0, 0};
    struct mz_lines lines;
    int r = mz_lines_open(&lines, "/proc/self/status", true);
    if (r == -ENOENT)
        r = mz_lines_open(&lines, "/proc/self/status", false);
    if (r)
        return -EIO;
    const char *keys[] = {"RssAnon:", "RssFile:", "VmSwap:"};
    uint64_t *to[] = {&p.rss_anon_bytes, &p.rss_file_bytes, &p.swap_bytes};
    int found = 0;
    for (char *line; !r && (line = mz_lines_next(&lines));)
        for (size_t i = 0; !r && i < sizeof keys / sizeof keys[0]; i++) {
            int one = mz_os_find_number(line, keys[i], to[i]);
            found += one == 0;
            r = one == -EBADMSG ? one : 0;
        }
    if (mz_lines_close(&lines))
        return -EIO;
    if (!r && found < 3)
        r = -EBADMSG;
    if (!r)
        *ret = p;
    return r;
}
