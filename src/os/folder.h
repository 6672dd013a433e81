/* Folders and small files of our own: the cache folder, and files that are replaced whole.
 *
 * Paths are as given: MZ_SYSROOT does not apply. Every call is safe from any thread; the environment is read
 * at each call. All but mz_folder_cache() block on the file system. */
#ifndef MZ_OS_FOLDER_H
#define MZ_OS_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* "$XDG_CACHE_HOME/mzcache", else "$HOME/.cache/mzcache"; a variable that is empty or not absolute counts as
 * not set. Makes nothing. -ENOENT: neither is set; -ENAMETOOLONG. */
int mz_folder_cache(char *buf, size_t size);

/* Makes the folder and those above it where they are missing, for the owner only (0700). 0 also when it is
 * there already. -ENOTDIR: something else is there; -EACCES, -EROFS, -ENAMETOOLONG, ... */
int mz_folder_make(const char *path);

/* Reads a whole regular file and ends it with NUL. Returns its length; -EFBIG: it does not fit into size - 1
 * bytes; -EISDIR, -EINVAL: no regular file; -ENOENT, -EACCES, -EIO, ... */
int64_t mz_folder_get_file(const char *path, char *buf, size_t size);

/* Puts a file with this text in the place of `path` (0600), whole or not at all: written beside it, then
 * renamed. Two processes that do it at once leave one of the two files. Negative errno as found; nothing is
 * left behind then. */
int mz_folder_put_file(const char *path, const char *text);

#endif
