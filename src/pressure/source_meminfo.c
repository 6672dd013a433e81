/* MemAvailable, polled: the source that is there on every kernel, and the only one that sees a hog coming. */
#include "pressure/source.h"

#include <stdio.h>

#include "os/machine.h"

static int meminfo_open(struct mz_pressure_source *s)
{
    struct mz_machine_memory m;
    int r = mz_machine_memory(&m);

    if (r < 0)
        return r;
    snprintf(s->detail, sizeof(s->detail), "polled");
    return 0;
}

static int meminfo_read(struct mz_pressure_source *s, struct mz_policy_sample *sample)
{
    struct mz_machine_memory m;
    int r = mz_machine_memory(&m);

    (void)s;
    if (r < 0)
        return r;
    sample->memory_bytes = m.total_bytes;
    sample->available_bytes = m.available_bytes;
    sample->swap_bytes = m.swap_total_bytes;
    sample->swap_free_bytes = m.swap_free_bytes;
    return 0;
}

const struct mz_pressure_source_ops mz_pressure_source_meminfo = {
    .name = "meminfo",
    .open = meminfo_open,
    .read = meminfo_read,
};
