/* The table of options. No state, no locks. */
#include "control/settings.h"

#include <string.h>

#include "core/options.h"

static const struct mz_setting own[] = {
    {"limit", "MZ_LIMIT", "SIZE|PERCENT|off", "off",
     "bound of all memory held, at every moment; a percentage counts once the model has run",
     MZ_SETTING_LIMIT},
    {"idle", "MZ_IDLE", "TIME[:PERCENT]|off", "off",
     "after each TIME (90s, 5m, 1h) without use give PERCENT of the model back, or all", MZ_SETTING_POLICY},
    {"step", "MZ_STEP", "own|PERCENT", "own", "how much to evict at each report of memory pressure",
     MZ_SETTING_POLICY},
    {"floor", "MZ_FLOOR", "SIZE|PERCENT", "0", "what pressure and idle time leave in memory",
     MZ_SETTING_POLICY},
    {"headroom", "MZ_HEADROOM", "SIZE|own", "own", "free memory of the machine below which it is short",
     MZ_SETTING_POLICY},
    {"hold", "MZ_HOLD", "TIME", "10s", "that soon after use nothing is evicted unless memory is very short",
     MZ_SETTING_POLICY},
    {"clean-on-battery", "MZ_CLEAN_ON_BATTERY", "on|off", "off", "write copies while idle on battery too",
     MZ_SETTING_POLICY},
    {"pressure", "MZ_PRESSURE", "on|off", "on", "watch the memory of the machine and of the cgroup",
     MZ_SETTING_START},
    {"control", "MZ_CONTROL", "on|off", "on", "open the control socket", MZ_SETTING_START},
    {"runtime-dir", "MZ_RUNTIME_DIR", "FOLDER", "", "folder of the control sockets", MZ_SETTING_START},
    {"log", "MZ_LOG", "error|warn|info|debug", "info", "what is said on standard error", MZ_SETTING_START},
};

#define OWN (sizeof(own) / sizeof(*own))

bool mz_setting_row(uint32_t index, struct mz_setting *ret)
{
    uint32_t core = 0;

    for (const struct mz_option_info *info; (info = mz_options_row(core)) != NULL; core++) {
        if (core != index)
            continue;
        *ret = (struct mz_setting){info->name,    info->env,     info->values,
                                   info->initial, info->meaning, MZ_SETTING_CORE};
        return true;
    }
    if (index < core || index - core >= OWN)
        return false;
    *ret = own[index - core];
    return true;
}

bool mz_setting_find(const char *name, struct mz_setting *ret)
{
    struct mz_setting row;

    for (uint32_t i = 0; mz_setting_row(i, &row); i++) {
        if (strcmp(row.name, name) == 0) {
            *ret = row;
            return true;
        }
    }
    return false;
}
