/* mz-lossy PLUGIN MODEL [--rule exact|published] [--read-gbps X] [--decode-gbps X] [--cycles N] STAGE...
 *
 * With --kv q8: a conversation whose memory was taken away piece by piece, through all stages of the plan,
 * and restored must go on exactly like one whose KV was quantised in place, by encoding and decoding, where
 * the first one's was: the chunks that the plugin calls lossy. The stages that are named must have been
 * entered; which ones are is decided by the speeds of the two paths, which are given in place of a
 * measurement.
 *
 * Prints "ok" or what went wrong. Exit 0: equal; 1: not; 77: the model is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "codec/codec.h"
#include "fake_profile.h"
#include "harness.h"

#define PROMPT     512 /* whole chunks: what is partly written gains nothing by the codec */
#define CACHE_MAX  256u
#define CHUNKS_MAX 4096u
#define STEP_BYTES (UINT64_C(1) << 20)

/* The tensors of a context's cache: those that a graph writes rows to. */
struct cache {
    struct ggml_tensor *tensors[CACHE_MAX];
    unsigned n;
};

struct chunk {
    char tensor[64];
    uint64_t index, bytes; /* bytes: of the tensor's first chunk, which tells where the others begin */
};

struct lossy {
    struct chunk chunks[CHUNKS_MAX];
    unsigned n;
};

enum { KV_ONLY, KV_AND_W, W_ONLY, COMP_KV, STAGES };

static const char *const stage_names[STAGES] = {"KVonly", "KVandW", "Wonly", "CompKV"};

struct test {
    struct world world;
    mz_dump_fn dump;
    const char *rule;
    double read_gbps, decode_gbps;
    int cycles;
    bool seen[STAGES];
    struct fake_profile profile; /* and the swap file's folder */
};

static void die(const char *what)
{
    printf("failed: %s\n", what);
    exit(1);
}

static void must(int err, const char *what)
{
    if (err) {
        printf("failed: %s gave %d\n", what, err);
        exit(1);
    }
}

/* ---- the cache's tensors */

static bool see(struct ggml_tensor *node, bool ask, void *user)
{
    struct cache *cache = user;
    struct ggml_tensor *tensor = node->op == GGML_OP_SET_ROWS ? node->view_src : NULL;

    if (!ask)
        return true;
    for (unsigned i = 0; i < cache->n && tensor; i++)
        tensor = cache->tensors[i] == tensor ? NULL : tensor;
    if (tensor && cache->n < CACHE_MAX)
        cache->tensors[cache->n++] = tensor;
    return false; /* the nodes are not looked at: all are computed together */
}

static struct ggml_tensor *find(const struct cache *cache, const char *name)
{
    for (unsigned i = 0; i < cache->n; i++)
        if (strcmp(cache->tensors[i]->name, name) == 0)
            return cache->tensors[i];
    return NULL;
}

static void quantise(const struct cache *cache, const struct chunk *chunk)
{
    const struct mz_codec *codec = mz_codec_find("q8");
    struct ggml_tensor *tensor = find(cache, chunk->tensor);

    if (!tensor)
        die(chunk->tensor);
    uint64_t at = chunk->index * chunk->bytes, left = ggml_nbytes(tensor) - at, room, coded;
    uint64_t bytes = left < chunk->bytes ? left : chunk->bytes;
    struct mz_chunk_key key = {.row_elements = (uint32_t)tensor->ne[0]};
    room = mz_codec_bound(codec, bytes);
    void *plain = malloc(bytes), *image = malloc(room);
    if (!plain || !image)
        die("no memory");
    ggml_backend_tensor_get(tensor, plain, at, bytes);
    must(mz_codec_encode(codec, &key, plain, bytes, image, room, &coded), "encoding");
    must(mz_codec_decode(&key, image, coded, plain, bytes), "decoding");
    ggml_backend_tensor_set(tensor, plain, at, bytes);
    free(plain);
    free(image);
}

static void list_lossy(const struct test *test, struct lossy *ret)
{
    char *text = NULL;
    json_t *unit;
    size_t i;

    must(test->dump(&text), "dump");
    json_t *all = json_loads(text, 0, NULL), *units = json_object_get(all, "units");
    ret->n = 0;
    json_array_foreach(units, i, unit)
    {
        struct chunk chunk = {.index = (uint64_t)json_integer_value(json_object_get(unit, "index")),
                              .bytes = (uint64_t)json_integer_value(json_object_get(unit, "bytes"))};
        if (!json_is_true(json_object_get(unit, "lossy")))
            continue;
        snprintf(chunk.tensor, sizeof(chunk.tensor), "%s",
                 json_string_value(json_object_get(unit, "tensor")));
        if (ret->n == CHUNKS_MAX)
            die("more chunks than there is room for");
        ret->chunks[ret->n++] = chunk;
    }
    json_decref(all);
    free(text);
}

/* ---- the walk through the stages */

static void look(const struct test *test, struct mz_state *ret)
{
    must(test->world.api.status(ret), "status");
}

/* Which stage's work a step has done, as far as one can tell from where the bytes went. */
static void note_stage(struct test *test, const struct mz_state *before, const struct mz_state *after)
{
    bool weights = after->weights.resident_bytes < before->weights.resident_bytes;
    bool stored = after->kv.store_bytes > before->kv.store_bytes;

    if (after->kv.stack_bytes < before->kv.stack_bytes)
        test->seen[COMP_KV] = true;
    else if (weights && after->kv.resident_bytes > 0)
        test->seen[KV_AND_W] = true;
    else if (weights && before->kv.resident_bytes == 0)
        test->seen[W_ONLY] = true;
    else if (!weights && stored)
        test->seen[KV_ONLY] = true;
}

