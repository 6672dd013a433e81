/* mzcache completion: prints the shell completion, made from the tables of the subcommands. The files in
 * packaging/ are its output; a test compares them, others ask real shells with them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "control/settings.h"

/* What stands behind an option or a command, told from the text that --help shows for it. */
enum kind { KIND_NOTHING, KIND_WORDS, KIND_PID, KIND_FILE, KIND_PROGRAM, KIND_SETTING };

/* The next alternative of "SIZE|PERCENT|off" that is a word to be typed as it stands (no capitals, no range),
 * and its length. NULL: no more. */
static const char *next_word(const char **values, size_t *ret_length)
{
    while (**values) {
        const char *word = *values;
        size_t length = strcspn(word, "|");
        bool literal = length > 0;

        for (size_t i = 0; i < length; i++)
            literal = literal &&
                      (islower((unsigned char)word[i]) || word[i] == '-' || isdigit((unsigned char)word[i]));
        *values = word + length + (word[length] == '|');
        if (literal) {
            *ret_length = length;
            return word;
        }
    }
    return NULL;
}

static bool has_words(const char *values)
{
    size_t length;

    return next_word(&values, &length) != NULL;
}

/* The words, with a space between. */
static void print_words(const char *values)
{
    const char *word, *gap = "";
    size_t length;

    while ((word = next_word(&values, &length)) != NULL) {
        (void)printf("%s%.*s", gap, (int)length, word);
        gap = " ";
    }
}

static enum kind kind_of(const char *values)
{
    if (!values)
        return KIND_NOTHING;
    if (strcmp(values, "PID") == 0)
        return KIND_PID;
    if (strncmp(values, "[NAME", 5) == 0)
        return KIND_SETTING;
    if (strcmp(values, "FOLDER") == 0 || strcmp(values, "PATH") == 0 || strstr(values, ".gguf"))
        return KIND_FILE;
    if (strstr(values, "PROGRAM"))
        return KIND_PROGRAM;
    return has_words(values) ? KIND_WORDS : KIND_NOTHING;
}

/* The names of all settings, or of all commands that are shown. */
static void print_settings(void)
{
    struct mz_setting setting;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++)
        (void)printf("%s%s", i ? " " : "", setting.name);
}

static void print_commands(void)
{
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden)
            (void)printf("%s ", (*c)->name);
}

/* ------------------------------------------------------------------------------------------------- bash */

/* What to offer for one value or operand. */
static void bash_offer(const char *values)
{
    switch (kind_of(values)) {
    case KIND_WORDS:
        (void)printf("_mzcache_words '");
        print_words(values);
        (void)printf("'");
        break;
    case KIND_PID:
        (void)printf("_mzcache_pids");
        break;
    case KIND_FILE:
        (void)printf("_mzcache_files");
        break;
    case KIND_PROGRAM:
        (void)printf("COMPREPLY=($(compgen -c -- \"$cur\"))");
        break;
    case KIND_SETTING:
        (void)printf("_mzcache_words '");
        print_settings();
        (void)printf("'");
        break;
    case KIND_NOTHING:
        break;
    }
}

/* One case for each option of the command that is followed by something: its value. */
static void bash_values(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    for (size_t i = 0; i < n; i++) {
        if (!options[i].value)
            continue;
        (void)printf("    %s:--%s", command->name, options[i].name);
        if (options[i].letter)
            (void)printf(" | %s:-%c", command->name, options[i].letter);
        (void)printf(") ");
        bash_offer(options[i].value);
        (void)printf("%sreturn ;;\n", kind_of(options[i].value) == KIND_NOTHING ? "" : "; ");
    }
}

/* The values behind the name of a setting. */
static void bash_setting_values(void)
{
    struct mz_setting setting;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        if (kind_of(setting.values) == KIND_NOTHING)
            continue;
        (void)printf("    option:%s) ", setting.name);
        bash_offer(setting.values);
        (void)printf("; return ;;\n");
    }
}

static void bash_options(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    (void)printf("    %s:-*) _mzcache_words '", command->name);
    for (size_t i = 0; i < n; i++)
        (void)printf("%s--%s", i ? " " : "", options[i].name);
    (void)printf("' ;;\n");
}

static void bash_operands(const struct cli_command *command)
{
    if (kind_of(command->operands) == KIND_NOTHING)
        return;
    (void)printf("    %s:*) ", command->name);
    bash_offer(command->operands);
    (void)printf(" ;;\n");
}

/* Where in the words the program of `run` stands: behind options, their values, and the two dashes. */
static void bash_program(void)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(&cli_run, options);

    (void)printf("# Completes as the program of run would; fails while that is not named yet.\n"
                 "_mzcache_program()\n{\n  local i\n  for ((i = 2; i < COMP_CWORD; i++)); do\n"
                 "    case ${COMP_WORDS[i]} in\n      --) ((i++)); break ;;\n      ");
    for (size_t i = 0; i < n; i++) {
        if (!options[i].value && options[i].letter)
            (void)printf("-%c | ", options[i].letter);
        if (!options[i].value)
            (void)printf("--%s%s", options[i].name, i + 1 < n ? " | " : ") ;;\n");
    }
    (void)printf(
        "      -*) ((i++)); if [ \"${COMP_WORDS[i]}\" = = ]; then ((i++)); fi ;;\n"
        "      *) break ;;\n    esac\n  done\n"
        "  if ((i > COMP_CWORD)) || { ((i == COMP_CWORD)) && [[ $cur == -* ]]; }; then\n    return 1\n"
        "  fi\n"
        "  if declare -F _command_offset >/dev/null; then\n    _command_offset \"$i\"\n"
        "  elif ((i == COMP_CWORD)); then\n    COMPREPLY=($(compgen -c -- \"$cur\"))\n"
        "  else\n    _mzcache_files\n  fi\n}\n\n");
}

