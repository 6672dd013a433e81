/* The registry entry, and the two symbols that ggml looks for in a plugin. */
#include <stdlib.h>
#include <string.h>

#include "control/api.h"
#include "ggml/glue.h"
#include "os/log.h"

// backend reg interface

static const char *mz_reg_get_name(ggml_backend_reg_t reg)
{
    (void)reg;
    return "MZ";
}

static size_t mz_reg_get_device_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return 1;
}

static ggml_backend_dev_t mz_reg_get_device(ggml_backend_reg_t reg, size_t index)
{
    (void)reg;
    GGML_ASSERT(index == 0);
    return &mz_device;
}

static void *mz_reg_get_proc_address(ggml_backend_reg_t reg, const char *name)
{
    (void)reg;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0)
        return (void *)mz_backend_set_n_threads;
    if (strcmp(name, "ggml_backend_set_abort_callback") == 0)
        return (void *)mz_backend_set_abort_callback;
    return strncmp(name, "mz_", 3) == 0 ? mz_api_find(name) : NULL;
}

// clang-format off
struct ggml_backend_reg mz_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {
        .get_name         = mz_reg_get_name,
        .get_device_count = mz_reg_get_device_count,
        .get_device       = mz_reg_get_device,
        .get_proc_address = mz_reg_get_proc_address,
    },
};
// clang-format on

/* The structs of graphs and buffers are read directly, and ggml's API number does not cover them. */
static bool version_fits(void)
{
    const char *built = MZ_GGML_VERSION, *found = ggml_version(), *force = getenv("MZ_FORCE");

    if (!built[0] || strcmp(built, found) == 0)
        return true;
    bool forced = force && strcmp(force, "1") == 0;
    mz_log(forced ? MZ_LOG_WARN : MZ_LOG_ERROR, "built against ggml %s, loaded into ggml %s%s", built, found,
           forced ? "; going on because MZ_FORCE is 1"
                  : ": not used (build it against that version, or set MZ_FORCE=1)");
    return forced;
}

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void)
{
    return version_fits() ? &mz_reg : NULL;
}

int ggml_backend_score(void)
{
    return version_fits() ? 1 : 0;
}