static void walk(struct test *test)
{
    struct mz_report report;
    struct mz_state before, after;

    look(test, &after);
    do {
        before = after;
        must(test->world.api.evict(STEP_BYTES, &report), "evicting");
        look(test, &after);
        note_stage(test, &before, &after);
    } while (report.freed_bytes > 0);
    must(test->world.api.restore(true), "restoring");
    for (int i = 1; i < test->cycles; i++) {
        must(test->world.api.evict_to(0, NULL), "evicting");
        must(test->world.api.restore(true), "restoring");
    }
}

/* ---- the two conversations */

static struct llama_context *new_context(struct test *test, struct cache *cache)
{
    struct llama_context_params params = llama_context_default_params();

    params.n_ctx = 2048;
    params.n_batch = params.n_ubatch = 256;
    params.n_threads = params.n_threads_batch = test->world.threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.swa_full = true;
    params.cb_eval = see;
    params.cb_eval_user_data = cache;
    struct llama_context *ctx = llama_init_from_model(test->world.model, params);
    if (!ctx)
        die("no context");
    return ctx;
}

/* Evicts and says what became lossy, or quantises just that. */
static void converse(struct test *test, struct lossy *lossy, bool evicts, struct log *log)
{
    struct cache cache = {.n = 0};
    struct play play = {.world = &test->world, .model = test->world.model, .log = log, .random = 1};

    play.ctx = new_context(test, &cache);
    prompt(&play, 0, PROMPT);
    if (evicts) {
        walk(test);
        list_lossy(test, lossy);
    }
    for (unsigned i = 0; i < lossy->n && !evicts; i++)
        quantise(&cache, &lossy->chunks[i]);
    prompt(&play, 0, 20);
    generate(&play, 0, 4);
    if (play.failed)
        die("a conversation");
    llama_free(play.ctx);
}

static void run(struct test *test)
{
    struct lossy *lossy = calloc(1, sizeof(*lossy));
    struct log *evicted = calloc(1, sizeof(*evicted)), *quantised = calloc(1, sizeof(*quantised)),
               *alone = calloc(1, sizeof(*alone));

    if (!lossy || !evicted || !quantised || !alone)
        die("no memory");
    converse(test, lossy, false, alone);
    converse(test, lossy, true, evicted);
    if (lossy->n == 0)
        die("nothing became lossy");
    converse(test, lossy, false, quantised);
    if (log_compare(quantised, evicted, "the evicted conversation"))
        exit(1);
    if (alone->n == evicted->n && memcmp(alone->bytes, evicted->bytes, alone->n) == 0)
        die("8 bits are as good as 16: the comparison sees nothing");
    printf("%u chunks went through the codec\n", lossy->n);
    log_free(evicted);
    log_free(quantised);
    log_free(alone);
    free(evicted);
    free(quantised);
    free(alone);
    free(lossy);
}

/* ---- the command line */

static int options(struct test *test, int argc, char **argv)
{
    int i = 3;

    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--rule") == 0)
            test->rule = argv[i + 1];
        else if (strcmp(argv[i], "--read-gbps") == 0)
            test->read_gbps = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--decode-gbps") == 0)
            test->decode_gbps = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--cycles") == 0)
            test->cycles = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--threads") == 0)
            test->world.threads = atoi(argv[i + 1]);
        else
            return -1;
    }
    return i;
}

static bool entered(const struct test *test, const char *name)
{
    for (int i = 0; i < STAGES; i++)
        if (strcmp(stage_names[i], name) == 0)
            return test->seen[i];
    return false;
}

int main(int argc, char **argv)
{
    struct test test = {.world = {.threads = 2, .mmap = true},
                        .rule = "exact",
                        .read_gbps = 1,
                        .decode_gbps = 10,
                        .cycles = 1};
    int first = argc < 3 ? -1 : options(&test, argc, argv), missing = 0;

    if (first < 0) {
        fprintf(
            stderr,
            "mz-lossy PLUGIN MODEL [--rule exact|published] [--read-gbps X] [--decode-gbps X] [--cycles N] "
            "[--threads N] STAGE...\n");
        return 1;
    }
    test.world.model_path = argv[2];
    if (access(test.world.model_path, R_OK) != 0) {
        printf("skip: there is no %s\n", test.world.model_path);
        return 77;
    }
    must(fake_profile_make(&test.profile, test.read_gbps, test.decode_gbps), "the profile");
    must(world_open(&test.world, argv[1]), "the plugin");
    *(void **)&test.dump =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(test.world.devices[0]), "mz_dump");
    must(world_load(&test.world), "the model");
    must(test.world.api.option_set("kv", "q8"), "kv");
    must(test.world.api.option_set("rule", test.rule), "rule");
    must(test.world.api.option_set("clean", "off"), "clean");
    run(&test);
    for (int i = first; i < argc; i++) {
        if (!entered(&test, argv[i])) {
            printf("failed: %s was never entered\n", argv[i]);
            missing++;
        }
    }
    world_close(&test.world);
    fake_profile_remove(&test.profile);
    if (!missing)
        printf("ok\n");
    return missing > 0;
}
