/* A machine of known speeds. What goes where follows from the profile, and would else follow from the disk and the processor of
 * whoever runs the tests, or from what kept them busy while they were measured. */
#ifndef MZ_TEST_FAKE_PROFILE_H
#define MZ_TEST_FAKE_PROFILE_H

struct fake_profile {
    char root[32], folder[64]; /* made by mkdtemp; mzcache's part of it */
    char file[128];
};

/* A new folder in /var/tmp becomes $XDG_CACHE_HOME and holds the profile of its device: so much is read, and decoded from q8. One at
 * a time, before other threads run. 0, or negative errno with nothing left behind. */
int fake_profile_make(struct fake_profile *ret, double read_gbps, double decode_gbps);

/* Safe to call on what is zero, and twice. */
void fake_profile_remove(struct fake_profile *profile);

#endif
