/* Values of options, before they are handed over: what the library would refuse is refused here, where
 * somebody reads it. No state. */
#include <string.h>

#include "cli.h"
#include "control/settings.h"
#include "pressure/policy.h"

/* Whether the value is what one word of "SIZE|PERCENT|off" stands for. */
static bool fits(const char *word, size_t length, const char *value)
{
    struct mz_amount amount;
    uint64_t ms;
    uint32_t permyriad;
    bool is_amount = mz_amount_parse(value, &amount) == 0;

    if (strncmp(word, "SIZE", length) == 0)
        return is_amount && !amount.is_share;
    if (strncmp(word, "PERCENT", length) == 0)
        return is_amount && amount.is_share;
    if (strncmp(word, "TIME", 4) == 0) /* TIME[:PERCENT], or TIME alone, which may be 0 */
        return mz_policy_parse_idle(value, &ms, &permyriad) == 0 ||
               (length == 4 && (strcmp(value, "0") == 0 || strcmp(value, "0s") == 0));
    /* PATH, FOLDER, 0..64: the library reads them. */
    if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ0", *word))
        return *value != '\0';
    return strlen(value) == length && strncmp(word, value, length) == 0;
}

bool cli_setting(const struct cli_input *input, const struct mz_setting *setting, const char *value)
{
    for (const char *word = setting->values; *word;) {
        size_t length = strcspn(word, "|");
        if (fits(word, length, value))
            return true;
        word += length + (word[length] == '|');
    }
    (void)cli_usage(input, "%s: \"%s\" is not %s", setting->name, value, setting->values);
    return false;
}
