/* The plan: the decision tables of the paper's Figure 7, and properties over random models, times and
 * histories: bytes freed are as asked, nothing happens twice or out of order, the two paths stay balanced,
 * every stage is reached, and at the end nothing is left in memory. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan.h"

enum { MAX_UNITS = 4096 };
enum place { MEMORY, STACK, STORE };

/* A model in backward order, and where its units are. */
struct model {
    struct mz_plan_unit units[MAX_UNITS];
    enum place place[MAX_UNITS];
    uint32_t n, layers;
    enum mz_rule rule;
    bool stack_allowed, without_times;

    /* What mz_plan_make() sees: candidates, and which unit each is. */
    struct mz_plan_unit candidates[MAX_UNITS];
    uint32_t from[MAX_UNITS];
    struct mz_plan_input in;
    struct mz_plan_step steps[MAX_UNITS];
    uint32_t n_steps;
    uint64_t freed;
};

static struct model model, model_2;

static uint32_t below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % n;
}

static void add(struct model *m, struct mz_plan_unit unit)
{
    assert_true(m->n < MAX_UNITS);
    m->place[m->n] = MEMORY;
    m->units[m->n++] = unit;
}

static void add_weight(struct model *m, uint32_t layer, uint64_t bytes, double read_ns)
{
    add(m, (struct mz_plan_unit){.kind = MZ_KIND_WEIGHT,
                                 .layer = layer,
                                 .memory_bytes = bytes,
                                 .plain_bytes = bytes,
                                 .clean = true,
                                 .read_ns = read_ns});
}

static void add_kv(struct model *m, uint32_t layer, uint64_t bytes, double read_ns, double decode_ns)
{
    add(m, (struct mz_plan_unit){.kind = MZ_KIND_KV,
                                 .layer = layer,
                                 .memory_bytes = bytes,
                                 .plain_bytes = bytes,
                                 .coded_bytes = bytes * 17 / 32,
                                 .read_ns = read_ns,
                                 .decode_ns = decode_ns});
}

static double weight_sum(const struct model *m)
{
    double sum = 0;
    for (uint32_t i = 0; i < m->n; i++)
        sum += m->units[i].kind == MZ_KIND_WEIGHT ? m->units[i].read_ns : 0;
    return sum;
}

static double decode_sum(const struct model *m)
{
    double sum = 0;
    for (uint32_t i = 0; i < m->n; i++)
        sum += m->units[i].kind == MZ_KIND_KV ? m->units[i].decode_ns : 0;
    return sum;
}

static bool layer_is_evicted(const struct model *m, uint32_t layer, bool *ret_exists)
{
    bool exists = false, evicted = true;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->units[i].kind != MZ_KIND_WEIGHT || m->units[i].layer != layer)
            continue;
        exists = true;
        evicted = evicted && m->place[i] != MEMORY;
    }
    *ret_exists = exists;
    return exists && evicted;
}

static void count_layers(struct model *m)
{
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        bool exists;
        m->in.weight_layers_evicted += layer_is_evicted(m, layer, &exists);
        m->in.weight_layers += exists;
    }
}

/* The published rule's unit times: means over the whole model. */
static void give_unit_times(struct model *m)
{
    double read = 0, decode = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        read += m->units[i].coded_bytes ? m->units[i].read_ns : 0;
        decode += m->units[i].coded_bytes ? m->units[i].decode_ns : 0;
    }
    m->in.layer_read_ns = m->in.weight_layers ? weight_sum(m) / (double)m->in.weight_layers : 0;
    m->in.chunk_read_ns = m->in.kv_units ? read / (double)m->in.kv_units : 0;
    m->in.chunk_decode_ns = m->in.kv_units ? decode / (double)m->in.kv_units : 0;
}

/* Describes the model's state for a request. */
static void describe(struct model *m, uint64_t wanted)
{
    m->in = (struct mz_plan_input){
        .units = m->candidates, .wanted_bytes = wanted, .rule = m->rule, .stack_allowed = m->stack_allowed};
    count_layers(m);
    for (uint32_t i = 0; i < m->n; i++) {
        struct mz_plan_unit unit = m->units[i];
        m->in.kv_units += unit.coded_bytes > 0;
        m->in.kv_on_stack += m->place[i] == STACK;
        m->in.kv_on_store += m->place[i] == STORE && unit.coded_bytes > 0;
        if (m->place[i] == STORE) {
            m->in.store_ns += unit.read_ns;
            continue;
        }
        if (m->place[i] == STACK) {
            m->in.stack_ns += unit.decode_ns;
            unit.on_stack = true;
            unit.memory_bytes = unit.coded_bytes;
        }
        m->from[m->in.n] = i;
        m->candidates[m->in.n++] = unit;
    }
    if (!m->without_times)
        give_unit_times(m);
}

