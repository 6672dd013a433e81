/* The table of subcommands, in the order in which --help shows them. */
#include "cli.h"

const struct cli_command *const cli_commands[] = {
    &cli_run, &cli_ps,  &cli_status, &cli_evict,   &cli_restore, &cli_limit,      &cli_option,
    &cli_top, &cli_log, &cli_doctor, &cli_profile, &cli_pack,    &cli_completion, NULL,
};
