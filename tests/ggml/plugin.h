/* The plugin as a program sees it: loaded by path, used through ggml's interface and the functions by name.
 */
#ifndef MZ_TEST_GGML_PLUGIN_H
#define MZ_TEST_GGML_PLUGIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "mzcache.h"

static ggml_backend_dev_t device;
static ggml_backend_buffer_type_t buft;
static mz_evict_to_fn evict_to;
static mz_status_fn get_status;
static mz_limit_fn limit;

static void say_nothing(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

static int load_plugin(void **state)
{
    (void)state;
    setenv("MZ_RUNTIME_DIR", "/dev/null/none", 0); /* no socket is needed */
    ggml_log_set(say_nothing, NULL);
    ggml_backend_load_all(); /* the CPU, where backends are loadable modules */
    ggml_backend_reg_t reg = ggml_backend_load(MZ_PLUGIN);
    if (!reg)
        return -1;
    device = ggml_backend_reg_dev_get(reg, 0);
    buft = ggml_backend_dev_buffer_type(device);
    *(void **)&evict_to = ggml_backend_reg_get_proc_address(reg, "mz_evict_to");
    *(void **)&get_status = ggml_backend_reg_get_proc_address(reg, "mz_status");
    *(void **)&limit = ggml_backend_reg_get_proc_address(reg, "mz_limit");
    return evict_to && get_status && limit ? 0 : -1;
}

static struct ggml_context *new_ctx(void)
{
    return ggml_init((struct ggml_init_params){.mem_size = 4u << 20, .no_alloc = true});
}

static void evict_all(void)
{
    struct mz_report report;
    assert_int_equal(evict_to(0, &report), 0);
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 2654435761u >> 13);
}

static inline unsigned char *pattern(size_t n)
{
    unsigned char *bytes = malloc(n);

    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(i);
    return bytes;
}

#endif
