/* Packed weights: the layouts that ggml-cpu's fastest kernels read.
 *
 * ggml-cpu takes such a kernel when src[0]->buffer->buft is one of the CPU device's extra buffer types and
 * src[0]->extra holds the kernel's traits (ggml-cpu/traits.cpp). Both are had without allocating a buffer of
 * that type for the weight: a small probe buffer is allocated once per type, its struct is copied, and a
 * shadow tensor in it, whose data is the weight's place in our own memory, is initialised by the type itself.
 * set_tensor of the shadow packs; while computing the shadow stands in node->src[0].
 *
 * set_tensor wants a whole tensor. Rows are packed in groups of 8 or 16 in every layout known, so a run of
 * whole groups is packed through a temporary two-dimensional shadow of these rows. That this gives the same
 * bytes is not assumed: it is tried once per type, kernel and number of dimensions with a small tensor, and
 * where it does not the weight is packed whole.
 *
 * kernels->lock protects the verdicts; it is a leaf. Forms are written by their maker before they are shared.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include "engine/cpu/cpu_int.h"
#include "os/fault.h"
#include "os/log.h"

#define KERNELS_MAX 8

/* Rows in a group that are tried, in this order. */
static const int64_t group_rows_tried[] = {8, 16, 32, 64};

/* One extra buffer type of the CPU device. */
struct kernel {
    ggml_backend_buffer_t probe;       /* never freed: the copy may refer to its context; fixed */
    struct ggml_backend_buffer buffer; /* copy of the probe's struct: type and functions; fixed */
    int16_t group_rows[GGML_TYPE_COUNT]
                      [2]; /* by type and dimensions (2, 3): 0 not tried, -1 whole only; lock */
};

struct mz_kernels {
    ggml_backend_dev_t device; /* fixed */
    int n;                     /* fixed */
    struct kernel kernel[KERNELS_MAX];
    pthread_mutex_t lock;
    void (*omp_set_num_threads)(int); /* fixed; NULL: ggml-cpu is built without OpenMP */
    int (*omp_get_max_threads)(void);
};

struct mz_form {
    struct mz_kernels *kernels;
    struct kernel *kernel;
    struct ggml_tensor shadow; /* of the whole weight */
    uint64_t group_bytes;      /* plain bytes of a group of rows; all of them: packed whole */
};

static struct mz_kernels *kernels_of(struct mz_engine *engine)
{
    return ((struct mz_cpu *)engine)->kernels;
}

/* ---- the extra buffer types */

static void add_kernel(struct mz_kernels *kernels, ggml_backend_buffer_type_t buft)
{
    ggml_backend_buffer_t probe = ggml_backend_buft_alloc_buffer(buft, 4096);

    if (!probe)
        return;
    struct kernel *kernel = &kernels->kernel[kernels->n++];
    kernel->probe = probe;
    kernel->buffer = *probe;
    kernel->buffer.size = SIZE_MAX;
}

/* Packing in a worker must not start a team of OpenMP threads per worker. libgomp is there already or it is
 * not. */
static void find_openmp(struct mz_kernels *kernels)
{
    void *lib = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);

    if (!lib)
        return;
    *(void **)&kernels->omp_set_num_threads = dlsym(lib, "omp_set_num_threads");
    *(void **)&kernels->omp_get_max_threads = dlsym(lib, "omp_get_max_threads");
    if (!kernels->omp_get_max_threads)
        kernels->omp_set_num_threads = NULL;
}

int mz_kernels_create(struct mz_kernels **ret)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device)
        return -ENODEV;
    struct mz_kernels *kernels = mz_calloc(1, sizeof(*kernels));
    if (!kernels)
        return -ENOMEM;
    kernels->device = device;
    pthread_mutex_init(&kernels->lock, NULL);
    find_openmp(kernels);

    ggml_backend_dev_get_extra_bufts_t get_extra = NULL;
    *(void **)&get_extra = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                             "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *bufts = get_extra ? get_extra(device) : NULL;
    for (; bufts && *bufts && kernels->n < KERNELS_MAX; bufts++)
        add_kernel(kernels, *bufts);
    *ret = kernels;
    return 0;
}

