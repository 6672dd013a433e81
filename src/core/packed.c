/* Packed copies: images of packed weights in the swap file, as they lie in memory (option `repacked`).
 *
 * A packed weight comes back from the model file by reading and packing. Where packing is slower than
 * reading, its image is worth the disk it takes: written when the weight leaves first, or in idle time before
 * that, and read straight into its place from then on. It is a copy beside that of the plain bytes and never
 * the only one: what cannot be written, or read, is no loss. Lock: core->lock. */
#include "core/state.h"
#include "os/log.h"

static bool lacks_image(const struct mz_unit *unit)
{
    const struct mz_core *core = unit->tensor->region->core;

    return core->options.repacked && !core->packed_failed && unit->tensor->form &&
           !(unit->copies & MZ_COPY_PACKED);
}

bool mz_unit_is_clean(const struct mz_unit *unit)
{
    return unit->copies && !lacks_image(unit);
}

bool mz_packed_give_up(struct mz_unit *unit, int err)
{
    struct mz_core *core = unit->tensor->region->core;

    if (!unit->tensor->form)
        return false;
    if (!core->packed_failed)
        mz_log(MZ_LOG_WARN,
               "cannot keep packed weights in %s (%s); they are packed again when they come back",
               mz_store_folder(core->store), mz_log_errno(err));
    core->packed_failed = true;
    return true;
}

static bool at_rest(const struct mz_unit *unit)
{
    return !unit->cleaning &&
           (unit->state == MZ_RESIDENT || unit->state == MZ_EVICTED || unit->state == MZ_LOST);
}

void mz_packed_apply(struct mz_core *core)
{
    core->packed_failed = false;
    if (core->options.repacked)
        return;
    for (struct mz_region *region = core->regions; region; region = region->next)
        for (uint32_t i = 0; i < region->n; i++)
            for (uint32_t u = 0; u < region->tensors[i]->n; u++)
                if (at_rest(&region->tensors[i]->units[u]))
                    mz_unit_void(&region->tensors[i]->units[u], MZ_COPY_PACKED);
}
