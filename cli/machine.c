/* Facts about this machine. No state. */
#include "machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "os/folder.h"
#include "os/os.h"

int machine_swap_folder(const char *named, char *buf, size_t size)
{
    if (!named || !*named)
        named = getenv("MZ_SWAP_FOLDER");
    if (named && *named)
        return snprintf(buf, size, "%s", named) >= (int)size ? -ENAMETOOLONG : 0;
    int rc = mz_folder_cache(buf, size);
    return rc < 0 ? rc : mz_folder_make(buf);
}

uint32_t machine_workers(void)
{
    uint32_t cpus = mz_os_cpus();

    return cpus < 2 ? 2 : cpus > 8 ? 8 : cpus;
}

const char *machine_codec(unsigned id)
{
    const struct mz_codec *codec = mz_codec_by_id((uint16_t)id);

    return codec ? codec->name : "?";
}
