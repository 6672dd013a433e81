/* What profile and doctor need to know of this machine; they work without any process. */
#ifndef MZ_CLI_MACHINE_H
#define MZ_CLI_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* Where the swap file would be made: `named` if not NULL, $MZ_SWAP_FOLDER, else the cache folder, made if it
 * is missing. negative errno. */
int machine_swap_folder(const char *named, char *buf, size_t size);

/* Restoring threads that core would start. */
uint32_t machine_workers(void);

/* Name of a codec by its id, "?" when there is none. */
const char *machine_codec(unsigned id);

#endif
