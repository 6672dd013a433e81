/* Made-up attention operations, their fp64 results, and the table of shapes. */
#include "attn_fixture.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *get(uint64_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, 128, bytes + 128)) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memset(memory, 0, bytes + 128);
    return memory;
}

/* ---- numbers */

static double half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);

    return half & 0x8000 ? -value : value;
}

/* A table, made by the first use on the main thread: the references take it a hundred million times. */
double half_to_double(uint16_t half)
{
    static double table[65536];
    static bool made;

    for (unsigned i = 0; i < 65536 && !made; i++)
        table[i] = half_value((uint16_t)i);
    made = true;
    return table[half];
}

uint16_t half_from_double(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    long scaled;

    value = fabs(value);
    if (!(value < 65520))
        return (uint16_t)(sign | 0x7c00);
    if (value < 0x1p-14)
        return (uint16_t)(sign | lrint(ldexp(value, 24)));
    (void)frexp(value, &exponent);
    scaled = lrint(ldexp(value, 11 - exponent)); /* 1024..2048 */
    return (uint16_t)(sign | (((exponent + 13) << 10) + scaled));
}

/* xorshift64*: the same on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

/* Nearly normal: the sum of four. */
static double next_number(uint64_t *state)
{
    double sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (double)(next_random(state) >> 11) * 0x1p-53 - 0.5;
    return sum * 1.7;
}

/* ---- contents */

static bool masked_at(const struct attn_case *c, uint32_t row, uint32_t token, uint64_t *state)
{
    uint32_t pad = c->kv > 40 ? 17 : 0, last = c->kv - pad; /* tokens that exist */
    int64_t own = (int64_t)last - c->rows + row;

    switch (c->mask) {
    case MASK_CAUSAL:
        return token >= last || (int64_t)token > own;
    case MASK_WINDOW:
        return token >= last || (int64_t)token > own || (int64_t)token <= own - 100;
    case MASK_RANDOM:
        return next_random(state) % 3 == 0;
    case MASK_ISLANDS:
        return !((token >= c->kv / 5 && token < c->kv / 4) || (token > c->kv / 2 && token < c->kv / 2 + 70));
    case MASK_NOTHING:
        return row == 0;
    case MASK_ALL:
        return true;
    default:
        return false;
    }
}

static void fill_mask(struct attn_fixture *f, uint64_t *state)
{
    const struct attn_case *c = &f->c;
    uint32_t heads = c->mask_heads ? c->mask_heads : 1, seqs = c->mask_seqs ? c->mask_seqs : 1;
    uint64_t row_bytes = 2 * (uint64_t)c->kv, head_bytes = row_bytes * c->rows,
             seq_bytes = head_bytes * heads;
    bool finite = c->mask == MASK_RANDOM || c->max_bias > 0;

    if (c->mask == MASK_NONE)
        return;
    f->mask = get(seq_bytes * seqs);
    for (uint64_t i = 0; i < (uint64_t)seqs * heads * c->rows * c->kv; i++) {
        uint32_t token = (uint32_t)(i % c->kv), row = (uint32_t)(i / c->kv % c->rows);
        double value = finite ? -4.0 * fabs(next_number(state)) : 0;

        f->mask[i] = half_from_double(masked_at(c, row, token, state) ? -INFINITY : value);
    }
    f->a.mask = f->mask;
    f->a.mask_row_bytes = row_bytes;
    f->a.mask_head_bytes = head_bytes;
    f->a.mask_seq_bytes = seq_bytes;
    f->a.mask_heads = heads;
    f->a.mask_seqs = seqs;
}

static double mask_value(const struct attn_fixture *f, uint32_t seq, uint32_t head, uint32_t row,
                         uint32_t token)
{
    const struct mz_attn *a = &f->a;

    if (!a->mask)
        return 0;
    return half_to_double(f->mask[(seq % a->mask_seqs * a->mask_seq_bytes +
                                   head % a->mask_heads * a->mask_head_bytes + row * a->mask_row_bytes) /
                                      2 +
                                  token]);
}