static int plan(struct model *m, uint64_t wanted)
{
    describe(m, wanted);
    return mz_plan_make(&m->in, m->steps, &m->n_steps, &m->freed);
}

static char letter(const struct model *m, const struct mz_plan_step *step)
{
    switch (step->action) {
    case MZ_DROP:
        return m->candidates[step->unit].kind == MZ_KIND_WEIGHT ? 'W' : 'D';
    case MZ_STORE:
        return m->candidates[step->unit].kind == MZ_KIND_OTHER ? 'O' : 'S';
    case MZ_STACK:
        return 'C';
    case MZ_SINK:
        return 'X';
    default:
        return '?';
    }
}

static uint64_t freed_by(const struct model *m, const struct mz_plan_step *step)
{
    const struct mz_plan_unit *unit = &m->candidates[step->unit];
    return unit->memory_bytes - (step->action == MZ_STACK ? unit->coded_bytes : 0);
}

static void apply(struct model *m, const struct mz_plan_step *step)
{
    m->place[m->from[step->unit]] = step->action == MZ_STACK ? STACK : STORE;
}

/* Plans for `wanted`, carries it out, and writes a letter per step. */
static const char *carry_out(struct model *m, uint64_t wanted)
{
    static char letters[MAX_UNITS + 1];
    assert_int_equal(plan(m, wanted), 0);
    for (uint32_t i = 0; i < m->n_steps; i++) {
        letters[i] = letter(m, &m->steps[i]);
        apply(m, &m->steps[i]);
    }
    letters[m->n_steps] = 0;
    return letters;
}

static const char *stage(struct model *m)
{
    describe(m, 1);
    return mz_plan_stage(&m->in);
}

/* One weight unit a layer, `kv` chunks in all, equal sizes. */
static void make_even(struct model *m, enum mz_rule rule, uint32_t layers, uint32_t kv, double read_w,
                      double read_kv, double decode_kv)
{
    memset(m, 0, sizeof *m);
    m->rule = rule;
    m->stack_allowed = true;
    m->layers = layers;
    for (uint32_t layer = layers; layer-- > 0;)
        add_weight(m, layer, 16 << 20, read_w);
    for (uint32_t i = 0; i < kv; i++)
        add_kv(m, 0, 512 << 10, read_kv, decode_kv);
}

/* -------------------------------------------------------------------------------- decision tables */

struct table {
    enum mz_rule rule;
    uint32_t layers, kv;
    double read_w, read_kv, decode_kv;
    const char *expected, *first_stage;
};

/* Whether the letters are those expected; spaces are for the reader. */
static bool same_letters(const char *letters, const char *expected)
{
    for (; *expected; expected++)
        if (*expected != ' ' && *letters++ != *expected)
            return false;
    return *letters == 0;
}

#define P MZ_RULE_PUBLISHED
#define E MZ_RULE_EXACT

