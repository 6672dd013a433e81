/* The command mzcache: what its subcommands share.
 *
 * One file per subcommand, each with one struct cli_command; commands.c has the table of them. Help texts,
 * parsing and shell completion come from these tables alone. Single-threaded. */
#ifndef MZ_CLI_H
#define MZ_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "control/client.h"
#include "control/size.h"

/* Exit codes, as mzcache(1) lists them. `run` ends with the program's own, or 126, 127 when it cannot be
 * started. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the process answered with an error, or does not answer */
    CLI_USAGE = 2,
    CLI_NO_PROCESS = 3, /* none with a model, not that one, or it ended meanwhile */
    CLI_REFUSED = 4,    /* a limit below the floor */
    CLI_CANNOT_RUN = 126,
    CLI_NOT_FOUND = 127
};

struct cli_option {
    const char *name;
    char letter;       /* 0: none */
    const char *value; /* what follows it, as shown: "PID"; NULL: nothing */
    const char *help;
};

#define CLI_OPTIONS 48

struct cli_input;

struct cli_command {
    const char *name, *operands, *summary;
    const char *help;                 /* more for --help, paragraphs between newlines; may be NULL */
    const struct cli_option *options; /* ends with an empty name; without --help, which all have */
    bool settings; /* takes every option of control/settings.h too, and stops at the first operand */
    bool hidden;
    int min_operands, max_operands; /* max -1: any number */
    int (*run)(const struct cli_input *input);
};

struct cli_input {
    const struct cli_command *command;
    struct cli_option options[CLI_OPTIONS];
    const char *values[CLI_OPTIONS]; /* NULL: not given; "" for options without a value */
    size_t n_options;
    char **operands; /* NULL behind the last */
    int n_operands;
    bool help;
};

/* Ends with NULL. */
extern const struct cli_command *const cli_commands[];

extern const struct cli_command cli_run, cli_ps, cli_status, cli_evict, cli_restore, cli_limit, cli_option,
    cli_profile, cli_pack, cli_top, cli_log, cli_doctor, cli_completion;

/* ---------------------------------------------------------------------------------------------- help.c */

void cli_help(const struct cli_command *command);
void cli_help_all(FILE *to);

/* --------------------------------------------------------------------------------------------- input.c */

/* All options that the command takes, --help counted in. Returns their number. */
size_t cli_options(const struct cli_command *command, struct cli_option ret[CLI_OPTIONS]);

/* Reads the arguments behind the subcommand; operands are moved together within argv. False: wrong, and it
 * was said why. */
bool cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_input *ret);

/* The option's value, or NULL when it was not given. */
const char *cli_value(const struct cli_input *input, const char *name);

/* Whether the command has this option. */
bool cli_takes(const struct cli_input *input, const char *name);

/* "mzcache: text" on standard error. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Where cli_error() and cli_usage() go; NULL: standard error, as at first. */
void cli_errors_to(FILE *to);

/* The same with "see mzcache NAME --help", and CLI_USAGE. */
int cli_usage(const struct cli_input *input, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A size or a percentage; `what` it should be: "a size or a percentage". False, and said why, when it is not.
 */
bool cli_amount(const struct cli_input *input, const char *what, const char *text, struct mz_amount *ret);

/* Whether the option takes this value: "TIME[:PERCENT]|off". False, and said why, when it does not. */
struct mz_setting;
bool cli_setting(const struct cli_input *input, const struct mz_setting *setting, const char *value);

/* A positive whole number. False, and said why, when it is none. */
bool cli_count(const struct cli_input *input, const char *what, const char *text, uint64_t *ret);

/* -------------------------------------------------------------------------------------------- target.c */

/* One process and what it says about itself ("brief" of mzcache-control(7)). */
struct cli_target {
    struct mz_client *client;
    json_t *brief;
    pid_t pid;
    char program[64];
};

/* Finds the process of --pid, or all that have a model, the one idle longest first. CLI_OK and at least one,
 * or the exit code after saying why. Freed by cli_targets_free(). */
int cli_targets(const struct cli_input *input, struct cli_target **ret, size_t *ret_n);

/* One process, without a word: 0 or negative errno (-ENOENT: it has no socket; -ECONNRESET: it ended). Closed
 * by cli_target_close(). */
int cli_target_open(pid_t pid, struct cli_target *ret);
void cli_target_close(struct cli_target *target);

/* All processes with a socket, also those without a model; none is no error. */
int cli_targets_all(struct cli_target **ret, size_t *ret_n);

/* cli_targets(), but more than one is an error that asks for --pid, unless the command has --all and it was
 * given. */
int cli_targets_one(const struct cli_input *input, struct cli_target **ret, size_t *ret_n);

void cli_targets_free(struct cli_target *targets, size_t n);

/* Does this with each of them and frees them. CLI_OK, or the last exit code that was not; all had their turn.
 */
int cli_each(const struct cli_input *input, struct cli_target *targets, size_t n,
             int (*one)(const struct cli_input *input, const struct cli_target *target));

/* Sends a request (taken) and returns the reply, NULL after saying why when the process does not answer or
 * answers with an error. `ret_exit` then is the exit code. timeout_ms 0: as long as it takes. */
json_t *cli_ask(const struct cli_target *target, json_t *request, uint32_t timeout_ms, int *ret_exit);

#define CLI_ASK_MS 10000 /* for what needs no waiting */

/* -------------------------------------------------------------------------------------------- output.c */

/* Members of an object; 0 or false or "" where they are missing. */
uint64_t cli_number(const json_t *object, const char *key);
double cli_real(const json_t *object, const char *key);
bool cli_true(const json_t *object, const char *key);
const char *cli_text(const json_t *object, const char *key);

/* Prints one line of JSON: the object with "pid" and "program" of the target, without "ok". */
void cli_print_json(const struct cli_target *target, const json_t *object);

#define CLI_TEXT 32

/* "512 MiB" / "4 s", "3 min", "never used"; buf holds CLI_TEXT bytes and is returned. */
const char *cli_size(uint64_t bytes, char *buf);
const char *cli_idle(const json_t *brief, char *buf);

/* The same as part of a sentence: "idle 4 s", "computing", "never used". */
const char *cli_activity(const json_t *brief, char *buf);

#define CLI_EVENT 256

/* One event: what, how much, how long it took, why. buf holds CLI_EVENT bytes and is returned. */
const char *cli_event(const json_t *event, char *buf);

/* Seconds since 1970 as strftime() has them, or "" where that is no time of this world. buf holds CLI_TEXT.
 */
const char *cli_clock(double time_s, const char *format, char *buf);

/* Name of the model's file, or "-" where it is not known. */
const char *cli_model(const json_t *brief);

#endif
