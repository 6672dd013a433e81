/* What all sources share: opening and closing. No state. */
#include "pressure/source.h"

#include <stdio.h>

#include "os/log.h"
#include "os/pressure_fd.h"

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
