/* mzcache completion: prints the shell completion, made from the tables of the subcommands. The files in
 * packaging/ are its output; a test compares them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Whether the values are words to choose from: "exact|q8". */
static bool is_choice(const char *values)
{
    if (!values || !strchr(values, '|'))
        return false;
    for (const char *c = values; *c; c++)
        if (isupper((unsigned char)*c) || *c == '[' || *c == '.')
            return false;
    return true;
}

static bool is_folder(const char *values)
{
    return values &&
           (strcmp(values, "FOLDER") == 0 || strcmp(values, "PATH") == 0 || strcmp(values, "FILE") == 0);
}

static void print_words(const char *values)
{
    for (; *values; values++)
        (void)putchar(*values == '|' ? ' ' : *values);
}

/* ------------------------------------------------------------------------------------------------- bash */

static void bash_values(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    for (size_t i = 0; i < n; i++) {
        if (is_choice(options[i].value)) {
            (void)printf("    %s:--%s) COMPREPLY=($(compgen -W '", command->name, options[i].name);
            print_words(options[i].value);
            (void)printf("' -- \"$cur\")); return ;;\n");
        } else if (is_folder(options[i].value)) {
            (void)printf("    %s:--%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", command->name,
                         options[i].name);
        } else if (options[i].value && strcmp(options[i].value, "PID") == 0) {
            (void)printf("    %s:--%s) COMPREPLY=($(compgen -W \"$(mzcache ps 2>/dev/null | awk 'NR > 1 { "
                         "print $1 }')\" "
                         "-- \"$cur\")); return ;;\n",
                         command->name, options[i].name);
        }
    }
}

static void bash_options(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    (void)printf("    %s) words='", command->name);
    for (size_t i = 0; i < n; i++)
        (void)printf("%s--%s", i ? " " : "", options[i].name);
    (void)printf("' ;;\n");
}

static void bash(void)
{
    (void)printf("# bash completion for mzcache; made by: mzcache completion bash\n_mzcache()\n{\n"
                 "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
                 "cmd=${COMP_WORDS[1]} words i\n"
                 "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W '");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden)
            (void)printf("%s ", (*c)->name);
    (void)printf("--help --version' -- \"$cur\"))\n    return\n  fi\n"
                 "  # Behind its -- or program, run completes that program's arguments.\n"
                 "  if [ \"$cmd\" = run ]; then\n    for ((i = 2; i < COMP_CWORD; i++)); do\n"
                 "      case ${COMP_WORDS[i]} in --) COMPREPLY=($(compgen -c -f -- \"$cur\")); return ;; "
                 "esac\n    done\n  fi\n"
                 "  case $cmd:$prev in\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        bash_values(*c);
    (void)printf("  esac\n  case $cmd in\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        bash_options(*c);
    (void)printf(
        "  esac\n  case $cmd:$cur in\n    *:-*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
        "    run:*) COMPREPLY=($(compgen -c -- \"$cur\")) ;;\n"
        "    pack:*) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
        "    limit:*) COMPREPLY=($(compgen -W off -- \"$cur\")) ;;\n  esac\n}\ncomplete -F _mzcache "
        "mzcache\n");
}

/* ------------------------------------------------------------------------------------------------- zsh */

/* In brackets and single quotes: what has a meaning there is set off. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            (void)putchar('\\');
        if (*text == '\'')
            (void)printf("'\\'");
        (void)putchar(*text);
    }
}

static void zsh_option(const struct cli_option *option)
{
    (void)printf("        '--%s%s[", option->name, option->value ? "=" : "");
    zsh_text(option->help);
    (void)putchar(']');
    if (is_choice(option->value)) {
        (void)printf(":value:(");
        print_words(option->value);
        (void)putchar(')');
    } else if (is_folder(option->value)) {
        (void)printf(":path:_files");
    } else if (option->value) {
        (void)putchar(':');
        zsh_text(option->value);
        (void)printf(": ");
    }
    (void)printf("' \\\n");
}

static void zsh_command(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    (void)printf("    %s)\n      _arguments%s \\\n", command->name, command->settings ? " -S" : "");
    for (size_t i = 0; i < n; i++)
        zsh_option(&options[i]);
    if (command->settings)
        (void)printf("        '*::program:_normal'\n      ;;\n");
    else if (command->max_operands)
        (void)printf("        '*:operand:_files'\n      ;;\n");
    else
        (void)printf("        && return\n      ;;\n");
}

static void zsh(void)
{
    (void)printf(
        "#compdef mzcache\n# zsh completion for mzcache; made by: mzcache completion zsh\n_mzcache() {\n"
        "  local -a commands\n  commands=(\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        if ((*c)->hidden)
            continue;
        (void)printf("    '%s:", (*c)->name);
        zsh_text((*c)->summary);
        (void)printf("'\n");
    }
    (void)printf("  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n"
                 "  local cmd=$words[2]\n  shift words\n  ((CURRENT--))\n  case $cmd in\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        zsh_command(*c);
    (void)printf("  esac\n}\n_mzcache \"$@\"\n");
}

static int run(const struct cli_input *input)
{
    if (strcmp(input->operands[0], "bash") == 0)
        bash();
    else if (strcmp(input->operands[0], "zsh") == 0)
        zsh();
    else
        return cli_usage(input, "there is no completion for \"%s\"", input->operands[0]);
    return CLI_OK;
}

const struct cli_command cli_completion = {
    .name = "completion",
    .operands = "bash|zsh",
    .summary = "Print the shell completion",
    .hidden = true,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