/* Figure 7 by numbers: C a chunk compressed, S one stored, W a layer dropped. */
static void test_tables(void **state)
{
    (void)state;
    static const struct table tables[] = {
        /* (a) then (b): T = 3 * 4 = 12, 18 chunks. KVonly evicts 6, two to the stack for one stored; after it
         * the rest and the layers run out together. */
        {P, 3, 18, 4, 2, 1, "CCSCCS WCCCC WCCCC WCCCC", "KVonly"},
        {E, 3, 18, 4, 2, 1, "CCSCCS CCCW CCCCW CCCCW C", "KVonly"},
        /* (b) then (c): 6 chunks, fewer than T. */
        {P, 3, 6, 4, 2, 1, "WCCCC WCC W", "KVandW"},
        {E, 3, 6, 4, 2, 1, "CCCWCCC WW", "KVandW"},
        /* Exactly T. */
        {P, 2, 4, 4, 2, 2, "WCC WCC", "KVandW"},
        {E, 2, 4, 4, 2, 2, "CW CCW C", "KVandW"},
        /* The floor: 3.9 chunks a layer count as 3, T = 6, and KVonly takes two of which one might be stored.
         */
        {P, 2, 8, 3.9, 2, 1, "CC WCCC WCCC", "KVonly"},
        {E, 2, 8, 3.9, 2, 1, "CCCW CCCCW C", "KVandW"},
        /* Decoding slower than reading a layer: the floor is 0, and the weights come after all KV. */
        {P, 3, 6, 4, 2, 5, "SSCSSC WWW", "KVonly"},
        {E, 3, 6, 4, 2, 5, "SS CW CW CW S", "KVonly"},
        /* No weights that can be evicted. */
        {P, 0, 6, 4, 2, 1, "CCSCCS", "KVonly"},
        {E, 0, 6, 4, 2, 1, "CCSCCS", "KVonly"},
        /* No KV: only weights. */
        {P, 3, 0, 4, 2, 1, "WWW", "Wonly"},
        {E, 3, 0, 4, 2, 1, "WWW", "Wonly"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const struct table *t = &tables[i];
        make_even(&model, t->rule, t->layers, t->kv, t->read_w, t->read_kv, t->decode_kv);
        assert_string_equal(stage(&model), t->first_stage);
        const char *letters = carry_out(&model, UINT64_MAX);
        if (!same_letters(letters, t->expected))
            print_error("table %zu: %s, expected %s\n", i, letters, t->expected);
        assert_true(same_letters(letters, t->expected));
        /* (d) and then nothing. */
        bool any = strchr(t->expected, 'C');
        assert_string_equal(stage(&model), any ? "CompKV" : "none");
        letters = carry_out(&model, UINT64_MAX);
        assert_int_equal(strspn(letters, "X"), strlen(letters));
        assert_string_equal(stage(&model), "none");
    }
}

/* Evicting goes on where it stopped, whatever is asked for at a time. */
static void test_many_small_requests(void **state)
{
    (void)state;
    for (int rule = MZ_RULE_EXACT; rule <= MZ_RULE_PUBLISHED; rule++) {
        char whole[256], parts[256] = "";
        make_even(&model, (enum mz_rule)rule, 5, 60, 7, 3, 1);
        snprintf(whole, sizeof whole, "%s", carry_out(&model, UINT64_MAX));
        make_even(&model, (enum mz_rule)rule, 5, 60, 7, 3, 1);
        while (strlen(parts) < strlen(whole)) {
            const char *one = carry_out(&model, 1);
            assert_int_equal(strlen(one), 1);
            strcat(parts, one);
        }
        assert_string_equal(parts, whole);
    }
}

/* A layer of several units: its chunks follow when all of it is gone, also over several requests. */
static void test_layers_of_several_units(void **state)
{
    (void)state;
    memset(&model, 0, sizeof model);
    model.rule = MZ_RULE_PUBLISHED;
    model.stack_allowed = true;
    model.layers = 2;
    for (uint32_t i = 0; i < 6; i++)
        add_weight(&model, i < 3 ? 1 : 0, 1 << 20, 2);
    for (uint32_t i = 0; i < 6; i++)
        add_kv(&model, 0, 512 << 10, 4, 2);
    assert_string_equal(carry_out(&model, 2 << 20), "WW");
    assert_string_equal(carry_out(&model, UINT64_MAX), "WCCCWWWCCC");
}

/* -------------------------------------------------------------------------------- where the paper is
 * silent */

static void test_one_path(void **state)
{
    (void)state;
    for (int rule = MZ_RULE_EXACT; rule <= MZ_RULE_PUBLISHED; rule++) {
        for (int exact = 0; exact < 2; exact++) {
            memset(&model, 0, sizeof model);
            model.rule = (enum mz_rule)rule;
            model.stack_allowed = !exact;
            model.layers = 2;
            for (uint32_t layer = 2; layer-- > 0;) {
                add_kv(&model, layer, 512 << 10, 2, 1);
                if (!exact)
                    model.units[model.n - 1].coded_bytes =
                        layer ? 0 : 512 << 10; /* none, or nothing to gain */
                add_weight(&model, layer, 1 << 20, 4);
            }
            assert_string_equal(stage(&model), "OnePath");
            assert_string_equal(carry_out(&model, 1), "S"); /* strictly backward */
            assert_string_equal(carry_out(&model, UINT64_MAX), "WSW");
            assert_string_equal(stage(&model), "none");
        }
    }
}

static void test_other_units_go_last(void **state)
{
    (void)state;
    for (int rule = MZ_RULE_EXACT; rule <= MZ_RULE_PUBLISHED; rule++) {
        memset(&model, 0, sizeof model);
        model.rule = (enum mz_rule)rule;
        model.stack_allowed = true;
        model.layers = 1;
        add(&model,
            (struct mz_plan_unit){
                .kind = MZ_KIND_OTHER, .memory_bytes = 1 << 20, .plain_bytes = 1 << 20, .read_ns = 4});
        add_kv(&model, 0, 512 << 10, 2, 1);
        add_weight(&model, 0, 1 << 20, 4);
        const char *letters = carry_out(&model, UINT64_MAX);
        assert_int_equal(strlen(letters), 3);
        assert_int_equal(letters[2], 'O');
        assert_non_null(strchr(letters, 'C'));
        assert_string_equal(carry_out(&model, UINT64_MAX), "X");
    }
}

static void test_clean_units_write_nothing(void **state)
{
    (void)state;
    make_even(&model, MZ_RULE_EXACT, 0, 4, 1, 1, 100); /* storage is faster: chunks go there */
    for (uint32_t i = 0; i < model.n; i += 2)
        model.units[i].clean = true;
    assert_string_equal(carry_out(&model, UINT64_MAX), "DSDS");
    make_even(&model, MZ_RULE_EXACT, 1, 0, 1, 1, 1); /* a weight without a file of its own */
    model.units[0].clean = false;
    assert_string_equal(carry_out(&model, UINT64_MAX), "S");
}

/* Weights gone and KV left, as after new tokens: both places, not CompKV. */
static void test_kv_after_weights(void **state)
{
    (void)state;
    for (int rule = MZ_RULE_EXACT; rule <= MZ_RULE_PUBLISHED; rule++) {
        make_even(&model, (enum mz_rule)rule, 2, 4, 4, 2, 2);
        carry_out(&model, UINT64_MAX);
        assert_string_equal(stage(&model), "CompKV");
        for (uint32_t i = 0; i < 6; i++)
            add_kv(&model, 0, 512 << 10, 2, 2);
        assert_string_equal(stage(&model), "KVonly");
        const char *letters = carry_out(&model, UINT64_MAX);
        uint32_t stacked = 0, stored = 0;
        for (; *letters; letters++) {
            stacked += *letters == 'C';
            stored += *letters == 'S';
        }
        assert_int_equal(stacked, 3);
        assert_int_equal(stored, 3);
    }
}

/* -------------------------------------------------------------------------------- odd input */

static void test_refuses(void **state)
{
    (void)state;
    uint32_t n = 77;
    uint64_t freed = 78;
    make_even(&model, MZ_RULE_EXACT, 2, 2, 1, 1, 1);
    describe(&model, 1);
    assert_int_equal(mz_plan_make(NULL, model.steps, &n, &freed), -EINVAL);
    assert_int_equal(mz_plan_make(&model.in, NULL, &n, &freed), -EINVAL);
    assert_int_equal(mz_plan_make(&model.in, model.steps, NULL, &freed), -EINVAL);
    assert_int_equal(mz_plan_make(&model.in, model.steps, &n, NULL), -EINVAL);
    model.in.rule = (enum mz_rule)9;
    assert_int_equal(mz_plan_make(&model.in, model.steps, &n, &freed), -EINVAL);
    model.in.rule = MZ_RULE_EXACT;
    model.candidates[1].kind = MZ_KIND_SCRATCH;
    assert_int_equal(mz_plan_make(&model.in, model.steps, &n, &freed), -EINVAL);
    assert_string_equal(mz_plan_stage(&model.in), "none");
    assert_string_equal(mz_plan_stage(NULL), "none");
    model.in.units = NULL;
    assert_int_equal(mz_plan_make(&model.in, model.steps, &n, &freed), -EINVAL);
    assert_int_equal(n, 77);
    assert_int_equal(freed, 78);
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    make_even(&model, MZ_RULE_PUBLISHED, 2, 2, 1, 1, 1);
    assert_string_equal(carry_out(&model, 0), "");
    assert_int_equal(model.freed, 0);
    struct mz_plan_input none = {.wanted_bytes = 100};
    uint32_t n = 5;
    uint64_t freed = 5;
    assert_int_equal(mz_plan_make(&none, NULL, &n, &freed), 0);
    assert_int_equal(n, 0);
    assert_int_equal(freed, 0);
    assert_string_equal(mz_plan_stage(&none), "none");
}

/* A profile gone wrong must not keep memory from being freed. */
static void test_odd_times(void **state)
{
    (void)state;
    static const double odd[] = {0, -1, NAN, INFINITY, 1e300, 1e-300};
    for (int rule = MZ_RULE_EXACT; rule <= MZ_RULE_PUBLISHED; rule++) {
        for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++) {
            for (unsigned j = 0; j < sizeof odd / sizeof odd[0]; j++) {
                make_even(&model, (enum mz_rule)rule, 3, 9, odd[i], odd[j], odd[i]);
                describe(&model, UINT64_MAX);
                model.in.store_ns = odd[j];
                model.in.stack_ns = odd[i];
                model.in.layer_read_ns = odd[j];
                model.in.weight_layers = i % 2 ? UINT64_MAX : 0;
                assert_int_equal(mz_plan_make(&model.in, model.steps, &model.n_steps, &model.freed), 0);
                assert_int_equal(model.n_steps, 12);
            }
        }
    }
}

