/* The header of a GGUF file. Every length in it comes from the file, so each is held against what is left. No
 * state. */
#include "gguf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_ALIGNMENT "general.alignment"

enum { VALUE_UINT32 = 4, VALUE_STRING = 8, VALUE_ARRAY = 9, VALUE_TYPES = 13 };

/* Bytes of a value by type; 0: it has a length of its own. */
static const uint8_t value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct reader {
    const char *bytes;
    size_t at, end;
    int rc; /* sticky: 0, -ENODATA or -EBADMSG */
    const char *why;
};

static void bad(struct reader *r, const char *why)
{
    if (r->rc == 0) {
        r->rc = -EBADMSG;
        r->why = why;
    }
}

/* Moves on; false when there are fewer bytes. */
static bool skip(struct reader *r, uint64_t bytes)
{
    if (r->rc == 0 && bytes > r->end - r->at)
        r->rc = -ENODATA;
    if (r->rc)
        return false;
    r->at += (size_t)bytes;
    return true;
}

static uint32_t read32(struct reader *r)
{
    uint32_t value = 0;

    if (skip(r, sizeof(value)))
        memcpy(&value, r->bytes + r->at - sizeof(value), sizeof(value));
    return value;
}

static uint64_t read64(struct reader *r)
{
    uint64_t value = 0;

    if (skip(r, sizeof(value)))
        memcpy(&value, r->bytes + r->at - sizeof(value), sizeof(value));
    return value;
}

/* ggml's own bound. Without one a broken length would have us read the whole file as header. */
#define STRING_BYTES (UINT64_C(1) << 30)

static const char *read_string(struct reader *r, uint64_t *ret_bytes)
{
    uint64_t bytes = read64(r);

    if (r->rc == 0 && bytes > STRING_BYTES)
        bad(r, "a text is longer than a GiB");
    if (!skip(r, bytes)) {
        *ret_bytes = 0;
        return "";
    }
    *ret_bytes = bytes;
    return r->bytes + r->at - bytes;
}

static void skip_value(struct reader *r, uint32_t type)
{
    uint64_t n;

    if (type == VALUE_STRING) {
        (void)read_string(r, &n);
    } else if (type >= VALUE_TYPES || type == VALUE_ARRAY) {
        bad(r, "a value has an unknown type");
    } else {
        (void)skip(r, value_bytes[type]);
    }
}

static void skip_array(struct reader *r)
{
    uint32_t type = read32(r);
    uint64_t n = read64(r);

    if (r->rc)
        return;
    if (type >= VALUE_TYPES || type == VALUE_ARRAY || n > STRING_BYTES) {
        bad(r, "an array has an unknown type or too many elements");
        return;
    }
    if (type != VALUE_STRING) {
        (void)skip(r, n * value_bytes[type]);
        return;
    }
    for (uint64_t i = 0; i < n && r->rc == 0; i++)
        skip_value(r, type);
}

static void read_pair(struct reader *r, struct gguf *gguf)
{
    size_t begin = r->at;
    uint64_t key_bytes;
    const char *key = read_string(r, &key_bytes);
    uint32_t type = read32(r);
    size_t value = r->at;

    if (type == VALUE_ARRAY)
        skip_array(r);
    else
        skip_value(r, type);
    if (r->rc || key_bytes != strlen(KEY_ALIGNMENT) || memcmp(key, KEY_ALIGNMENT, key_bytes) != 0)
        return;
    if (type != VALUE_UINT32 || gguf->align_end) {
        bad(r, KEY_ALIGNMENT " is there twice or no number");
        return;
    }
    memcpy(&gguf->align, r->bytes + value, sizeof(gguf->align));
    gguf->align_begin = begin;
    gguf->align_end = r->at;
}

/* --------------------------------------------------------------------------------------------- tensors */

/* Elements and bytes of one block, by ggml_type; 0: not known here. From ggml's type table. */
static const struct {
    uint16_t elements, bytes;
} blocks[] = {
    [0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},    [3] = {32, 20},    [6] = {32, 22},
    [7] = {32, 24},    [8] = {32, 34},    [9] = {32, 36},    [10] = {256, 84},  [11] = {256, 110},
    [12] = {256, 144}, [13] = {256, 176}, [14] = {256, 210}, [15] = {256, 292}, [16] = {256, 66},
    [17] = {256, 74},  [18] = {256, 98},  [19] = {256, 50},  [20] = {32, 18},   [21] = {256, 110},
    [22] = {256, 82},  [23] = {256, 136}, [24] = {1, 1},     [25] = {1, 2},     [26] = {1, 4},
    [27] = {1, 8},     [28] = {1, 8},     [29] = {256, 56},  [30] = {1, 2},     [34] = {256, 54},
    [35] = {256, 66},  [39] = {32, 17},
};

