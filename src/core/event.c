/* The last things that happened, for `mzcache log` and `top`: a ring of fixed size, so that remembering never fails. */
#include <stdio.h>

#include "core/state.h"
#include "os/os.h"

void mz_event_add(struct mz_core *core, const char *what, const char *why, uint64_t bytes, double ms)
{
    struct mz_event *event = &core->events[core->event_number % MZ_EVENTS];

    *event = (struct mz_event){
        .number = ++core->event_number, .wall_ns = mz_os_wall_ns(), .what = what, .bytes = bytes, .ms = ms};
    snprintf(event->why, sizeof(event->why), "%s", why ? why : "");
    for (char *c = event->why; *c; c++) /* a client's own word: no escapes for terminals, none of six letters in JSON */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

void mz_core_events(struct mz_core *core, uint64_t since, void (*see)(void *user, const struct mz_event *event),
                    void *user)
{
    pthread_mutex_lock(&core->lock);
    uint64_t first = core->event_number > MZ_EVENTS ? core->event_number - MZ_EVENTS : 0;
    for (uint64_t i = since > first ? since : first; i < core->event_number; i++)
        see(user, &core->events[i % MZ_EVENTS]);
    pthread_mutex_unlock(&core->lock);
}
