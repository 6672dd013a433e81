/* The fallback engine: pread and pwrite on the thread that waits. No state. */
#include "os/transfer_engine.h"

void mz_plain_run(struct mz_slot *slot)
{
    int result = mz_io_run(&slot->io);
    slot->took = result ? result : 1;
    slot->state = MZ_SLOT_COMPLETE;
}
