/* The one table of options: name, environment variable, default, meaning. mzcache run takes its options from
 * it, --help and the completions print it, the library reads the variables by it. Core's own table comes
 * first, then what the memory watch and the process keep. Read-only data. */
#ifndef MZ_CONTROL_SETTINGS_H
#define MZ_CONTROL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

enum mz_setting_home {
    MZ_SETTING_CORE,   /* kept by core, by the same name */
    MZ_SETTING_POLICY, /* kept by the memory watch */
    MZ_SETTING_LIMIT,  /* the ledger's bound */
    MZ_SETTING_START   /* read once at start */
};

/* One row; the texts are constant. */
struct mz_setting {
    const char *name, *env;
    const char *values;  /* as shown to people: "exact|q8", "SIZE|PERCENT" */
    const char *initial; /* default, as text */
    const char *help;
    enum mz_setting_home home;
};

/* Row number `index`, counted from 0. False behind the last. */
bool mz_setting_row(uint32_t index, struct mz_setting *ret);

/* The row of that name. False: there is none. */
bool mz_setting_find(const char *name, struct mz_setting *ret);

#endif