/* Bytes of the data by type and shape, 0 when the type is not known; false when the shape cannot be. */
static bool bytes_by_type(const struct gguf_tensor *t, uint64_t *ret)
{
    uint64_t elements = 1;

    for (int i = 0; i < 4; i++) {
        if (t->ne[i] == 0 || t->ne[i] > (uint64_t)INT64_MAX / elements)
            return false;
        elements *= t->ne[i];
    }
    *ret = 0;
    if (t->type >= sizeof(blocks) / sizeof(*blocks) || blocks[t->type].elements == 0)
        return true;
    if (t->ne[0] % blocks[t->type].elements != 0)
        return false;
    uint64_t n = elements / blocks[t->type].elements;
    if (n > (uint64_t)INT64_MAX / blocks[t->type].bytes)
        return false;
    *ret = n * blocks[t->type].bytes;
    return true;
}

static void read_tensor(struct reader *r, const struct gguf *gguf, struct gguf_tensor *t)
{
    uint64_t name_bytes;

    t->name = read_string(r, &name_bytes);
    if (name_bytes > 63)
        bad(r, "a tensor's name is longer than 63 bytes");
    t->name_bytes = (uint32_t)name_bytes;
    t->n_dims = read32(r);
    if (t->n_dims > 4)
        bad(r, "a tensor has more than four dimensions");
    for (uint32_t i = 0; i < 4; i++)
        t->ne[i] = r->rc == 0 && i < t->n_dims ? read64(r) : 1;
    t->type = read32(r);
    t->offset = read64(r);
    if (r->rc == 0 && !bytes_by_type(t, &t->bytes))
        bad(r, "a tensor's shape cannot be");
    if (r->rc == 0 && t->offset % gguf->align != 0)
        bad(r, "a tensor lies off the alignment");
}

static uint64_t pad(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) / align * align;
}

/* ggml wants tensors one behind the other in the order of their records, so the next one's offset bounds each
 * of them; the last one ends with the file. */
static void check_places(struct reader *r, struct gguf *gguf, uint64_t file_bytes)
{
    uint64_t room = file_bytes > gguf->data_begin ? file_bytes - gguf->data_begin : 0;

    for (uint32_t i = 0; i < gguf->n_tensors && r->rc == 0; i++) {
        struct gguf_tensor *t = &gguf->tensors[i];
        bool last = i + 1 == gguf->n_tensors;
        uint64_t end = last ? room : gguf->tensors[i + 1].offset;
        if (end < t->offset || end > room || t->bytes > end - t->offset)
            bad(r, "a tensor reaches into the next one, or beyond the end of the file");
        else if (t->bytes == 0)
            t->bytes = end - t->offset;
        else if (!last && pad(t->bytes, gguf->align) != end - t->offset)
            bad(r, "tensors do not lie one behind the other");
    }
}

static void read_tensors(struct reader *r, struct gguf *gguf, uint64_t n, uint64_t file_bytes)
{
    /* A record has at least 24 bytes, so a number that cannot be is seen before memory is taken for it. */
    if (n > UINT32_MAX || n * 24 > r->end - r->at) {
        if (n > file_bytes / 24)
            bad(r, "more tensors than the file can hold");
        else if (r->rc == 0)
            r->rc = -ENODATA;
        return;
    }
    gguf->tensors = calloc((size_t)n + 1, sizeof(*gguf->tensors));
    if (!gguf->tensors) {
        r->rc = -ENOMEM;
        return;
    }
    gguf->n_tensors = (uint32_t)n;
    for (uint32_t i = 0; i < n && r->rc == 0; i++) {
        gguf->tensors[i].number = i;
        read_tensor(r, gguf, &gguf->tensors[i]);
    }
    gguf->data_begin = pad(r->at, gguf->align);
    check_places(r, gguf, file_bytes);
}

int gguf_parse(const char *bytes, size_t n_bytes, uint64_t file_bytes, struct gguf *ret, const char **ret_why)
{
    struct reader r = {.bytes = bytes, .end = n_bytes};
    struct gguf gguf = {.bytes = bytes, .align = 32};

    if (n_bytes >= 4 && memcmp(bytes, "GGUF", 4) != 0)
        bad(&r, "it does not begin with GGUF");
    (void)skip(&r, 4);
    gguf.version = read32(&r);
    if (r.rc == 0 && gguf.version != 2 && gguf.version != 3)
        r.rc = -EPROTONOSUPPORT;
    uint64_t n_tensors = read64(&r);
    gguf.n_kv = read64(&r);
    gguf.kv_begin = r.at;
    for (uint64_t i = 0; i < gguf.n_kv && r.rc == 0; i++)
        read_pair(&r, &gguf);
    gguf.kv_end = r.at;
    if (r.rc == 0 && (gguf.align == 0 || (gguf.align & (gguf.align - 1)) != 0 || gguf.align > GGUF_MAX_ALIGN))
        bad(&r, KEY_ALIGNMENT " is no power of two up to 65536");
    if (r.rc == 0)
        read_tensors(&r, &gguf, n_tensors, file_bytes);
    /* The whole file was there and it was not enough. */
    if (r.rc == -ENODATA && n_bytes == file_bytes)
        r.rc = -EBADMSG, r.why = "the file ends in the middle of its header";
    if (r.rc) {
        gguf_close(&gguf);
        *ret_why = r.why;
        return r.rc;
    }
    *ret = gguf;
    return 0;
}