/* -------------------------------------------------------------------------------- random models */

/* Layers, chunks, sizes and times of any proportion; whole nanoseconds, as the profile gives them. */
static void make_random(struct model *m, uint64_t *seed, bool others)
{
    memset(m, 0, sizeof *m);
    m->rule = below(seed, 2) ? MZ_RULE_EXACT : MZ_RULE_PUBLISHED;
    m->stack_allowed = below(seed, 8) > 0;
    m->without_times = below(seed, 2);
    m->layers = 1 + below(seed, 12);
    uint32_t chunks = below(seed, 24), parts = 1 + below(seed, 4), slow = 1 + below(seed, 30);
    bool even = below(seed, 2);
    uint32_t no_weights = below(seed, 10) == 0, no_codec = below(seed, 6) == 0;
    for (uint32_t layer = m->layers; layer-- > 0;) {
        uint32_t size = even ? 10 : 1 + below(seed, 20);
        for (uint32_t i = 0; i < chunks; i++) {
            uint64_t bytes = (uint64_t)size * 16 << 10;
            add_kv(m, layer, bytes, (double)(bytes / 8), (double)(bytes / 8 * slow / 10));
            if (no_codec && below(seed, 2))
                m->units[m->n - 1].coded_bytes = 0;
            m->units[m->n - 1].clean = below(seed, 4) == 0;
        }
        for (uint32_t i = 0; i < parts && !no_weights; i++) {
            uint64_t bytes = (uint64_t)(even ? 64 : 1 + below(seed, 100)) * 4096;
            add_weight(m, layer, bytes, (double)(bytes / 8));
        }
        if (others && below(seed, 4) == 0)
            add(m, (struct mz_plan_unit){
                       .kind = MZ_KIND_OTHER, .memory_bytes = 8192, .plain_bytes = 8192, .read_ns = 1024});
    }
}

