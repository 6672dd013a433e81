/* Arguments and help texts, from the tables of the subcommands. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "control/settings.h"

static const struct cli_option help_option = {"help", 'h', NULL, "show this text"};

size_t cli_options(const struct cli_command *command, struct cli_option ret[CLI_OPTIONS])
{
    struct mz_setting setting;
    size_t n = 0;

    for (const struct cli_option *o = command->options; o && o->name && n < CLI_OPTIONS - 1; o++)
        ret[n++] = *o;
    for (uint32_t i = 0; command->settings && n < CLI_OPTIONS - 1 && mz_setting_row(i, &setting); i++)
        ret[n++] = (struct cli_option){setting.name, 0, setting.values, setting.help};
    ret[n++] = help_option;
    return n;
}

/* ------------------------------------------------------------------------------------------------- messages
 */

void cli_error(const char *format, ...)
{
    va_list args;

    (void)fputs("mzcache: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

int cli_usage(const struct cli_input *input, const char *format, ...)
{
    va_list args;

    (void)fputs("mzcache: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, " (see mzcache %s --help)\n", input->command->name);
    return CLI_USAGE;
}

bool cli_count(const struct cli_input *input, const char *what, const char *text, uint64_t *ret)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value == 0) {
        (void)cli_usage(input, "%s: \"%s\" is not a positive whole number", what, text);
        return false;
    }
    *ret = value;
    return true;
}

/* ------------------------------------------------------------------------------------------------- help */

static void print_option(const struct cli_option *option)
{
    char left[64];

    (void)snprintf(left, sizeof(left), "%s%c%s--%s%s%s", option->letter ? "-" : " ",
                   option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
                   option->value ? " " : "", option->value ? option->value : "");
    (void)printf("  %-34s %s%s\n", left, strlen(left) > 34 ? "\n                                     " : "",
                 option->help);
}

static void print_default(const char *name)
{
    struct mz_setting setting;

    if (mz_setting_find(name, &setting))
        (void)printf("                                     [%s%s%s]\n", setting.env,
                     *setting.initial ? ", default " : "", setting.initial);
}

void cli_help(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    (void)printf("Usage: mzcache %s [OPTION]...%s%s\n\n%s.\n", command->name, *command->operands ? " " : "",
                 command->operands, command->summary);
    if (command->help)
        (void)printf("\n%s", command->help);
    (void)printf("\nOptions:\n");
    for (size_t i = 0; i < n; i++) {
        print_option(&options[i]);
        if (command->settings)
            print_default(options[i].name);
    }
    (void)printf("\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no such process, 4 limit refused%s.\n",
                 command->settings ? ", else the program's own, 126 or 127 when it cannot be started" : "");
}

void cli_help_all(void)
{
    (void)printf("Usage: mzcache COMMAND [OPTION]... [OPERAND]...\n\n"
                 "Gives the memory of an idle language model back, and brings it back fast.\n\nCommands:\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden)
            (void)printf("  %-10s %s\n", (*c)->name, (*c)->summary);
    (void)printf("\nmzcache COMMAND --help says more; so does man mzcache.\n"
                 "Sizes are written 500M, 1.5GiB or 20%%; a percentage is one of the model's total.\n");
}

/* ------------------------------------------------------------------------------------------------- parsing
 */

static size_t find_name(const struct cli_input *input, const char *name, size_t length)
{
    for (size_t i = 0; i < input->n_options; i++)
        if (strlen(input->options[i].name) == length && strncmp(input->options[i].name, name, length) == 0)
            return i;
    return input->n_options;
}

static size_t find_letter(const struct cli_input *input, char letter)
{
    for (size_t i = 0; i < input->n_options; i++)
        if (input->options[i].letter == letter && letter)
            return i;
    return input->n_options;
}

/* One option at argv[*at]; moves *at to the last argument that belongs to it. */
static bool take_option(struct cli_input *input, int argc, char **argv, int *at)
{
    const char *text = argv[*at], *value = NULL;
    size_t found;

    if (text[1] == '-') {
        size_t length = strcspn(text + 2, "=");
        found = find_name(input, text + 2, length);
        if (text[2 + length] == '=')
            value = text + 2 + length + 1;
    } else {
        found = find_letter(input, text[1]);
        if (text[2])
            value = text + 2;
    }
    if (found == input->n_options) {
        (void)cli_usage(input, "unknown option %s", text);
        return false;
    }
    const struct cli_option *option = &input->options[found];
    if (option->value && !value && *at + 1 < argc)
        value = argv[++*at];
    if (!option->value != !value) {
        (void)cli_usage(input, "option --%s %s", option->name, value ? "takes no value" : "needs a value");
        return false;
    }
    input->values[found] = option->value ? value : "";
    return true;
}

static bool check(const struct cli_input *input)
{
    const struct cli_command *command = input->command;

    if (input->help)
        return true;
    if (input->n_operands < command->min_operands) {
        (void)cli_usage(input, "%s is missing", command->operands);
        return false;
    }
    if (command->max_operands >= 0 && input->n_operands > command->max_operands) {
        (void)cli_usage(input, "\"%s\" is one operand too many", input->operands[command->max_operands]);
        return false;
    }
    return true;
}

bool cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_input *ret)
{
    bool only_operands = false;

    *ret = (struct cli_input){.command = command, .operands = argv};
    ret->n_options = cli_options(command, ret->options);
    for (int i = 0; i < argc; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
            if (!take_option(ret, argc, argv, &i))
                return false;
        } else {
            argv[ret->n_operands++] = argv[i];
            only_operands = only_operands || command->settings;
        }
    }
    if (ret->n_operands < argc)
        argv[ret->n_operands] = NULL;
    ret->help = cli_value(ret, "help") != NULL;
    return check(ret);
}

const char *cli_value(const struct cli_input *input, const char *name)
{
    size_t i = find_name(input, name, strlen(name));

    return i < input->n_options ? input->values[i] : NULL;
}

bool cli_takes(const struct cli_input *input, const char *name)
{
    return find_name(input, name, strlen(name)) < input->n_options;
}
