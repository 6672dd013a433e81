/* Model files that weights were loaded from: each is opened once, by the identity that the mapping had, and stays open, so
 * that a file replaced under its name (rename, update) does no harm. Lock: core->lock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"
#include "os/fault.h"

static struct mz_source *source_new(const struct mz_origin *origin, int *ret_err)
{
    struct mz_source *source = mz_calloc(1, sizeof(*source));
    size_t length = strlen(origin->path) + 1;

    *ret_err = -ENOMEM;
    if (!source)
        return NULL;
    source->path = mz_alloc(length);
    if (source->path) {
        memcpy(source->path, origin->path, length);
        *ret_err = mz_file_open(origin->path, origin->dev, origin->inode, &source->file);
        if (*ret_err == 0)
            return source;
    }
    free(source->path);
    free(source);
    return NULL;
}

int mz_source_use(struct mz_core *core, const struct mz_origin *origin, struct mz_source **ret)
{
    struct mz_source *source = core->sources;
    int err;

    while (source && (source->file.dev != origin->dev || source->file.inode != origin->inode))
        source = source->next;
    if (!source) {
        source = source_new(origin, &err);
        if (!source)
            return err;
        source->next = core->sources;
        core->sources = source;
    }
    source->uses++;
    *ret = source;
    return 0;
}

void mz_source_drop(struct mz_core *core, struct mz_source *source)
{
    struct mz_source **link = &core->sources;

    if (!source || --source->uses > 0)
        return;
    while (*link != source)
        link = &(*link)->next;
    *link = source->next;
    mz_file_close(&source->file);
    free(source->path);
    free(source);
}

void mz_core_model(struct mz_core *core, char *buf, size_t size)
{
    const struct mz_source *most = NULL;

    pthread_mutex_lock(&core->lock);
    for (const struct mz_source *source = core->sources; source; source = source->next)
        most = !most || source->uses > most->uses ? source : most;
    if (snprintf(buf, size, "%s", most ? most->path : "") >= (int)size)
        *buf = '\0';
    pthread_mutex_unlock(&core->lock);
}