/* ---- K and V */

static uint64_t row_size(uint32_t n, enum mz_attn_type type)
{
    return type == MZ_ATTN_Q8_0 ? n / 32 * 34 : 2 * (uint64_t)n;
}

/* The 16 bits that decide about element d: itself, or the scale of its block. */
static uint16_t *half_at(uint16_t *row, uint32_t d, enum mz_attn_type type)
{
    return type == MZ_ATTN_Q8_0 ? row + d / 32 * 17 : row + d;
}

static double element(const uint16_t *row, uint32_t d, enum mz_attn_type type)
{
    double half = half_to_double(*half_at((uint16_t *)row, d, type));

    return type == MZ_ATTN_Q8_0 ? half * ((const int8_t *)row)[d / 32 * 34 + 2 + d % 32] : half;
}

static void fill_row(uint16_t *row, uint32_t n, enum mz_attn_type type, double size, uint64_t *state)
{
    for (uint32_t d = 0; d < n; d++) {
        if (type == MZ_ATTN_F16)
            row[d] = half_from_double(next_number(state) * size);
        else
            ((int8_t *)row)[d / 32 * 34 + 2 + d % 32] = (int8_t)(next_random(state) % 255 - 127);
        if (type == MZ_ATTN_Q8_0 && d % 32 == 0)
            *half_at(row, d, type) = half_from_double(next_number(state) / 64);
    }
}

