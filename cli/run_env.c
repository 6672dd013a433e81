/* What mzcache run sets, and what it warns of. No state. */
#include "run_env.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* The variables that the options of llama.cpp's programs have are in its common/arg.cpp.
 *
 * Copies of conversations in the program's own heap are memory that mzCache can neither count nor give back.
 * llama-server makes two kinds: a cache of idle slots (8 GiB by default), and up to 32 checkpoints a slot for
 * models whose cache cannot be rolled back: those with a sliding window, and recurrent ones. Without
 * checkpoints, the former can reuse a prefix only with a full-size cache (--swa-full): that one lies on MZ0,
 * costs memory for tokens that were written only, and is evicted like any other. Recurrent models have no
 * such choice: a few checkpoints stay.
 *
 * A thread of ggml-cpu that waits for the others spins in libgomp, 300,000 turns by default: 5 to 20 ms, in
 * which it keeps a core from the workers that read, or from the very thread that it waits for when both are
 * on one core. Each barrier of a graph then costs a tick of the scheduler, and a first token has hundreds.
 * After 20,000 turns, at most a millisecond, it sleeps: longer than threads with a core each ever wait for
 * one another. */
const struct run_set run_sets[] = {
    {"GGML_BACKEND_PATH", NULL, {NULL}, "loads mzCache"},
    {"LLAMA_ARG_DEVICE", "MZ0", {"-dev", "--device", NULL}, "puts the model on mzCache's device"},
    {"LLAMA_ARG_CACHE_RAM", "0", {"-cram", "--cache-ram", NULL}, "no copies of conversations in the heap"},
    {"LLAMA_ARG_SWA_FULL",
     "1",
     {"--swa-full", "-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", NULL},
     "sliding-window models keep their prefix in memory that can be evicted"},
    {"LLAMA_ARG_CTX_CHECKPOINTS",
     "2",
     {"-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", NULL},
     "recurrent models need some; each is a copy in the heap"},
    {"GOMP_SPINCOUNT",
     "20000",
     {"OMP_WAIT_POLICY", NULL},
     "computing threads that wait leave their core to those that read"},
    {NULL, NULL, {NULL}, NULL},
};

/* "--name" or "--name=value" */
static bool is_switch(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 && (argument[length] == '\0' || argument[length] == '=');
}

/* The argument that is this option, or NULL. */
static char *const *find_switch(char *const *argv, const char *name)
{
    for (char *const *a = argv; *a; a++)
        if (is_switch(*a, name))
            return a;
    return NULL;
}

/* Whether -ngl and its like keep layers away: 99 and more is how people write "all". */
static bool keeps_layers(char *const *argument)
{
    const char *equals = strchr(*argument, '='), *value = equals ? equals + 1 : argument[1];

    return value && *value >= '0' && *value <= '9' && atoi(value) < 99;
}

bool run_is_given(const struct run_set *set, char *const *argv)
{
    if (getenv(set->name))
        return true;
    for (const char *const *name = set->others; *name; name++)
        if (**name == '-' ? find_switch(argv, *name) != NULL : getenv(*name) != NULL)
            return true;
    return false;
}

/* Whether --load-mode reads the file in place of mapping it. */
static bool is_not_mapped(char *const *argument)
{
    const char *equals = strchr(*argument, '='), *value = equals ? equals + 1 : argument[1];

    return value && (strcmp(value, "none") == 0 || strcmp(value, "dio") == 0 || strcmp(value, "mlock") == 0);
}

int run_warn(char *const *argv)
{
    static const char conversation[] = "the conversation stays outside of mzCache",
                      layers[] = "layers that are not offloaded stay outside of mzCache",
                      tensors[] = "overridden tensors stay where the pattern puts them",
                      experts[] = "these experts stay outside of mzCache",
                      no_file[] =
                          "weights have no file to come back from: each is written to the swap file once",
                      copies[] = "these copies of conversations cannot be evicted";
    static const struct {
        const char *name, *what;
        bool (*matters)(char *const *argument); /* NULL: always */
    } table[] = {
        {"-nkvo", conversation, NULL},
        {"--no-kv-offload", conversation, NULL},
        {"-ngl", layers, keeps_layers},
        {"--gpu-layers", layers, keeps_layers},
        {"--n-gpu-layers", layers, keeps_layers},
        {"-ot", tensors, NULL},
        {"--override-tensor", tensors, NULL},
        {"-cmoe", experts, NULL},
        {"--cpu-moe", experts, NULL},
        {"-ncmoe", experts, NULL},
        {"--n-cpu-moe", experts, NULL},
        {"-lm", no_file, is_not_mapped},
        {"--load-mode", no_file, is_not_mapped},
        {"--no-mmap", no_file, NULL}, /* older ones */
        {"--mlock", "does not reach mzCache's memory", NULL},
        {"--sleep-idle-seconds", "unloads the model and the conversation; mzcache run --idle keeps both",
         NULL},
        {"-cram", copies, NULL},
        {"--cache-ram", copies, NULL},
    };
    int n = 0;

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        char *const *found = find_switch(argv, table[i].name);
        if (found && (!table[i].matters || table[i].matters(found))) {
            cli_error("note: %s: %s", table[i].name, table[i].what);
            n++;
        }
    }
    return n;
}

/* ------------------------------------------------------------------------------------------ the plugin */

#define PLUGIN "libggml-mz.so"

static bool take(const char *path, char *buf, size_t size)
{
    char real[PATH_MAX];

    if (!realpath(path, real) || access(real, R_OK) != 0 || strlen(real) >= size)
        return false;
    memcpy(buf, real, strlen(real) + 1);
    return true;
}

static bool take_beside(const char *folder, char *buf, size_t size)
{
    static const char *const places[] = {"", "../lib/", "../lib64/", "../" MZ_LIBDIR "/"};
    char path[PATH_MAX + 64];

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        int length = snprintf(path, sizeof(path), "%s/%s" PLUGIN, folder, places[i]);
        if (length > 0 && (size_t)length < sizeof(path) && take(path, buf, size))
            return true;
    }
    return false;
}

int run_find_plugin(char *buf, size_t size)
{
    const char *named = getenv("MZ_PLUGIN");
    char self[PATH_MAX];

    if (named && *named)
        return take(named, buf, size) ? 0 : -ENOENT;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        *strrchr(self, '/') = '\0';
        if (take_beside(self, buf, size))
            return 0;
    }
    return take(MZ_FULL_LIBDIR "/" PLUGIN, buf, size) ? 0 : -ENOENT;
}
