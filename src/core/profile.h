/* The profile: how fast the two restore paths are on this machine, and the times of a unit that follow from
 * it.
 *
 * "Given the sizes of a KV chunk and a weight layer, dividing each by the corresponding throughput yields the
 * three per-unit times" (paper, section 4.3): one measurement serves every model. It is kept as JSON in
 * $XDG_CACHE_HOME/mzcache/profile-<device>.json (else $HOME/.cache/...), one file per storage device. What is
 * measured in use corrects the figures slowly and within bounds; both can be seen.
 *
 * A struct mz_profile is plain data without a lock: whoever owns it guards it. Loading and saving block on a
 * small file. GB are 10^9 bytes, so a throughput in GB/s is bytes per nanosecond. */
#ifndef MZ_CORE_PROFILE_H
#define MZ_CORE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MZ_PROFILE_CODECS  8u  /* ids 0..7 of codec/codec.h */
#define MZ_PROFILE_WORKERS 64u /* threads that measure, at most: core itself has no more than 8 */

/* Request sizes that reading is measured at: 64 KiB << i, up to 4 MiB. */
#define MZ_PROFILE_SIZES          7u
#define MZ_PROFILE_SMALLEST_BYTES (UINT64_C(64) << 10)

/* What is measured. Codec paths: the codec's id is added. */
enum mz_profile_path {
    MZ_PROFILE_READ = 0,    /* storage into fresh huge pages, checksum included */
    MZ_PROFILE_WRITE = 1,   /* to the swap file */
    MZ_PROFILE_DECODE = 16, /* + id: plain bytes, checksum included, by mz_profile_decoders() of the workers */
    MZ_PROFILE_ENCODE = 32, /* + id: plain bytes */
};

struct mz_profile {
    /* As measured: GB/s of all workers together, decoding: of those that decode; 0 where nothing was measured. */
    double read_gbps, write_gbps;
    double decode_gbps[MZ_PROFILE_CODECS], encode_gbps[MZ_PROFILE_CODECS]; /* of plain bytes, by codec id */
    double read_curve_gbps[MZ_PROFILE_SIZES]; /* reading at 64 KiB << i, for display */

    /* What was learned in use: the figure that counts is the measured one times this, 1/4 to 4, 1 at
     * first. */
    double read_factor, write_factor;
    double decode_factor[MZ_PROFILE_CODECS], encode_factor[MZ_PROFILE_CODECS];

    uint32_t request_bytes; /* from which on reading is not faster: the size of one request */
    uint32_t workers;       /* threads that measured, 1..MZ_PROFILE_WORKERS */
    char device[64];        /* "nvme0n1p2"; "dev-0-42" where the kernel has no name; no slash */
    uint64_t when;          /* seconds since 1970; 0: never measured, these are guesses */
};

/* Whether this worker, counted from 0, decodes while others read: every second one does. */
bool mz_profile_decodes(uint32_t worker);

/* How many of so many workers do; a single one does both. */
uint32_t mz_profile_decoders(uint32_t workers);

/* Guesses for when nothing can be measured: 1 GB/s reading, 4 GB/s a decoding worker, 1 MiB requests. */
void mz_profile_guess(struct mz_profile *ret, uint32_t workers);

/* The name of a block device (st_dev, as in struct mz_file) for `device`: of /sys/dev/block, else
 * "dev-MAJOR-MINOR". -ENOSPC: `size` (64 suffices) is too small. */
int mz_profile_device(uint64_t dev, char *buf, size_t size);

/* Where the profile of a device is kept. -EINVAL: "" or a slash in the name; -ENOENT: no cache folder ($HOME
 * is not set); -ENAMETOOLONG. */
int mz_profile_path(const char *device, char *buf, size_t size);

/* Reads the profile of a device. -ENOENT: none yet; -EBADMSG: malformed, of another version or device, or
 * with figures that cannot be (the caller measures again); -ENOMEM, -EIO, ... */
int mz_profile_load(const char *device, struct mz_profile *ret);

/* Writes the profile to its place, whole or not at all; makes the folder. Factors are kept. -EINVAL: figures
 * that loading would refuse; -ENOSPC, -EACCES, ... */
int mz_profile_save(const struct mz_profile *profile);

/* The same from and to text, for the command and the tests. The text is freed by free(). */
int mz_profile_parse(const char *text, struct mz_profile *ret);
int mz_profile_print(const struct mz_profile *profile, char **ret_text);

/* The figure that counts on a path: measured times learned, a guess where nothing was measured; always more
 * than 0. */
double mz_profile_gbps(const struct mz_profile *profile, uint32_t path);

/* Nanoseconds that restoring takes while the path runs at full speed with its workers. Whole numbers, so that
 * sums of them are exact in any order. `codec`: its id; decode: of plain bytes. */
double mz_profile_read_ns(const struct mz_profile *profile, uint64_t bytes);
double mz_profile_decode_ns(const struct mz_profile *profile, uint32_t codec, uint64_t bytes);

/* Something took this long in use, all workers together on the path. Moves the factor by at most 1/8 of the
 * way, and by less for less than 64 MiB; samples under 1 MiB are ignored, and one that is off by more than 4
 * counts as 4. */
void mz_profile_learn(struct mz_profile *profile, uint32_t path, uint64_t bytes, uint64_t ns);

#endif
