/* The command mzcache: finds the subcommand and hands over. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct cli_command *find(const char *name)
{
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct cli_input input;

    if (!cli_parse(command, argc, argv, &input))
        return CLI_USAGE;
    if (input.help) {
        cli_help(command);
        return CLI_OK;
    }
    return command->run(&input);
}

int main(int argc, char **argv)
{
    int rc = CLI_OK;

    if (argc < 2) {
        cli_error("a command is missing\n");
        cli_help_all(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2) { /* help COMMAND is COMMAND --help */
        argv[1] = argv[2];
        argv[2] = "--help";
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        cli_help_all(stdout);
    } else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        (void)puts("mzcache " MZ_VERSION);
    } else {
        const struct cli_command *command = find(argv[1]);
        if (!command) {
            cli_error("unknown command \"%s\" (see mzcache --help)", argv[1]);
            return CLI_USAGE;
        }
        rc = run(command, argc - 2, argv + 2);
    }
    /* What was promised on standard output must have arrived. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return rc == CLI_OK ? CLI_FAILED : rc;
    return rc;
}
