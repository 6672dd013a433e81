/* Help texts, from the tables of the subcommands. No state. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "control/settings.h"

#define FOLD_COLUMN 80 /* what is longer goes on in the next line */
#define HELP_COLUMN 30 /* of what an option is for */

/* Prints the text from column `indent` on, where the cursor is already, folded at spaces. */
static void print_folded(const char *text, int indent)
{
    int column = indent;

    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > FOLD_COLUMN) {
            (void)printf("\n%*s", indent, "");
            column = indent;
        }
        (void)printf("%s%.*s", column > indent ? " " : "", length, text);
        column += length + (column > indent);
        text += length;
        if (*text == '\n' && text[1])
            (void)printf("\n%*s", indent, "");
        column = *text == '\n' ? indent : column;
        text += *text != '\0';
    }
    (void)putchar('\n');
}

static void print_option(const struct cli_option *option)
{
    struct mz_setting setting;
    char left[64], help[512];

    (void)snprintf(left, sizeof(left), "  %s%c%s--%s%s%s", option->letter ? "-" : " ",
                   option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
                   option->value ? " " : "", option->value ? option->value : "");
    (void)printf("%-*s", HELP_COLUMN, left);
    if (strlen(left) + 2 > HELP_COLUMN)
        (void)printf("\n%*s", HELP_COLUMN, "");
    if (mz_setting_find(option->name, &setting) && setting.help == option->help)
        (void)snprintf(help, sizeof(help), "%s (%s%s%s)", setting.help, setting.env,
                       *setting.initial ? ", default " : "", setting.initial);
    else
        (void)snprintf(help, sizeof(help), "%s", option->help);
    print_folded(help, HELP_COLUMN);
}

/* How the options of `run` are told apart: those that most people come for stand first. */
enum group { OF_COMMAND, OF_WHEN, OF_WHERE, OF_PROCESS, OF_COMPARISON, GROUPS };

static enum group group_of(const struct cli_command *command, const char *name)
{
    static const char *const compared[] = {"order",   "overlap", "paths", "rule",
                                           "workers", "request", "uring"};
    struct mz_setting setting;

    if (!command->settings || !mz_setting_find(name, &setting))
        return OF_COMMAND;
    for (size_t i = 0; i < sizeof(compared) / sizeof(*compared); i++)
        if (strcmp(name, compared[i]) == 0)
            return OF_COMPARISON;
    if (setting.home == MZ_SETTING_CORE)
        return OF_WHERE;
    return setting.home != MZ_SETTING_START || strcmp(name, "pressure") == 0 ? OF_WHEN : OF_PROCESS;
}

static void print_group(const struct cli_command *command, enum group group)
{
    static const char *const titles[GROUPS] = {"Options", "When memory is given back, and how much",
                                               "Where it goes, and how it is kept", "The process",
                                               "For comparing and measuring"};
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);
    bool begun = false;

    for (size_t i = 0; i < n; i++) {
        if (group_of(command, options[i].name) != group)
            continue;
        if (!begun)
            (void)printf("\n%s:\n", titles[group]);
        print_option(&options[i]);
        begun = true;
    }
}

void cli_help(const struct cli_command *command)
{
    char summary[256];

    (void)printf("Usage: mzcache %s [OPTION]...%s%s\n\n", command->name, *command->operands ? " " : "",
                 command->operands);
    (void)snprintf(summary, sizeof(summary), "%s.", command->summary);
    print_folded(summary, 0);
    if (command->help) {
        (void)putchar('\n');
        print_folded(command->help, 0);
    }
    for (enum group group = OF_COMMAND; group < GROUPS; group++)
        print_group(command, group);
    (void)putchar('\n');
    print_folded(command->settings
                     ? "Exit codes: the program's own; 126 or 127 when it cannot be started, "
                       "1 without the plugin, 2 wrong usage."
                     : "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no such process, 4 limit "
                       "refused.",
                 0);
}

void cli_help_all(FILE *to)
{
    (void)fprintf(to, "Usage: mzcache COMMAND [OPTION]... [OPERAND]...\n\n"
                      "mzCache " MZ_VERSION
                      " gives the memory of an idle language model back, and brings it back "
                      "fast.\n\nCommands:\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden)
            (void)fprintf(to, "  %-10s %s\n", (*c)->name, (*c)->summary);
    (void)fprintf(to,
                  "\nmzcache COMMAND --help says more; so does man mzcache.\n"
                  "Sizes are written 500M, 1.5GiB or 20%%; a percentage is one of the model's total.\n"
                  "First steps: mzcache doctor llama-server; mzcache run -- llama-server -m model.gguf\n");
}
