/* Sources of pressure: each watches one thing and adds what it learns to a sample.
 *
 * A source belongs to one thread at a time: to the starter until the watcher runs, then to the watcher.
 * Nothing here allocates. A source is opened once; when a call fails for good it is closed, its detail says
 * why, and the watcher goes on with the others. */
#ifndef MZ_PRESSURE_SOURCE_H
#define MZ_PRESSURE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pressure/policy.h"

struct mz_pressure_source;

struct mz_pressure_source_ops {
    const char *name;

    /* Probes. 0: live, with fd and events set where there is something to poll, and `detail` saying how it is
     * watched. Negative errno: not to be had here; `detail` may say why. */
    int (*open)(struct mz_pressure_source *s);

    /* The descriptor is ready. 0, or negative errno: it is gone. NULL where there is no descriptor. */
    int (*event)(struct mz_pressure_source *s, short revents, struct mz_policy_sample *sample);

    /* Adds figures to the sample, whose clocks are set. 0, or negative errno: nothing was added. NULL: no
     * figures. */
    int (*read)(struct mz_pressure_source *s, struct mz_policy_sample *sample);

    bool once; /* it is told to us at start and not looked for again when it is gone */
};

struct mz_pressure_source {
    const struct mz_pressure_source_ops *ops;
    bool live;
    int fd;            /* -1: polled only */
    short events;      /* to poll fd for */
    bool triggers;     /* fd becomes ready as soon as anybody on the machine stalls */
    uint32_t failures; /* reads in a row */
    uint64_t retry_ns; /* when a dead source is probed again */
    char detail[112];

    /* Private to the source. */
    char path[512];
    bool primed;                             /* the counters below are valid */
    uint64_t counters[3];                    /* as read last */
    uint64_t counted_ns;                     /* when */
    uint32_t some_permyriad, full_permyriad; /* of the last interval */
    bool fifo;
};

extern const struct mz_pressure_source_ops mz_pressure_source_systemd;   /* source_systemd.c */
extern const struct mz_pressure_source_ops mz_pressure_source_psi_group; /* source_psi.c */
extern const struct mz_pressure_source_ops mz_pressure_source_psi_system;
extern const struct mz_pressure_source_ops mz_pressure_source_group_events; /* source_group.c */
extern const struct mz_pressure_source_ops mz_pressure_source_group_limit;
extern const struct mz_pressure_source_ops mz_pressure_source_meminfo; /* source_meminfo.c */

/* Opens; afterwards `live` says whether it worked. A closed source can be opened again. */
void mz_pressure_source_open(struct mz_pressure_source *s, const struct mz_pressure_source_ops *ops);

/* Closes; `err` (negative errno, 0: none) becomes the detail. */
void mz_pressure_source_close(struct mz_pressure_source *s, int err);

/* Whether $MEMORY_PRESSURE_WATCH turns everything off. */
bool mz_pressure_source_switched_off(void);

/* The `total` counters, in microseconds, of a PSI file. A missing "full" line counts as 0. -EBADMSG. */
int mz_psi_parse(const char *text, uint64_t *ret_some_us, uint64_t *ret_full_us);

/* Decodes base64 (RFC 4648, padding required, blanks not allowed). -EBADMSG, -ENOBUFS. */
int mz_base64_decode(const char *text, void *buf, size_t size, size_t *ret_bytes);

#endif