static uint64_t in_memory(const struct model *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->n; i++)
        bytes += m->place[i] == MEMORY  ? m->units[i].memory_bytes
                 : m->place[i] == STACK ? m->units[i].coded_bytes
                                        : 0;
    return bytes;
}

static bool may_stack(const struct model *m, const struct mz_plan_unit *unit)
{
    return unit->kind == MZ_KIND_KV && m->stack_allowed && !unit->on_stack && unit->coded_bytes > 0;
}

static void check_action(const struct model *m, const struct mz_plan_step *step)
{
    assert_true(step->unit < m->in.n);
    const struct mz_plan_unit *unit = &m->candidates[step->unit];
    switch (step->action) {
    case MZ_DROP:
        assert_true(unit->clean && !unit->on_stack);
        break;
    case MZ_STORE:
        assert_true(!unit->clean && !unit->on_stack);
        break;
    case MZ_STACK:
        assert_true(may_stack(m, unit));
        break;
    case MZ_SINK:
        assert_true(unit->on_stack);
        break;
    default:
        fail();
    }
}

/* The queue that a unit stands in, by the rules that the header gives. */
static int queue_of(const struct model *m, const struct mz_plan_unit *unit)
{
    if (unit->on_stack)
        return 3;
    if (unit->kind == MZ_KIND_OTHER)
        return 2;
    return may_stack(m, unit) ? 0 : 1;
}