/* ---- packing */

/* A tensor of the weight's type in the kernel's buffer, initialised by it. */
static void shadow_init(struct kernel *kernel, struct ggml_tensor *shadow, enum ggml_type type,
                        const int64_t ne[4], void *data)
{
    memset(shadow, 0, sizeof(*shadow));
    shadow->type = type;
    shadow->buffer = &kernel->buffer;
    shadow->data = data;
    size_t bytes = ggml_row_size(type, ne[0]);
    shadow->nb[0] = ggml_type_size(type);
    for (int i = 0; i < 4; i++) {
        shadow->ne[i] = ne[i];
        if (i > 0) {
            shadow->nb[i] = bytes;
            bytes *= (size_t)ne[i];
        }
    }
    if (kernel->buffer.iface.init_tensor)
        kernel->buffer.iface.init_tensor(&kernel->buffer, shadow);
}

static void pack_whole(const struct mz_kernels *kernels, struct ggml_tensor *shadow, const void *plain)
{
    int threads = 0;

    if (kernels->omp_set_num_threads) {
        threads = kernels->omp_get_max_threads();
        kernels->omp_set_num_threads(1);
    }
    shadow->buffer->iface.set_tensor(shadow->buffer, shadow, plain, 0, ggml_nbytes(shadow));
    if (kernels->omp_set_num_threads)
        kernels->omp_set_num_threads(threads);
}

static int pack_rows(const struct mz_kernels *kernels, struct kernel *kernel, const struct ggml_tensor *whole,
                     const void *plain, int64_t rows, void *place)
{
    struct ggml_tensor piece;
    int64_t ne[4] = {whole->ne[0], rows, 1, 1};

    shadow_init(kernel, &piece, whole->type, ne, place);
    if (piece.extra != whole->extra)
        return -EIO; /* another layout for this many rows */
    pack_whole(kernels, &piece, plain);
    return 0;
}

static uint64_t packed_bytes(const struct kernel *kernel, const struct ggml_tensor *shadow)
{
    return ggml_backend_buft_get_alloc_size(kernel->buffer.buft, shadow);
}

/* Same bytes as any quantised block may hold, whatever they mean. Exponents stay small, so that no kernel
 * trips over an infinity. */
static void fill(uint8_t *bytes, size_t n)
{
    uint32_t state = 12345;

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)((state >> 24) & 0x3f);
    }
}

/* Packs a tensor of 128 rows (or two of 64) whole and in groups, and compares. */
static bool same_in_groups(const struct mz_kernels *kernels, struct kernel *kernel, enum ggml_type type,
                           int dims, int64_t group)
{
    int64_t ne[4] = {512, dims == 3 ? 64 : 128, dims == 3 ? 2 : 1, 1};
    struct ggml_tensor whole;
    size_t row = ggml_row_size(type, 512), bytes = row * 128;
    uint8_t *plain = malloc(bytes), *at_once = calloc(1, bytes + 4096), *pieces = calloc(1, bytes + 4096);
    bool same = plain && at_once && pieces;

    if (same) {
        fill(plain, bytes);
        shadow_init(kernel, &whole, type, ne, at_once);
        same = whole.extra && packed_bytes(kernel, &whole) == bytes;
    }
    if (same)
        pack_whole(kernels, &whole, plain);
    for (int64_t done = 0; same && done < 128; done += group)
        same = pack_rows(kernels, kernel, &whole, plain + (size_t)done * row, group,
                         pieces + (size_t)done * row) == 0;
    same = same && memcmp(at_once, pieces, bytes) == 0;
    free(plain);
    free(at_once);
    free(pieces);
    return same;
}

/* Rows that may be packed alone, or -1. */
static int64_t group_rows(struct mz_kernels *kernels, struct kernel *kernel, enum ggml_type type, int dims)
{
    int which = dims == 3;

    pthread_mutex_lock(&kernels->lock);
    int16_t *known = &kernel->group_rows[type][which];
    if (*known == 0) {
        *known = -1;
        for (size_t i = 0; i < sizeof(group_rows_tried) / sizeof(*group_rows_tried) && *known < 0; i++)
            if (same_in_groups(kernels, kernel, type, dims, group_rows_tried[i]))
                *known = (int16_t)group_rows_tried[i];
    }
    int64_t rows = *known;
    pthread_mutex_unlock(&kernels->lock);
    return rows;
}

