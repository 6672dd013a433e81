/* The store: the swap file, where evicted bytes lie that no model file holds.
 *
 * The file has no name, is private to the process and holds nothing after it. It is made when the first byte
 * is to be stored. This module hands out ranges of it; reading and writing them is done by others through
 * mz_store_file(). Ranges are multiples of 4096 bytes, so that direct I/O fits. Ranges asked for one after
 * the other lie one behind the other where possible, so that neighbours are written and read in one request.
 *
 * All calls are safe from any thread: one mutex inside, a leaf. Opening the file, asking for the space left
 * and giving blocks back call the file system under it; everything else is memory only. */
#ifndef MZ_CORE_STORE_H
#define MZ_CORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "os/file.h"

#define MZ_STORE_BLOCK_BYTES UINT64_C(4096)

/* Left free on the file system: what is in flight (workers times request) and not yet seen by statfs, and
 * some room for everyone else. */
#define MZ_STORE_RESERVE_BYTES (UINT64_C(64) << 20)

/* Where nobody named a folder and the cache folder cannot be used: on disk everywhere, kept over restarts,
 * writable by all. */
#define MZ_STORE_LAST_FOLDER "/var/tmp"

struct mz_store;

/* Remembers where the file is to be made and opens nothing. `folder` NULL or "": $MZ_SWAP_FOLDER, else
 * $XDG_CACHE_HOME/mzcache, else $HOME/.cache/mzcache, and should no file be possible there, /var/tmp.
 * `force`: also where the folder lies in memory. -ENOMEM, -ENAMETOOLONG. */
int mz_store_create(const char *folder, bool force, struct mz_store **ret);

/* Closes the file; its blocks are gone with it. Nothing is in flight and nobody calls any more. NULL
 * allowed. */
void mz_store_destroy(struct mz_store *store);

/* In a forked child: lets go of the file, whose blocks would otherwise stay on disk for as long as the child lives. Takes no
 * lock, since a thread that is not here may hold it; nothing else may be called afterwards. */
void mz_store_fork_child(struct mz_store *store);

/* A range of `bytes` (more than 0, rounded up to 4096). The first call makes the file, and its folder if that
 * is missing. -ENOSPC: the file system has less than this and the reserve left; -ENOMEM; -EINVAL: 0; or what
 * mz_file_open_swap() gave (-EMEDIUMTYPE: the folder lies in memory), and then the next call tries again. */
int mz_store_alloc(struct mz_store *store, uint64_t bytes, uint64_t *ret_offset);

/* Gives a range back: what mz_store_alloc() gave, or any part of it at multiples of 4096. Nothing is in
 * flight there. Its blocks are used again and stay on disk until then or until mz_store_punch(). Cannot
 * fail. */
void mz_store_free(struct mz_store *store, uint64_t offset, uint64_t bytes);

/* The file, for I/O: the same pointer from the first successful mz_store_alloc() on; NULL before. */
const struct mz_file *mz_store_file(struct mz_store *store);

/* The file's bytes that occupy disk (in use, or freed and not yet punched); bytes in use; all bytes ever
 * written, as told by mz_store_note_written(). */
uint64_t mz_store_size_bytes(struct mz_store *store);
uint64_t mz_store_live_bytes(struct mz_store *store);
uint64_t mz_store_written_bytes(struct mz_store *store);
void mz_store_note_written(struct mz_store *store, uint64_t bytes);

/* Gives the blocks of freed ranges back to the file system. For idle times: one system call per free range,
 * lock held. */
void mz_store_punch(struct mz_store *store);

/* The folder where the file lies or will lie, for messages. The text lives as long as the store. Takes no
 * lock. */
const char *mz_store_folder(const struct mz_store *store);

#endif