/* Each candidate at most once, queues in their order, others after weights and KV, the stack after all. */
static void check_order(const struct model *m)
{
    uint32_t taken[4] = {0}, count[4] = {0};
    int64_t last[4] = {-1, -1, -1, -1};
    for (uint32_t i = 0; i < m->in.n; i++)
        count[queue_of(m, &m->candidates[i])]++;
    for (uint32_t i = 0; i < m->n_steps; i++) {
        int q = queue_of(m, &m->candidates[m->steps[i].unit]);
        check_action(m, &m->steps[i]);
        assert_true((int64_t)m->steps[i].unit > last[q]);
        last[q] = m->steps[i].unit;
        taken[q]++;
        if (q >= 2)
            assert_true(taken[0] == count[0] && taken[1] == count[1]);
        if (q == 3)
            assert_true(taken[2] == count[2]);
    }
}

static void check_freed(const struct model *m)
{
    uint64_t sum = 0, last = 0;
    for (uint32_t i = 0; i < m->n_steps; i++)
        sum += last = freed_by(m, &m->steps[i]);
    assert_int_equal(sum, m->freed);
    assert_true(sum >= m->in.wanted_bytes || m->n_steps == m->in.n);
    assert_true(m->n_steps == 0 || sum - last < m->in.wanted_bytes);
}

/* The same again, and a plan for less is the beginning of it. */
static void check_prefix(struct model *m, uint64_t *seed)
{
    struct mz_plan_input less = m->in;
    uint32_t n;
    uint64_t freed;
    assert_int_equal(mz_plan_make(&m->in, model_2.steps, &n, &freed), 0);
    assert_int_equal(n, m->n_steps);
    assert_int_equal(freed, m->freed);
    for (int i = 0; i < 2; i++) {
        for (uint32_t j = 0; j < n; j++) {
            assert_int_equal(model_2.steps[j].unit, m->steps[j].unit);
            assert_int_equal(model_2.steps[j].action, m->steps[j].action);
        }
        less.wanted_bytes = below(seed, (uint32_t)(m->freed % UINT32_MAX) + 1);
        assert_int_equal(mz_plan_make(&less, model_2.steps, &n, &freed), 0);
        assert_true(n <= m->n_steps && freed <= m->freed);
    }
}

/* Restores some, forward-in: from the end of the list. */
static void restore_some(struct model *m, uint64_t *seed)
{
    uint32_t n = below(seed, m->n + 1), path = below(seed, 3);
    for (uint32_t i = m->n; i-- > 0 && n > 0;) {
        if (m->place[i] == MEMORY || (path == 1 && m->place[i] == STACK) ||
            (path == 2 && m->place[i] == STORE))
            continue;
        m->place[i] = MEMORY;
        n--;
    }
}

static void new_tokens(struct model *m, uint64_t *seed)
{
    for (uint32_t i = below(seed, 6); i > 0 && m->n < MAX_UNITS; i--)
        add_kv(m, 0, 160 << 10, 20000, 7000);
}

static void test_random_histories(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 400; round++) {
        make_random(&model, &seed, true);
        for (int step = 0; step < 12; step++) {
            uint64_t before = in_memory(&model);
            assert_int_equal(plan(&model, below(&seed, (uint32_t)before / 3 + 2)), 0);
            check_order(&model);
            check_freed(&model);
            check_prefix(&model, &seed);
            for (uint32_t i = 0; i < model.n_steps; i++)
                apply(&model, &model.steps[i]);
            assert_int_equal(before - in_memory(&model), model.freed); /* and so never negative */
            if (below(&seed, 4) == 0)
                restore_some(&model, &seed);
            if (below(&seed, 4) == 0)
                new_tokens(&model, &seed);
        }
        carry_out(&model, UINT64_MAX);
        carry_out(&model, UINT64_MAX); /* what the first one stacked */
        assert_int_equal(in_memory(&model), 0);
        assert_string_equal(stage(&model), "none");
    }
}

static double longest_unit(const struct model *m)
{
    double longest = 0;
    for (uint32_t i = 0; i < m->n; i++)
        longest = fmax(longest, fmax(m->units[i].read_ns, m->units[i].decode_ns));
    return longest;
}

static double gap(struct model *m)
{
    describe(m, 1);
    return fabs(m->in.store_ns - m->in.stack_ns);
}

static bool balances(const char *name)
{
    return !strcmp(name, "KVonly") || !strcmp(name, "KVandW");
}

