/* Options by name. No state of its own: every option is kept by its home, under that one's lock. */
#include "control/values.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/settings.h"
#include "control/size.h"
#include "control/watch.h"
#include "core/core.h"
#include "os/log.h"
#include "os/thread.h"

/* ---- the limit */

int mz_value_limit(struct mz_core *core, const char *value, uint64_t *ret_bytes, uint64_t *ret_floor)
{
    struct mz_amount amount = {0};
    struct mz_core_brief brief;
    uint64_t floor = 0;

    int rc = strcmp(value, "off") == 0 ? 0 : mz_amount_parse(value, &amount);
    if (rc < 0)
        return rc;
    if (amount.is_share && amount.permyriad == 0)
        return -EINVAL;
    if (amount.is_share) {
        mz_core_brief(core, &brief);
        if (brief.total_bytes == 0)
            return -EAGAIN;
        amount = (struct mz_amount){.bytes = mz_amount_of(&amount, brief.total_bytes)};
    }
    rc = mz_core_limit(core, amount.bytes, &floor);
    *ret_floor = floor;
    if (rc == 0)
        *ret_bytes = amount.bytes;
    return rc;
}

static int set_limit(struct mz_core *core, const char *value)
{
    uint64_t bytes, floor;

    return mz_value_limit(core, value, &bytes, &floor);
}

static int get_limit(struct mz_core *core, char *buf, size_t size)
{
    struct mz_core_brief brief;

    mz_core_brief(core, &brief);
    int length = brief.limit_bytes ? snprintf(buf, size, "%llu", (unsigned long long)brief.limit_bytes)
                                   : snprintf(buf, size, "off");
    return length < 0 || (size_t)length >= size ? -ENOSPC : 0;
}

struct pending {
    struct mz_core *core;
    char value[32];
};

/* A percentage means nothing before the model is there, and loading is not over before the first graph. */
static void *apply_pending(void *arg)
{
    struct pending *pending = arg;
    uint64_t bytes, floor = 0;

    mz_gate_wait_first(pending->core);
    int rc = mz_value_limit(pending->core, pending->value, &bytes, &floor);
    if (rc < 0)
        mz_log(MZ_LOG_WARN, "limit %s was not set: %s (needed at least: %llu bytes)", pending->value,
               mz_log_errno(rc), (unsigned long long)floor);
    free(pending);
    return NULL;
}

static int limit_later(struct mz_core *core, const char *value)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    pthread_t thread;

    if (!pending)
        return -ENOMEM;
    pending->core = core;
    (void)snprintf(pending->value, sizeof(pending->value), "%s", value);
    int rc = mz_thread_start(&thread, "mz-limit", apply_pending, pending);
    if (rc < 0)
        free(pending);
    else
        (void)pthread_detach(thread);
    return rc;
}

/* ---- by name */

int mz_value_set(const struct mz_homes *homes, const char *name, const char *value)
{
    struct mz_setting setting;

    if (!mz_setting_find(name, &setting))
        return -ENOENT;
    switch (setting.home) {
    case MZ_SETTING_CORE:
        return mz_core_option_set(homes->core, name, value);
    case MZ_SETTING_POLICY:
        return homes->watch ? mz_watch_option_set(homes->watch, name, value) : -ENOTSUP;
    case MZ_SETTING_LIMIT:
        return set_limit(homes->core, value);
    case MZ_SETTING_START:
        return -EBUSY;
    }
    return -ENOENT;
}

static int get_start(const struct mz_setting *setting, char *buf, size_t size)
{
    const char *value = getenv(setting->env);

    if (!value || !*value)
        value = setting->initial;
    if (strlen(value) >= size)
        return -ENOSPC;
    memcpy(buf, value, strlen(value) + 1);
    return 0;
}

int mz_value_get(const struct mz_homes *homes, const char *name, char *buf, size_t size)
{
    struct mz_setting setting;

    if (!mz_setting_find(name, &setting))
        return -ENOENT;
    switch (setting.home) {
    case MZ_SETTING_CORE:
        return mz_core_option_get(homes->core, name, buf, size);
    case MZ_SETTING_POLICY:
        return homes->watch ? mz_watch_option_get(homes->watch, name, buf, size) : -ENOTSUP;
    case MZ_SETTING_LIMIT:
        return get_limit(homes->core, buf, size);
    case MZ_SETTING_START:
        return get_start(&setting, buf, size);
    }
    return -ENOENT;
}

json_t *mz_values_json(const struct mz_homes *homes)
{
    json_t *all = json_object();
    struct mz_setting row;
    char value[4096];

    for (uint32_t i = 0; all && mz_setting_row(i, &row); i++)
        if (mz_value_get(homes, row.name, value, sizeof(value)) == 0)
            (void)json_object_set_new(all, row.name, json_string(value));
    return all;
}

/* One variable of ours; core read its own when it was created. */
static int apply(const struct mz_homes *homes, const struct mz_setting *setting, const char *value)
{
    if (setting->home != MZ_SETTING_POLICY && setting->home != MZ_SETTING_LIMIT)
        return 0;
    int rc = mz_value_set(homes, setting->name, value);
    if (rc == -EAGAIN && setting->home == MZ_SETTING_LIMIT)
        return limit_later(homes->core, value);
    return rc == -ENOTSUP ? 0 : rc; /* without a memory watch, and that was said already */
}

void mz_values_from_environment(const struct mz_homes *homes)
{
    struct mz_setting row;

    for (uint32_t i = 0; mz_setting_row(i, &row); i++) {
        const char *value = getenv(row.env);
        int rc = value && *value ? apply(homes, &row, value) : 0;
        if (rc < 0)
            mz_log(MZ_LOG_WARN, "%s=%s: %s; it is %s, and stays as it was", row.env, value, mz_log_errno(rc),
                   row.values);
    }
}