/* ---- forms */

/* Whether the kernel computes this operation when the weight lies in its buffer: ggml-cpu itself is asked,
 * with the other operand in host memory, where we have it. */
static bool kernel_takes(const struct mz_kernels *kernels, struct kernel *kernel,
                         const struct ggml_tensor *op)
{
    struct ggml_tensor node = *op, weight, other;

    if ((op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) || !op->src[0] || !op->src[1] ||
        op->src[0]->view_src || op->src[1]->type != GGML_TYPE_F32 || !ggml_is_contiguous(op->src[0]) ||
        ggml_n_dims(op->src[0]) != (op->op == GGML_OP_MUL_MAT ? 2 : 3))
        return false;
    shadow_init(kernel, &weight, op->src[0]->type, op->src[0]->ne, op->src[0]->data);
    other = *op->src[1];
    other.buffer = NULL;
    node.src[0] = &weight;
    node.src[1] = &other;
    return weight.extra && packed_bytes(kernel, &weight) == ggml_nbytes(&weight) &&
           ggml_backend_dev_supports_op(kernels->device, &node);
}

static struct mz_form *form_new(struct mz_kernels *kernels, struct kernel *kernel,
                                const struct ggml_tensor *weight)
{
    struct mz_form *form = mz_calloc(1, sizeof(*form));
    if (!form)
        return NULL;
    form->kernels = kernels;
    form->kernel = kernel;
    shadow_init(kernel, &form->shadow, weight->type, weight->ne, NULL);
    snprintf(form->shadow.name, sizeof(form->shadow.name), "%s", weight->name);
    int64_t rows = group_rows(kernels, kernel, weight->type, ggml_n_dims(weight) == 3 ? 3 : 2);
    if (rows > 0 && weight->ne[1] % rows == 0)
        form->group_bytes = (uint64_t)rows * weight->nb[1];
    else
        form->group_bytes = ggml_nbytes(weight);
    return form;
}

struct mz_form *mz_form_create(struct mz_engine *engine, const struct ggml_tensor *op)
{
    struct mz_kernels *kernels = kernels_of(engine);

    for (int i = 0; i < kernels->n; i++)
        if (kernel_takes(kernels, &kernels->kernel[i], op))
            return form_new(kernels, &kernels->kernel[i], op->src[0]);
    return NULL;
}

void mz_form_destroy(struct mz_form *form)
{
    free(form);
}

bool mz_form_fits(struct mz_engine *engine, const struct mz_form *form, const struct ggml_tensor *op)
{
    return kernel_takes(kernels_of(engine), form->kernel, op);
}

struct ggml_tensor *mz_form_shadow(struct mz_form *form)
{
    return &form->shadow;
}

void mz_form_place(struct mz_form *form, void *data)
{
    form->shadow.data = data;
}

uint64_t mz_form_group_bytes(const struct mz_form *form)
{
    return form->group_bytes;
}

const char *mz_form_name(const struct mz_form *form)
{
    return ggml_backend_buft_name(form->kernel->buffer.buft);
}

uint64_t mz_form_cut_bytes(struct mz_engine *engine, const struct mz_form *form)
{
    (void)engine;
    return form->group_bytes;
}

int mz_form_pack(struct mz_engine *engine, const struct mz_form *form, uint64_t offset, const void *plain,
                 uint64_t bytes, void *place)
{
    (void)engine;
    if (offset == 0 && bytes == ggml_nbytes(&form->shadow)) {
        struct ggml_tensor whole = form->shadow;
        whole.data = place;
        pack_whole(form->kernels, &whole, plain);
        return 0;
    }
    if (offset % form->group_bytes || bytes % form->group_bytes)
        return -EINVAL;
    return pack_rows(form->kernels, form->kernel, &form->shadow, plain, (int64_t)(bytes / form->shadow.nb[1]),
                     place);
}