void gguf_close(struct gguf *gguf)
{
    free(gguf->tensors);
    gguf->tensors = NULL;
    gguf->n_tensors = 0;
}

/* ------------------------------------------------------------------------------------------------- order */

struct place {
    uint32_t part; /* 0 in front of the layers, 1 a layer, 2 and 3 behind them */
    uint32_t layer, step;
};

/* The order of the graphs in llama.cpp's src/models: norms where they are used, then Q, K, V, output; in the
 * second half of a layer the router, up before gate, then down. The first text found in the name counts. */
static uint32_t step_of(const char *name)
{
    static const char *const steps[] = {
        "attn_norm",     "ssm_in",       "attn_qkv",       "attn_q_a",
        "attn_q_norm",   "attn_q",       "attn_kv_a",      "attn_k_norm",
        "attn_k",        "attn_kv_b",    "attn_v",         "attn_sinks",
        "attn_sub_norm", "attn_output",  "ssm_",           "post_attention_norm",
        "ffn_norm",      "ffn_gate_inp", "ffn_up_exps",    "ffn_gate_exps",
        "ffn_down_exps", "ffn_up_shexp", "ffn_gate_shexp", "ffn_down_shexp",
        "ffn_up",        "ffn_gate",     "ffn_sub_norm",   "ffn_down",
        "post_ffw_norm",
    };

    for (uint32_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
        if (strncmp(name, steps[i], strlen(steps[i])) == 0)
            return i;
    return UINT32_MAX;
}

static struct place place_of(const struct gguf_tensor *t)
{
    char name[64];
    unsigned layer;
    int at = 0;

    memcpy(name, t->name, t->name_bytes);
    name[t->name_bytes] = '\0';
    if (sscanf(name, "blk.%9u.%n", &layer, &at) == 1 && at > 0)
        return (struct place){1, layer, step_of(name + at)};
    if (strncmp(name, "output_norm", 11) == 0)
        return (struct place){2, 0, 0};
    if (strncmp(name, "output", 6) == 0)
        return (struct place){3, 0, 0};
    return (struct place){0, 0, 0};
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *s = a, *t = b;
    struct place x = place_of(s), y = place_of(t);

    if (x.part != y.part)
        return x.part < y.part ? -1 : 1;
    if (x.layer != y.layer)
        return x.layer < y.layer ? -1 : 1;
    if (x.step != y.step)
        return x.step < y.step ? -1 : 1;
    return (s->number > t->number) - (s->number < t->number);
}

void gguf_sort(struct gguf *gguf)
{
    if (gguf->n_tensors)
        qsort(gguf->tensors, gguf->n_tensors, sizeof(*gguf->tensors), by_place);
}

/* --------------------------------------------------------------------------------------------- writing */

struct writer {
    char *bytes;
    size_t at;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    memcpy(w->bytes + w->at, bytes, n);
    w->at += n;
}

static void put32(struct writer *w, uint32_t value)
{
    put(w, &value, sizeof(value));
}

static void put64(struct writer *w, uint64_t value)
{
    put(w, &value, sizeof(value));
}

static void put_alignment(struct writer *w, uint32_t align)
{
    put64(w, strlen(KEY_ALIGNMENT));
    put(w, KEY_ALIGNMENT, strlen(KEY_ALIGNMENT));
    put32(w, VALUE_UINT32);
    put32(w, align);
}

static void put_tensors(struct writer *w, struct gguf *gguf, uint32_t align)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < gguf->n_tensors; i++) {
        struct gguf_tensor *t = &gguf->tensors[i];
        t->offset = offset;
        offset += pad(t->bytes, align);
        put64(w, t->name_bytes);
        put(w, t->name, t->name_bytes);
        put32(w, t->n_dims);
        put(w, t->ne, t->n_dims * sizeof(t->ne[0]));
        put32(w, t->type);
        put64(w, t->offset);
    }
}

int gguf_header(struct gguf *gguf, uint32_t align, char **ret, size_t *ret_bytes)
{
    bool has = gguf->align_end != 0;
    size_t kv = gguf->kv_end - gguf->kv_begin;
    size_t most = 24 + kv + 64 + (size_t)gguf->n_tensors * (8 + 63 + 4 + 32 + 4 + 8) + align;
    struct writer w = {.bytes = calloc(1, most)};

    if (!w.bytes)
        return -ENOMEM;
    put(&w, "GGUF", 4);
    put32(&w, gguf->version);
    put64(&w, gguf->n_tensors);
    put64(&w, gguf->n_kv + (has ? 0 : 1));
    if (has) {
        put(&w, gguf->bytes + gguf->kv_begin, gguf->align_begin - gguf->kv_begin);
        put_alignment(&w, align);
        put(&w, gguf->bytes + gguf->align_end, gguf->kv_end - gguf->align_end);
    } else {
        put(&w, gguf->bytes + gguf->kv_begin, kv);
        put_alignment(&w, align);
    }
    put_tensors(&w, gguf, align);
    *ret_bytes = (size_t)pad(w.at, align);
    *ret = w.bytes;
    return 0;
}
