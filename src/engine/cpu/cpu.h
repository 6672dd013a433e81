/* The CPU engine: memory that lies in this process, computing by ggml-cpu.
 *
 * One struct mz_engine per process holds the memory half; it is never freed, since regions may outlive
 * everything. One stream per ggml backend (thus per context) holds the compute half: an own ggml-cpu backend
 * with its threads. A stream is an engine too, of which only the compute calls are used. ggml headers are
 * included in pack.c and compute.c only. */
#ifndef MZ_ENGINE_CPU_H
#define MZ_ENGINE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

struct ggml_tensor;

/* The engine of this process, made at the first call; any thread. -ENOMEM; -ENODEV when ggml knows no CPU
 * device. */
int mz_cpu_engine(struct mz_engine **ret);

/* ------------------------------------------------------------------------------------------------- streams
 */

/* A stream of the engine. -ENOMEM, -ENODEV. Destroyed by the same thread that computes; NULL allowed. */
int mz_cpu_stream_create(struct mz_engine *engine, struct mz_engine **ret);
void mz_cpu_stream_destroy(struct mz_engine *stream);

/* ------------------------------------------------------------------------------------------------- forms */

/* The form in which ggml-cpu's fastest kernel for this operation wants its weight (op->src[0]), or NULL:
 * plain. `op` need not have data; only types, shapes and the operation count. Follows the order in which
 * llama.cpp tries the extra buffer types of the CPU device (ggml-cpu.cpp:
 * ggml_backend_cpu_get_extra_buffer_types). Kernels whose layout is larger than the plain bytes are passed
 * over. The form is new; its shadow has no address yet. Any thread. */
struct mz_form *mz_form_create(struct mz_engine *engine, const struct ggml_tensor *op);
void mz_form_destroy(struct mz_form *form);

/* Whether an operation (a node that reads the weight itself, not a view of it) is computed right in this
 * form. */
bool mz_form_fits(struct mz_engine *engine, const struct mz_form *form, const struct ggml_tensor *op);

/* The tensor that stands for the weight while computing; `data` is where the packed bytes lie. Before
 * computing starts. */
struct ggml_tensor *mz_form_shadow(struct mz_form *form);
void mz_form_place(struct mz_form *form, void *data);

/* Rows of the weight that are packed at once (a unit's size is a multiple of their bytes), the whole weight
 * when it cannot be packed in pieces. In bytes of the plain form. */
uint64_t mz_form_group_bytes(const struct mz_form *form);

/* The kernel's buffer type, for messages. */
const char *mz_form_name(const struct mz_form *form);

#endif
