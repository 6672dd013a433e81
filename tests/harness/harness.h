/* mz-harness: a program on libllama that runs a model twice, once left alone and once with its memory taken
 * away in every way it knows, and compares the logits bit for bit. Both runs use the plugin.
 *
 * A script decodes tokens in a fresh context and logs every logit it sees. Between its steps it calls
 * disturb(), which is empty in the first run and evicts in the others; in the last run another thread evicts
 * and restores at random all the while. */
#ifndef MZ_HARNESS_H
#define MZ_HARNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>

#include "ggml-backend.h"
#include "llama.h"
#include "mzcache.h"

/* The functions of the plugin, fetched by name. */
struct api {
    mz_evict_fn evict;
    mz_evict_to_fn evict_to;
    mz_restore_fn restore;
    mz_status_fn status;
    mz_limit_fn limit;
    mz_option_set_fn option_set;
};

struct world {
    struct api api;
    ggml_backend_dev_t devices[2]; /* MZ0, NULL */
    const char *model_path, *second_path;
    struct llama_model *model, *second;
    bool mmap, half; /* how the models are loaded */
    int threads;
    uint32_t seed;
    bool brief;    /* fewer disturbances */
    bool may_fail; /* a call may fail (faults are injected); what was computed before must be right */
    struct llama_adapter_lora *lora; /* of the model, or NULL; freed with it */
};

/* Everything that was computed, in order. */
struct log {
    unsigned char *bytes;
    size_t n, room;
    size_t marks[4096]; /* where each entry begins */
    char names[4096][24];
    size_t n_marks;
};

enum disturbance { LEFT_ALONE, TO_LEVEL, AT_RANDOM };

struct play {
    struct world *world;
    struct llama_context *ctx;
    struct llama_model *model;
    struct log *log;
    enum disturbance how;
    uint32_t permyriad;
    uint32_t random;   /* state of the script's own choices: the same in each run */
    llama_pos past[8]; /* by sequence */
    llama_token last[8];
    int steps;
    int disturbed; /* evictions that freed something */
    bool failed;
};

/* ---- world.c */
int world_open(struct world *world, const char *plugin);
int world_load(struct world *world);
/* Loads the adapter beside the model; false when there is none. */
bool world_load_lora(struct world *world);
void world_unload(struct world *world);
void world_close(struct world *world);

/* ---- play.c */
void log_add(struct log *log, const char *name, const void *bytes, size_t n);
/* 0 when equal; otherwise prints the first difference. */
int log_compare(const struct log *a, const struct log *b, const char *what);
/* The same for as much as both have. */
int log_compare_begin(const struct log *a, const struct log *b, const char *what);
void log_free(struct log *log);

/* Evicts, in the runs that do. */
void disturb(struct play *play);
/* Decodes n invented tokens of a sequence and logs the logits of the last. */
void prompt(struct play *play, int seq, int n);
/* Decodes n tokens, each the likeliest so far. */
void generate(struct play *play, int seq, int n);
void fail(struct play *play, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- scenarios.c */
struct scenario {
    const char *name;
    void (*script)(struct play *play);
    void (*params)(struct llama_context_params *params); /* NULL: as they are */
    bool no_mmap, half, needs_shift;
    bool lora;  /* with the adapter that lies beside the model: MODEL-lora.gguf */
    bool limit; /* the disturbed runs have a limit of about half of the model */
};
extern const struct scenario scenarios[];

#endif
