/* Arguments, by the tables of the subcommands, and what is said about them. */
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

/* -------------------------------------------------------------------------------------------- messages */

static FILE *errors; /* NULL: standard error */

void cli_errors_to(FILE *to)
{
    errors = to;
}

/* "mzcache: text", without an end of line. Returns where it went. */
static FILE *say(const char *format, va_list args)
{
    FILE *to = errors ? errors : stderr;

    (void)fputs("mzcache: ", to);
    (void)vfprintf(to, format, args);
    return to;
}

void cli_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fputc('\n', say(format, args));
    va_end(args);
}

int cli_usage(const struct cli_input *input, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fprintf(say(format, args), " (see mzcache %s --help)\n", input->command->name);
    va_end(args);
    return CLI_USAGE;
}

bool cli_amount(const struct cli_input *input, const char *what, const char *text, struct mz_amount *ret)
{
    int rc = mz_amount_parse(text, ret);

    if (rc == -ERANGE && strchr(text, '%'))
        (void)cli_usage(input, "\"%s\": a percentage is at most 100", text);
    else if (rc < 0)
        (void)cli_usage(input, "\"%s\" is not %s", text, what);
    return rc == 0;
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

/* --------------------------------------------------------------------------------------------- parsing */

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

/* The word for operand number `index` among those that must be there: "MODEL.gguf OUT.gguf"; what is in
 * brackets need not. */
static const char *required(const char *operands, int index, int *ret_length)
{
    for (;; operands += *operands == ' ') {
        size_t length = strcspn(operands, " ");
        if (*operands != '[' && index-- == 0) {
            *ret_length = (int)length;
            return operands;
        }
        operands += length;
    }
}

static bool check(const struct cli_input *input)
{
    const struct cli_command *command = input->command;

    if (input->help)
        return true;
    if (input->n_operands < command->min_operands) {
        int length;
        const char *name = required(command->operands, input->n_operands, &length);
        (void)cli_usage(input, "%.*s is missing", length, name);
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