static void bash(void)
{
    (void)printf("# bash completion for mzcache; made by: mzcache completion bash\n\n"
                 "_mzcache_words()\n{\n  COMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n}\n\n"
                 "_mzcache_pids()\n{\n"
                 "  _mzcache_words \"$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')\"\n}\n\n"
                 "_mzcache_files()\n{\n  compopt -o filenames 2>/dev/null\n"
                 "  mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n}\n\n");
    bash_program();
    (void)printf(
        "_mzcache()\n{\n"
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]}\n"
        "  if ((COMP_CWORD == 1)); then\n    _mzcache_words '");
    print_commands();
    (void)printf("--help --version'\n    return\n  fi\n"
                 "  # --kv=q8 comes as three words.\n"
                 "  if [ \"$cur\" = = ]; then\n    cur=\n"
                 "  elif [ \"$prev\" = = ]; then\n    prev=${COMP_WORDS[COMP_CWORD-2]}\n  fi\n"
                 "  if [ \"$cmd\" = run ] && _mzcache_program; then\n    return\n  fi\n"
                 "  case $cmd:$prev in\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        bash_values(*c);
    bash_setting_values();
    (void)printf("  esac\n  case $cmd:$cur in\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        bash_options(*c);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (*c != &cli_run)
            bash_operands(*c);
    (void)printf("  esac\n}\ncomplete -F _mzcache mzcache\n");
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

/* ":what it is:what to offer" for one value or operand. */
static void zsh_offer(const char *values)
{
    (void)putchar(':');
    zsh_text(values);
    (void)putchar(':');
    switch (kind_of(values)) {
    case KIND_WORDS:
        (void)putchar('(');
        print_words(values);
        (void)putchar(')');
        break;
    case KIND_PID:
        (void)printf("_mzcache_pids");
        break;
    case KIND_FILE:
        (void)printf("_files");
        break;
    case KIND_PROGRAM:
        (void)printf(" _command_names -e"); /* the space: no arguments are put in between */
        break;
    case KIND_SETTING:
        (void)putchar('(');
        print_settings();
        (void)putchar(')');
        break;
    case KIND_NOTHING:
        (void)putchar(' ');
        break;
    }
}

static void zsh_option(const struct cli_option *option)
{
    (void)printf(" \\\n        '--%s%s[", option->name, option->value ? "=" : "");
    zsh_text(option->help);
    (void)putchar(']');
    if (option->value)
        zsh_offer(option->value);
    (void)putchar('\'');
}

static void zsh_operands(const struct cli_command *command)
{
    if (command->settings) { /* a program and all that follows, completed as that program is */
        (void)printf(" \\\n        '*::: : _normal'");
        return;
    }
    if (kind_of(command->operands) == KIND_SETTING) {
        (void)printf(" \\\n        '1");
        zsh_offer(command->operands);
        (void)printf("' \\\n        '2:value:_mzcache_values'");
    } else if (kind_of(command->operands) != KIND_NOTHING) {
        (void)printf(" \\\n        '*");
        zsh_offer(command->operands);
        (void)putchar('\'');
    }
}

static void zsh_command(const struct cli_command *command)
{
    struct cli_option options[CLI_OPTIONS];
    size_t n = cli_options(command, options);

    (void)printf("    %s)\n      _arguments%s", command->name, command->settings ? " -S -A '-*'" : "");
    for (size_t i = 0; i < n; i++)
        zsh_option(&options[i]);
    zsh_operands(command);
    (void)printf("\n      ;;\n");
}

/* The values behind the name of a setting. */
static void zsh_values(void)
{
    struct mz_setting setting;

    (void)printf("_mzcache_values() {\n  case $line[1] in\n");
    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        if (!has_words(setting.values))
            continue;
        (void)printf("    %s) compadd ", setting.name);
        print_words(setting.values);
        (void)printf(" ;;\n");
    }
    (void)printf("  esac\n}\n\n");
}

static void zsh(void)
{
    (void)printf("#compdef mzcache\n# zsh completion for mzcache; made by: mzcache completion zsh\n\n"
                 "_mzcache_pids() {\n  local -a pids\n"
                 "  pids=(${(f)\"$(_call_program pids mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 \":\" "
                 "$2 }')\"})\n"
                 "  _describe process pids\n}\n\n");
    zsh_values();
    (void)printf("_mzcache() {\n  local -a subcommands line\n  subcommands=(\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        if ((*c)->hidden)
            continue;
        (void)printf("    '%s:", (*c)->name);
        zsh_text((*c)->summary);
        (void)printf("'\n");
    }
    (void)printf("  )\n  if ((CURRENT == 2)); then\n"
                 "    _describe command subcommands\n    return\n  fi\n"
                 "  local cmd=$words[2]\n  shift words\n  ((CURRENT--))\n  case $cmd in\n");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        zsh_command(*c);
    (void)printf("  esac\n}\n\n_mzcache \"$@\"\n");
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
