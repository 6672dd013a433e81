/* Where weights lie in their buffer: the small ones together at its front, the others behind them.
 *
 * Weights under 64 KiB (norms, biases) stay in memory for good. ggml-alloc places tensors in the order of
 * their creation, so each of the four norms of a layer lies between large weights, and the huge page that it
 * is in can neither leave nor come back as one: a quarter of a small model came back in pages of 4 KiB, whose
 * reads the block layer cuts into small pieces too. Nothing has content or views yet, so tensors can still be
 * moved. Locks: buffer->lock. */
#include "ggml/glue.h"

#define LINE 64 /* alignment of small ones, which need no pages of their own */

static bool is_small(const struct mz_record *record)
{
    return record->bytes < MZ_RECORD_SMALL_BYTES;
}

/* All in ascending order, each of whole pages that nobody else has, and none with views, whose addresses are
 * known elsewhere. */
static bool may_move(const struct mz_buffer *buffer)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < buffer->n; i++) {
        const struct mz_record *record = buffer->records[i];
        if (record->viewed || record->offset < end || record->alloc_bytes % MZ_PAGE_BYTES)
            return false;
        end = record->offset + record->alloc_bytes;
    }
    return true;
}

static void move(struct mz_buffer *buffer, struct mz_record *record, uint64_t offset)
{
    record->tensor->data = buffer->base + offset;
    record->offset = offset;
}

/* Small ones take no more room than before, so no other one moves beyond where it was. */
void mz_buffer_gather(struct mz_buffer *buffer)
{
    uint64_t at = 0;

    if (buffer->ggml->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS || !may_move(buffer))
        return;
    for (int small = 1; small >= 0; small--) {
        for (uint32_t i = 0; i < buffer->n; i++) {
            struct mz_record *record = buffer->records[i];
            if (is_small(record) != (small != 0))
                continue;
            move(buffer, record, at);
            at += small ? mz_round_up(record->bytes, LINE) : record->alloc_bytes;
        }
        at = mz_round_up(at, MZ_PAGE_BYTES);
    }
}