/* K or V: rows 16 bytes longer than needed, so that no stride is the natural one. Unused space is NaN. */
static uint16_t *fill_cache(const struct attn_case *c, uint32_t n, enum mz_attn_type type, double size,
                            uint64_t *row_bytes, uint64_t *head_bytes, const void ***chunks, uint64_t *state)
{
    uint64_t tokens = c->kv ? c->kv : 1, n_chunks = (c->kv + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK, seq_bytes;
    uint64_t row = row_size(n, type);
    uint16_t *cache;

    *head_bytes = c->head_major ? tokens * (row + 16) : row;
    *row_bytes = c->head_major ? row + 16 : row * c->kv_heads + 16;
    seq_bytes = c->head_major ? *head_bytes * c->kv_heads : *row_bytes * tokens;
    cache = get(seq_bytes * c->seqs);
    memset(cache, 0xff, seq_bytes * c->seqs);
    *chunks = get((n_chunks * c->seqs + 1) * sizeof(void *));
    for (uint64_t i = 0; i < n_chunks * c->seqs; i++)
        (*chunks)[i] = (char *)cache + i / n_chunks * seq_bytes + i % n_chunks * MZ_ATTN_CHUNK * *row_bytes;
    for (uint64_t i = 0; i < (uint64_t)c->seqs * c->kv * c->kv_heads; i++) {
        uint64_t head = i % c->kv_heads, token = i / c->kv_heads % c->kv, seq = i / c->kv_heads / c->kv;

        fill_row(cache + (seq * seq_bytes + token * *row_bytes + head * *head_bytes) / 2, n, type, size,
                 state);
    }
    return cache;
}

static uint16_t *cache_row(const void **chunks, uint64_t n_chunks, uint32_t seq, uint32_t head,
                           uint32_t token, uint64_t row_bytes, uint64_t head_bytes)
{
    return (uint16_t *)((char *)chunks[seq * n_chunks + token / MZ_ATTN_CHUNK] +
                        token % MZ_ATTN_CHUNK * row_bytes + head * head_bytes);
}

static uint16_t *k_at(const struct attn_fixture *f, uint32_t seq, uint32_t head, uint32_t token)
{
    return cache_row(f->k_chunks, (f->c.kv + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK, seq, head, token,
                     f->a.k_row_bytes, f->a.k_head_bytes);
}

static uint16_t *v_at(const struct attn_fixture *f, uint32_t seq, uint32_t head, uint32_t token)
{
    return cache_row(f->v_chunks, (f->c.kv + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK, seq, head, token,
                     f->a.v_row_bytes, f->a.v_head_bytes);
}

/* Where no row of any head of the group looks, K and V become NaN or infinite. */
static void poison(struct attn_fixture *f)
{
    uint32_t group = f->c.heads / f->c.kv_heads;

    for (uint32_t seq = 0; seq < f->c.seqs; seq++)
        for (uint32_t head = 0; head < f->c.heads; head += group)
            for (uint32_t token = 0; token < f->c.kv; token++) {
                bool seen = false;

                for (uint32_t h = head; h < head + group; h++)
                    for (uint32_t row = 0; row < f->c.rows; row++)
                        seen |= mask_value(f, seq, h, row, token) > -INFINITY;
                if (!seen) {
                    uint16_t *k = k_at(f, seq, head / group, token), *v = v_at(f, seq, head / group, token);

                    *half_at(k, token % f->c.dk, f->c.k_type) = token % 2 ? 0x7e00 : 0xfc00;
                    *half_at(v, token % f->c.dv, f->c.v_type) = token % 2 ? 0x7c00 : 0xfe00;
                }
            }
}

/* ---- fp64 */

static double slope_of(const struct attn_case *c, uint32_t head)
{
    uint32_t n = 1;

    while (n * 2 <= c->heads)
        n *= 2;
    if (!(c->max_bias > 0))
        return 1;
    if (head < n)
        return pow(2, -(double)c->max_bias / n * (head + 1));
    return pow(2, -(double)c->max_bias / 2 / n * (2 * (head - n) + 1));
}

static double rounded(double value)
{
    return half_to_double(half_from_double(value));
}

/* `halves`: of a query in fp16. */
static double logit(const struct attn_fixture *f, uint32_t seq, uint32_t head, uint32_t row, uint32_t token,
                    bool halves)
{
    const struct attn_case *c = &f->c;
    const float *q = f->q + ((uint64_t)(seq * c->rows + row) * c->heads + head) * c->dk;
    const uint16_t *k = k_at(f, seq, head / (c->heads / c->kv_heads), token);
    double sum = 0, mask = mask_value(f, seq, head, row, token) * slope_of(c, head);

    if (mask == -INFINITY)
        return mask;
    for (uint32_t d = 0; d < c->dk; d++)
        sum += (halves ? rounded((double)q[d]) : (double)q[d]) * element(k, d, c->k_type);
    sum *= (double)f->a.scale;
    if (c->softcap != 0)
        sum = (double)c->softcap * tanh(sum / (double)c->softcap);
    return sum + mask;
}

static void expect_row(struct attn_fixture *f, uint32_t seq, uint32_t head, uint32_t row, double *logits)
{
    const struct attn_case *c = &f->c;
    double *dst = f->expected + ((uint64_t)(seq * c->rows + row) * c->heads + head) * c->dv;
    double m = c->sinks ? (double)f->sinks[head] : -INFINITY, sum;

    for (uint32_t t = 0; t < c->kv; t++) {
        logits[t] = logit(f, seq, head, row, t, false);
        m = fmax(m, logits[t]);
    }
    if (m == -INFINITY)
        return;
    sum = c->sinks ? exp((double)f->sinks[head] - m) : 0;
    for (uint32_t t = 0; t < c->kv; t++) {
        const uint16_t *v = v_at(f, seq, head / (c->heads / c->kv_heads), t);
        double w = exp(logits[t] - m);

        sum += w;
        for (uint32_t d = 0; d < c->dv && w > 0; d++)
            dst[d] += w * element(v, d, c->v_type);
    }
    for (uint32_t d = 0; d < c->dv; d++) {
        dst[d] /= sum;
        f->scale = fmax(f->scale, fabs(dst[d]));
    }
}

static void expect(struct attn_fixture *f)
{
    double *logits = get(sizeof(double) * (f->c.kv + 1));

    for (uint32_t seq = 0; seq < f->c.seqs; seq++)
        for (uint32_t row = 0; row < f->c.rows; row++)
            for (uint32_t head = 0; head < f->c.heads; head++)
                expect_row(f, seq, head, row, logits);
    free(logits);
}

/* ---- what ggml-cpu rounds, one query row after the other: queries, and the sum of values after every token
 */

static void round_row(const struct attn_fixture *f, uint32_t seq, uint32_t head, uint32_t row, double *dst)
{
    const struct attn_case *c = &f->c;
    double m = -INFINITY, sum = 0, sink = c->sinks ? (double)f->sinks[head] : -INFINITY;

    memset(dst, 0, c->dv * sizeof(*dst));
    for (uint32_t t = 0; t < c->kv; t++) {
        const uint16_t *v = v_at(f, seq, head / (c->heads / c->kv_heads), t);
        double x = logit(f, seq, head, row, t, c->k_type == MZ_ATTN_F16), old = 1, w;

        if (x == -INFINITY)
            continue;
        if (x > m) {
            old = exp(m - x);
            m = x;
        }
        w = exp(x - m);
        sum = sum * old + w;
        for (uint32_t d = 0; d < c->dv; d++) {
            if (c->v_type == MZ_ATTN_F16)
                dst[d] = rounded((old < 1 ? rounded(dst[d] * old) : dst[d]) + w * element(v, d, c->v_type));
            else
                dst[d] = dst[d] * old + w * element(v, d, c->v_type);
        }
    }
    sum += exp(sink - m);
    for (uint32_t d = 0; d < c->dv && sum > 0 && m > -INFINITY; d++)
        dst[d] /= sum;
}

double attn_fixture_ggml_error(const struct attn_fixture *f)
{
    const struct attn_case *c = &f->c;
    double *dst = get(c->dv * sizeof(*dst)), worst = 0;

    for (uint32_t i = 0; i < c->seqs * c->rows * c->heads; i++) {
        const double *expected = f->expected + (uint64_t)i * c->dv;

        round_row(f, i / c->heads / c->rows, i % c->heads, i / c->heads % c->rows, dst);
        for (uint32_t d = 0; d < c->dv; d++)
            if (!(fabs(dst[d] - expected[d]) <= worst))
                worst = isnan(dst[d]) ? INFINITY : fabs(dst[d] - expected[d]);
    }
    free(dst);
    return f->scale > 0 ? worst / f->scale : worst;
}

/* ---- bounds */

/* fp32 throughout. Measured: 4e-6 at most, where sums of 5000 weights are added one by one; what fp16 loses
 * in K and V is in the reference too. */
#define FP32_ERROR_MAX 1e-5

/* A query and the weights rounded to fp16, up to 2^-11 each. */
#define HALVES_ERROR_MAX 1e-3
#define HALVES_ROWS_MAX  32 /* so many rows of a group at most */
#define FLOOR            1e-6

static bool takes_halves(const struct attn_case *c, enum mz_attn_isa isa)
{
    if (isa == MZ_ATTN_ISA_BEST)
        isa = mz_attn_isa_best();
    return isa == MZ_ATTN_ISA_NEON_FP16 && c->rows * c->heads / c->kv_heads <= HALVES_ROWS_MAX &&
           c->dk % 8 == 0 && c->dv % 8 == 0 && (c->k_type == MZ_ATTN_F16 || c->v_type == MZ_ATTN_F16);
}

double attn_fixture_error_max(const struct attn_fixture *f, enum mz_attn_isa isa)
{
    if (!takes_halves(&f->c, isa))
        return FP32_ERROR_MAX;
    return fmin(fmax(attn_fixture_ggml_error(f) + FLOOR, FP32_ERROR_MAX), HALVES_ERROR_MAX);
}

/* ---- life */

static double of_size(float size)
{
    return size != 0 ? (double)size : 1;
}

static void fill_queries(struct attn_fixture *f, uint64_t *state)
{
    const struct attn_case *c = &f->c;
    uint64_t n = (uint64_t)c->seqs * c->rows * c->heads;

    f->q = get(n * c->dk * sizeof(float));
    f->dst = get(n * c->dv * sizeof(float));
    f->expected = get(n * c->dv * sizeof(double));
    for (uint64_t i = 0; i < n * c->dk; i++)
        f->q[i] = (float)(2 * next_number(state) * of_size(c->q_size));
    f->a.q = f->q;
    f->a.dst = f->dst;
    f->a.q_head_bytes = c->dk * sizeof(float);
    f->a.q_row_bytes = f->a.q_head_bytes * c->heads;
    f->a.q_seq_bytes = f->a.q_row_bytes * c->rows;
    if (c->sinks) {
        f->sinks = get(c->heads * sizeof(float));
        for (uint32_t i = 0; i < c->heads; i++)
            f->sinks[i] = (float)(3 * next_number(state));
        f->a.sinks = f->sinks;
    }
}

struct attn_fixture *attn_fixture_create(const struct attn_case *c)
{
    struct attn_fixture *f = get(sizeof(*f));
    uint64_t state = 88172645463325252u + c->kv * 7919u + c->rows;

    f->c = *c;
    f->a = (struct mz_attn){.run = 1,
                            .n_rows = c->rows,
                            .n_heads = c->heads,
                            .n_kv_heads = c->kv_heads,
                            .n_seq = c->seqs,
                            .n_kv = c->kv,
                            .dk = c->dk,
                            .dv = c->dv,
                            .k_type = c->k_type,
                            .v_type = c->v_type,
                            .scale = (float)(1 / sqrt(c->dk) / of_size(c->q_size) / of_size(c->k_size)),
                            .max_bias = c->max_bias,
                            .logit_softcap = c->softcap};
    fill_queries(f, &state);
    f->k = fill_cache(c, c->dk, c->k_type, of_size(c->k_size), &f->a.k_row_bytes, &f->a.k_head_bytes,
                      &f->k_chunks, &state);
    f->v = fill_cache(c, c->dv, c->v_type, of_size(c->v_size), &f->a.v_row_bytes, &f->a.v_head_bytes,
                      &f->v_chunks, &state);
    f->a.k = f->k_chunks;
    f->a.v = f->v_chunks;
    fill_mask(f, &state);
    if (c->poison)
        poison(f);
    if (!c->unchecked)
        expect(f);
    return f;
}

void attn_fixture_destroy(struct attn_fixture *f)
{
    if (!f)
        return;
    free(f->q);
    free(f->dst);
    free(f->sinks);
    free(f->k);
    free(f->v);
    free(f->mask);
    free(f->k_chunks);
    free(f->v_chunks);
    free(f->expected);
    free(f);
}

/* ---- running */

struct team {
    const struct mz_attn *a;
    void *ws;
    int nth;
    pthread_barrier_t barrier;
};

struct member {
    struct team *team;
    int ith;
    pthread_t thread;
};

static void *member_run(void *arg)
{
    struct member *m = arg;

    mz_attn_partial(m->team->a, m->team->ws, m->ith, m->team->nth);
    pthread_barrier_wait(&m->team->barrier);
    mz_attn_merge(m->team->a, m->team->ws, m->ith, m->team->nth);
    return NULL;
}

int attn_fixture_run(struct attn_fixture *f, int nth)
{
    struct team team = {.a = &f->a, .nth = nth};
    struct member members[16];
    int result = mz_attn_check(&f->a);

    if (result)
        return result;
    team.ws = get(mz_attn_workspace(&f->a, nth));
    pthread_barrier_init(&team.barrier, NULL, (unsigned)nth);
    memset(f->dst, 0x7f, sizeof(float) * f->c.seqs * f->c.rows * f->c.heads * f->c.dv);
    for (int i = 0; i < nth; i++) {
        members[i] = (struct member){.team = &team, .ith = i};
        if (i && pthread_create(&members[i].thread, NULL, member_run, &members[i])) {
            fprintf(stderr, "no thread\n");
            exit(1);
        }
    }
    member_run(&members[0]);
    for (int i = 1; i < nth; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&team.barrier);
    result = mz_attn_status(&f->a, team.ws);
    free(team.ws);
    return result;
}

double attn_fixture_error(const struct attn_fixture *f)
{
    double worst = 0;

    for (uint64_t i = 0; i < (uint64_t)f->c.seqs * f->c.rows * f->c.heads * f->c.dv; i++) {
        double error = fabs((double)f->dst[i] - f->expected[i]);

        if (!(error <= worst))
            worst = isnan(error) ? INFINITY : error;
    }
    return f->scale > 0 ? worst / f->scale : worst;
}

const char *attn_case_text(const struct attn_case *c)
{
    static const char *const masks[MASK_KINDS] = {"none",   "zero",    "causal",  "window",
                                                  "random", "islands", "nothing", "all"};
    static char text[200];

    snprintf(text, sizeof(text),
             "rows %u heads %u/%u seqs %u kv %u d %u/%u%s%s mask %s%s%s%s softcap %g alibi %g sizes %g %g %g",
             c->rows, c->heads, c->kv_heads, c->seqs, c->kv, c->dk, c->dv, c->k_type ? " K q8_0" : "",
             c->v_type ? " V q8_0" : "", masks[c->mask], c->sinks ? " sinks" : "",
             c->head_major ? " head-major" : "", c->poison ? " poison" : "", (double)c->softcap,
             (double)c->max_bias, of_size(c->q_size), of_size(c->k_size), of_size(c->v_size));
    return text;
}

/* ---- table */

#define SHAPE(r, h, hkv, n, d) .rows = r, .heads = h, .kv_heads = hkv, .seqs = 1, .kv = n, .dk = d, .dv = d

#define Q8 .k_type = MZ_ATTN_Q8_0, .v_type = MZ_ATTN_Q8_0

const struct attn_case attn_cases[] = {
    /* rows of a group around every border of the blocking */
    {SHAPE(1, 2, 2, 257, 64), .mask = MASK_CAUSAL},
    {SHAPE(1, 4, 2, 300, 128), .mask = MASK_CAUSAL},
    {SHAPE(1, 9, 3, 600, 64), .mask = MASK_CAUSAL},
    {SHAPE(1, 8, 1, 600, 256), .mask = MASK_CAUSAL},
    {SHAPE(3, 16, 8, 520, 128), .mask = MASK_CAUSAL},
    {SHAPE(8, 16, 8, 777, 128), .mask = MASK_CAUSAL},
    {SHAPE(5, 9, 3, 700, 64), .mask = MASK_CAUSAL},
    {SHAPE(17, 4, 2, 300, 80), .mask = MASK_CAUSAL},
    {SHAPE(33, 4, 4, 400, 96), .mask = MASK_CAUSAL},
    {SHAPE(100, 4, 1, 900, 64), .mask = MASK_CAUSAL},
    /* tokens around the borders of chunk and tile */
    {SHAPE(1, 4, 2, 1, 64)},
    {SHAPE(8, 4, 2, 1, 64)},
    {SHAPE(1, 4, 2, 31, 64)},
    {SHAPE(8, 4, 2, 33, 64)},
    {SHAPE(1, 4, 2, 255, 128)},
    {SHAPE(8, 4, 2, 255, 128), .mask = MASK_ZERO},
    {SHAPE(1, 4, 2, 256, 128), .mask = MASK_ZERO},
    {SHAPE(8, 4, 2, 256, 128)},
    {SHAPE(1, 4, 2, 257, 128)},
    {SHAPE(8, 4, 2, 257, 128)},
    {SHAPE(4, 4, 2, 0, 64), .sinks = true},
    {SHAPE(0, 4, 2, 100, 64)},
    /* many ranges, and ranges of several chunks */
    {SHAPE(1, 4, 2, 5000, 64), .mask = MASK_CAUSAL},
    {SHAPE(40, 4, 2, 5000, 64), .mask = MASK_CAUSAL},
    /* masks */
    {SHAPE(1, 4, 2, 600, 64), .mask = MASK_WINDOW, .poison = true},
    {SHAPE(20, 4, 2, 600, 64), .mask = MASK_WINDOW, .poison = true},
    {SHAPE(1, 4, 2, 600, 64), .mask = MASK_RANDOM, .poison = true},
    {SHAPE(2, 4, 4, 600, 64), .mask = MASK_RANDOM, .poison = true},
    {SHAPE(20, 4, 2, 600, 64), .mask = MASK_RANDOM},
    {SHAPE(1, 4, 2, 1300, 128), .mask = MASK_ISLANDS, .poison = true},
    {SHAPE(9, 4, 2, 1300, 128), .mask = MASK_ISLANDS, .poison = true},
    {SHAPE(4, 4, 2, 300, 64), .mask = MASK_NOTHING},
    {SHAPE(30, 4, 2, 300, 64), .mask = MASK_NOTHING},
    {SHAPE(1, 4, 2, 300, 64), .mask = MASK_ALL, .poison = true},
    {SHAPE(30, 4, 2, 300, 64), .mask = MASK_ALL, .poison = true},
    {SHAPE(30, 4, 2, 300, 64), .mask = MASK_ALL, .poison = true, .sinks = true},
    {SHAPE(1, 4, 2, 600, 64), .mask = MASK_CAUSAL, .poison = true},
    {SHAPE(8, 16, 8, 600, 128), .mask = MASK_CAUSAL, .poison = true},
    {SHAPE(8, 8, 2, 300, 64), .mask = MASK_RANDOM, .mask_heads = 8},
    {SHAPE(1, 8, 2, 300, 64), .mask = MASK_RANDOM, .mask_heads = 2, .poison = true},
    /* what changes a logit */
    {SHAPE(1, 4, 2, 300, 128), .mask = MASK_CAUSAL, .softcap = 10},
    {SHAPE(12, 4, 2, 300, 128), .mask = MASK_CAUSAL, .softcap = 10},
    {SHAPE(12, 4, 2, 300, 128), .softcap = 1},
    {SHAPE(1, 12, 4, 300, 64), .mask = MASK_CAUSAL, .max_bias = 8},
    {SHAPE(7, 12, 4, 300, 64), .mask = MASK_CAUSAL, .max_bias = 8, .poison = true},
    {SHAPE(1, 4, 2, 300, 64), .mask = MASK_CAUSAL, .sinks = true},
    {SHAPE(50, 4, 2, 300, 64), .mask = MASK_CAUSAL, .sinks = true},
    {SHAPE(7, 12, 4, 300, 64), .mask = MASK_CAUSAL, .sinks = true, .max_bias = 4, .softcap = 5},
    /* numbers near and beyond the ends of fp16 */
    {SHAPE(1, 2, 2, 300, 128), .q_size = 1e6f},
    {SHAPE(1, 8, 2, 300, 128), .q_size = 1e30f, .k_size = 16000, .v_size = 16000},
    {SHAPE(1, 4, 2, 300, 128), .q_size = 1e-6f, .k_size = 1e-3f, .v_size = 16000},
    {SHAPE(1, 4, 2, 257, 64), .q_size = 1e-30f, .mask = MASK_CAUSAL, .softcap = 10},
    {SHAPE(8, 4, 2, 257, 64), .q_size = 1e6f, .k_size = 16000, .mask = MASK_CAUSAL},
    /* head sizes that are no whole vectors, or differ */
    {SHAPE(1, 4, 2, 300, 72), .mask = MASK_CAUSAL},
    {SHAPE(1, 4, 2, 300, 40), .mask = MASK_CAUSAL},
    {SHAPE(1, 4, 2, 300, 1)},
    {SHAPE(75, 4, 4, 113, 65), .mask = MASK_CAUSAL, .max_bias = 8, .sinks = true},
    {.rows = 75, .heads = 4, .kv_heads = 4, .seqs = 1, .kv = 113, .dk = 65, .dv = 67, .mask = MASK_CAUSAL},
    {.rows = 2, .heads = 4, .kv_heads = 4, .seqs = 1, .kv = 256, .dk = 72, .dv = 64, .mask = MASK_CAUSAL},
    {.rows = 2,
     .heads = 4,
     .kv_heads = 4,
     .seqs = 1,
     .kv = 256,
     .dk = 64,
     .dv = 72,
     .mask = MASK_CAUSAL,
     .poison = true},
    {.rows = 1, .heads = 20, .kv_heads = 1, .seqs = 1, .kv = 300, .dk = 576, .dv = 512, .mask = MASK_CAUSAL},
    {.rows = 1, .heads = 4, .kv_heads = 4, .seqs = 1, .kv = 300, .dk = 192, .dv = 128, .mask = MASK_CAUSAL},
    /* K and V in blocks of 8 bit */
    {SHAPE(1, 2, 2, 257, 64), .mask = MASK_CAUSAL, Q8},
    {SHAPE(1, 16, 8, 520, 128), .mask = MASK_CAUSAL, Q8},
    {SHAPE(1, 9, 3, 600, 64), .mask = MASK_CAUSAL, Q8},
    {SHAPE(1, 8, 1, 600, 256), .mask = MASK_CAUSAL, Q8},
    {SHAPE(4, 16, 8, 300, 128), .mask = MASK_CAUSAL, Q8},
    {SHAPE(8, 16, 8, 777, 128), .mask = MASK_CAUSAL, Q8},
    {SHAPE(32, 4, 2, 600, 64), .mask = MASK_WINDOW, Q8, .poison = true},
    {SHAPE(33, 4, 4, 400, 96), .mask = MASK_RANDOM, Q8, .poison = true},
    {SHAPE(1, 4, 2, 600, 64), .mask = MASK_RANDOM, Q8, .poison = true},
    {SHAPE(1, 4, 2, 1300, 128), .mask = MASK_ISLANDS, Q8, .poison = true},
    {SHAPE(7, 12, 4, 300, 64), .mask = MASK_CAUSAL, Q8, .sinks = true, .max_bias = 4, .softcap = 5},
    {SHAPE(8, 4, 2, 300, 64), .mask = MASK_CAUSAL, .k_type = MZ_ATTN_Q8_0},
    {SHAPE(1, 4, 2, 300, 64), .mask = MASK_CAUSAL, .v_type = MZ_ATTN_Q8_0},
    {SHAPE(20, 4, 2, 600, 64), .mask = MASK_CAUSAL, Q8, .head_major = true},
    /* sequences and layouts */
    {.rows = 1,
     .heads = 4,
     .kv_heads = 2,
     .seqs = 3,
     .kv = 600,
     .dk = 64,
     .dv = 64,
     .mask = MASK_RANDOM,
     .mask_seqs = 3},
    {.rows = 20,
     .heads = 4,
     .kv_heads = 2,
     .seqs = 3,
     .kv = 300,
     .dk = 64,
     .dv = 64,
     .mask = MASK_CAUSAL,
     .poison = true},
    {SHAPE(1, 4, 2, 600, 64), .mask = MASK_CAUSAL, .head_major = true},
    {SHAPE(20, 4, 2, 600, 64), .mask = MASK_CAUSAL, .head_major = true},
};

const unsigned attn_cases_count = sizeof(attn_cases) / sizeof(attn_cases[0]);
