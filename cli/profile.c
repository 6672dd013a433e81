/* mzcache profile: measures how fast this machine restores. Works without any process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/profile.h"
#include "core/profile_measure.h"
#include "machine.h"

static void print_text(const struct mz_profile *p)
{
    (void)printf("device %s, %u threads\n", p->device, p->workers);
    (void)printf("  reading into fresh memory  %6.2f GB/s  in requests of %u KiB\n", p->read_gbps,
                 p->request_bytes / 1024);
    for (unsigned i = 0; i < MZ_PROFILE_SIZES; i++)
        if (p->read_curve_gbps[i] > 0)
            (void)printf("    %5u KiB                %6.2f GB/s\n", 64u << i, p->read_curve_gbps[i]);
    (void)printf("  writing                    %6.2f GB/s\n", p->write_gbps);
    for (unsigned id = 0; id < MZ_PROFILE_CODECS; id++)
        if (p->decode_gbps[id] > 0)
            (void)printf("  codec %-10s           %6.2f GB/s decoding, %.2f GB/s encoding (plain bytes)\n",
                         machine_codec(id), p->decode_gbps[id], p->encode_gbps[id]);
}

static int print_json(const struct mz_profile *p)
{
    char *text;
    int rc = mz_profile_print(p, &text);

    if (rc < 0)
        return rc;
    (void)fputs(text, stdout);
    free(text);
    return 0;
}

static int measure(const struct cli_input *input, const char *folder, uint64_t workers,
                   struct mz_profile *ret)
{
    struct mz_profile_job job = {
        .folder = folder,
        .force = cli_value(input, "force"),
        .full = !cli_value(input, "quick"),
        .uring = true,
        .workers = (uint32_t)workers,
    };
    int rc = mz_profile_measure(&job, ret);

    return rc < 0 ? rc : mz_profile_save(ret);
}

static int failed(const char *folder, int rc)
{
    if (rc == -EMEDIUMTYPE)
        cli_error("%s lies in memory (tmpfs): name another folder with --swap-folder", folder);
    else
        cli_error("%s: %s", folder, strerror(-rc));
    return CLI_FAILED;
}

static int run(const struct cli_input *input)
{
    char folder[4096], path[4096];
    const char *text = cli_value(input, "workers");
    uint64_t workers = machine_workers();
    struct mz_profile profile;

    if (text && !cli_count(input, "--workers", text, &workers))
        return CLI_USAGE;
    if (workers > MZ_PROFILE_WORKERS)
        return cli_usage(input, "--workers: at most %u", MZ_PROFILE_WORKERS);
    int rc = machine_swap_folder(cli_value(input, "swap-folder"), folder, sizeof(folder));
    if (rc == 0)
        rc = measure(input, folder, workers, &profile);
    if (rc < 0)
        return failed(folder, rc);
    if (cli_value(input, "json"))
        return print_json(&profile) < 0 ? CLI_FAILED : CLI_OK;
    print_text(&profile);
    if (mz_profile_path(profile.device, path, sizeof(path)) == 0)
        (void)printf("kept in %s\n", path);
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"swap-folder", 's', "FOLDER",
     "measure the device of this folder; default: where the swap file would be"},
    {"workers", 'w', "COUNT", "threads, 1..64; default: as many as restoring would use"},
    {"quick", 'q', NULL, "one second in place of ten"},
    {"force", 'f', NULL, "also a folder that lies in memory (tmpfs)"},
    {"json", 'j', NULL, "print the profile as it is kept"},
    {0},
};

const struct cli_command cli_profile = {
    .name = "profile",
    .operands = "",
    .summary = "Measure how fast this machine reads and decodes, and keep it for all models",
    .help = "Once per machine, while it does nothing else. Without it, mzCache measures for a second by "
            "itself, at "
            "the first eviction, and keeps that.\n",
    .options = options,
    .run = run,
};
