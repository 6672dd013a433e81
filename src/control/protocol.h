/* What the lines on the control socket mean: one JSON object in, one out. mzcache-control(7) is its
 * description. Knows core and watch, nothing of sockets. Any thread. */
#ifndef MZ_CONTROL_PROTOCOL_H
#define MZ_CONTROL_PROTOCOL_H

#include <stddef.h>

#include "control/lanes.h"
#include "control/values.h"

/* The first line that a client gets. Lines end in '\n' and are freed by free(); NULL when out of memory. */
char *mz_protocol_greeting(void);

/* Which lane a request belongs on; nonsense goes to the first. */
enum mz_lane mz_protocol_lane(const char *line, size_t bytes);

/* Carries a request out and returns the reply, at most 64 KiB. May block as its lane says. */
char *mz_protocol_answer(const struct mz_homes *homes, const char *line, size_t bytes);

/* A reply for a request that was not looked at: -EMSGSIZE, -EAGAIN. */
char *mz_protocol_refusal(int err);

#endif
