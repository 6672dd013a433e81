#include "fake_profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/codec.h"
#include "core/profile.h"
#include "core/profile_measure.h"
#include "os/folder.h"

static int save(struct fake_profile *fake, double read_gbps, double decode_gbps)
{
    struct mz_profile profile;
    int err = mz_folder_cache(fake->folder, sizeof(fake->folder));

    mz_profile_guess(&profile, 2);
    profile.read_gbps = read_gbps;
    profile.decode_gbps[MZ_CODEC_Q8] = decode_gbps;
    profile.when = 1;
    if (!err)
        err = mz_folder_make(fake->folder);
    if (!err)
        err = mz_profile_measure_device(fake->folder, true, profile.device, sizeof(profile.device));
    if (!err)
        err = mz_profile_path(profile.device, fake->file, sizeof(fake->file));
    return err ? err : mz_profile_save(&profile);
}

int fake_profile_make(struct fake_profile *ret, double read_gbps, double decode_gbps)
{
    struct fake_profile fake = {.root = "/var/tmp/mz-profile-XXXXXX"};

    if (!mkdtemp(fake.root))
        return -errno;
    int err = setenv("XDG_CACHE_HOME", fake.root, 1) ? -errno : save(&fake, read_gbps, decode_gbps);
    if (err)
        fake_profile_remove(&fake);
    else
        *ret = fake;
    return err;
}

void fake_profile_remove(struct fake_profile *profile)
{
    if (!*profile->root)
        return;
    unlink(profile->file);
    rmdir(profile->folder);
    rmdir(profile->root);
    memset(profile, 0, sizeof(*profile));
}