/* Exact rule: the paths' ends are never further apart than one unit takes, in every step of the two stages
 * that promise it; and when history has set them apart, no step makes it worse. */
static void test_exact_balance(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int round = 0; round < 300; round++) {
        bool restores = round % 2;
        make_random(&model, &seed, false);
        model.rule = MZ_RULE_EXACT;
        model.stack_allowed = true;
        double unit = longest_unit(&model), before = 0;
        while (strcmp(stage(&model), "none") && strcmp(stage(&model), "CompKV")) {
            bool promised = balances(stage(&model));
            assert_int_equal(strlen(carry_out(&model, 1)), 1);
            double after = gap(&model);
            if (promised)
                assert_true(after <= fmax(unit, restores ? before : 0));
            before = after;
            if (restores && below(&seed, 40) == 0) {
                restore_some(&model, &seed);
                before = gap(&model);
                if (below(&seed, 4) == 0)
                    break;
            }
            if (!promised && !restores) /* Wonly: no KV left to balance with */
                before = 0;
        }
    }
}

/* Exact rule, all evicted but the stack: enough KV saved up, and none too much. */
static void test_exact_end(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) {
        make_random(&model, &seed, false);
        model.rule = MZ_RULE_EXACT;
        model.stack_allowed = true;
        for (uint32_t i = 0; i < model.n; i++)
            if (model.units[i].kind == MZ_KIND_KV && !model.units[i].coded_bytes)
                model.units[i].coded_bytes = model.units[i].memory_bytes / 2;
        carry_out(&model, UINT64_MAX);
        describe(&model, 1);
        if (decode_sum(&model) <= weight_sum(&model)) {
            assert_true(model.in.store_ns == weight_sum(&model)); /* no KV was stored */
            assert_true(model.in.stack_ns == decode_sum(&model));
        } else {
            assert_true(gap(&model) <= 2 * longest_unit(&model));
        }
    }
}

/* Published rule, where the floor loses nothing: within a layer and a chunk. */
static void test_published_balance(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 200; round++) {
        uint32_t decode = 1 + below(&seed, 9), times = 1 + below(&seed, 9), read = 1 + below(&seed, 40);
        uint32_t layers = 1 + below(&seed, 10), kv = below(&seed, 200);
        double layer = (double)decode * times, chunk = fmax(decode, read);
        make_even(&model, MZ_RULE_PUBLISHED, layers, kv, layer, read, decode);
        while (balances(stage(&model))) {
            carry_out(&model, 1);
            assert_true(gap(&model) <= layer + chunk);
        }
    }
}

static uint32_t weights_left(const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++)
        n += m->units[i].kind == MZ_KIND_WEIGHT && m->place[i] == MEMORY;
    return n;
}

/* Stages come in the published order, and each of the four comes. The last chunks of KVandW, when no weight
 * is left, are KVonly again. */
static void test_all_stages(void **state)
{
    (void)state;
    static const char *const names[] = {"KVonly", "KVandW", "Wonly", "CompKV", "none"};
    static const struct {
        uint32_t kv;
        unsigned stages; /* a bit each */
    } cases[] = {{90, 0x1b}, {10, 0x1e}, {0, 0x14}};
    for (int rule = MZ_RULE_EXACT; rule <= MZ_RULE_PUBLISHED; rule++) {
        for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            unsigned seen = 0, at = 0;
            make_even(&model, (enum mz_rule)rule, 8, cases[i].kv, 40, 20, 10);
            do {
                const char *name = stage(&model);
                if (strcmp(name, "KVonly") || weights_left(&model) > 0)
                    while (at < 5 && strcmp(names[at], name))
                        at++; /* never backward */
                assert_true(at < 5);
                seen |= 1u << at;
                carry_out(&model, 1);
            } while (at < 4);
            assert_int_equal(seen & cases[i].stages, cases[i].stages);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_many_small_requests),
        cmocka_unit_test(test_layers_of_several_units),
        cmocka_unit_test(test_one_path),
        cmocka_unit_test(test_other_units_go_last),
        cmocka_unit_test(test_clean_units_write_nothing),
        cmocka_unit_test(test_kv_after_weights),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_odd_times),
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_exact_balance),
        cmocka_unit_test(test_exact_end),
        cmocka_unit_test(test_published_balance),
        cmocka_unit_test(test_all_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
