/* Which operation will read which weight.
 *
 * A weight may lie in a packed layout only if every operation that reads it has a kernel for that layout, and
 * packing happens when it is loaded. llama.cpp asks a device for each weight with the operation in question
 * before it loads it (llama-model-loader.cpp: weight_buft_supported). That is noted here, by name, type and
 * shape, because the tensor itself is another one later. Names may repeat with other shapes (two models in
 * one process); the same name, type and shape with another operation makes the weight plain. What is wrong
 * all the same is put right when a graph shows it (touch.c).
 *
 * lock protects the table; it is a leaf. The table only grows: a few hundred entries per model. */
#include <string.h>

#include "ggml/glue.h"
#include "os/fault.h"

struct lesson {
    char name[GGML_MAX_NAME];
    enum ggml_type type;
    int64_t ne[GGML_MAX_DIMS];
    bool plain; /* an operation without a packed kernel reads it */
    struct ggml_tensor op, src0, src1,
        src2; /* the operation, by shape: without data, buffers and sources of its own */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lesson **lessons; /* lock */
static uint32_t n_lessons, lessons_room;

static struct lesson *find(const struct ggml_tensor *weight)
{
    for (uint32_t i = n_lessons; i-- > 0;)
        if (lessons[i]->type == weight->type && strcmp(lessons[i]->name, weight->name) == 0 &&
            memcmp(lessons[i]->ne, weight->ne, sizeof(weight->ne)) == 0)
            return lessons[i];
    return NULL;
}

static struct lesson *add(void)
{
    struct lesson **more = mz_grow(lessons, n_lessons, &lessons_room, sizeof(*more));
    if (!more)
        return NULL;
    lessons = more;
    struct lesson *lesson = mz_calloc(1, sizeof(*lesson));
    if (lesson)
        lessons[n_lessons++] = lesson;
    return lesson;
}

/* A copy that refers to nothing of the program's. */
static void detach(struct ggml_tensor *to, const struct ggml_tensor *from)
{
    *to = *from;
    to->buffer = NULL;
    to->view_src = NULL;
    to->data = NULL;
    to->extra = NULL;
    memset(to->src, 0, sizeof(to->src));
}

static void link_sources(struct lesson *lesson, const struct ggml_tensor *op)
{
    detach(&lesson->op, op);
    detach(&lesson->src0, op->src[0]);
    lesson->op.src[0] = &lesson->src0;
    if (op->src[1]) {
        detach(&lesson->src1, op->src[1]);
        lesson->op.src[1] = &lesson->src1;
    }
    if (op->src[2]) {
        detach(&lesson->src2, op->src[2]);
        lesson->op.src[2] = &lesson->src2;
    }
}

/* The weight is the source without data that lies in a buffer of ours without memory. */
static const struct ggml_tensor *weight_of(const struct ggml_tensor *op)
{
    for (int i = 0; i < GGML_MAX_SRC && op->src[i]; i++) {
        const struct ggml_tensor *src = op->src[i];
        if (src->buffer && src->buffer->buft == &mz_buft && src->buffer->size == 0 && !src->data &&
            src->name[0])
            return src;
    }
    return NULL;
}

void mz_learn_op(const struct ggml_tensor *op)
{
    const struct ggml_tensor *weight = weight_of(op);

    if (!weight)
        return;
    bool packable = (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && weight == op->src[0];
    pthread_mutex_lock(&lock);
    struct lesson *lesson = find(weight);
    if (!lesson && (lesson = add())) {
        memcpy(lesson->name, weight->name, sizeof(lesson->name));
        lesson->type = weight->type;
        memcpy(lesson->ne, weight->ne, sizeof(lesson->ne));
        if (packable)
            link_sources(lesson, op);
        lesson->plain = !packable;
    } else if (lesson && (!packable || lesson->op.op != op->op)) {
        lesson->plain = true;
    }
    pthread_mutex_unlock(&lock);
}

struct mz_form *mz_learn_form(const struct ggml_tensor *weight)
{
    struct mz_engine *engine = mz_glue_engine();
    struct mz_form *form = NULL;

    pthread_mutex_lock(&lock);
    const struct lesson *lesson = find(weight);
    if (engine && lesson && !lesson->plain)
        form = mz_form_create(engine, &lesson->op);
    pthread_mutex_unlock(&lock);
    return form;
}
