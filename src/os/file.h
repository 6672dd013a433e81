/* Files: the model files that weights come from, and the unnamed swap file.
 *
 * A struct mz_file keeps two descriptors of one file: one for direct I/O where the file system has it, one
 * buffered, for what is not aligned. Opening and closing belong to one thread; reading and writing are safe
 * from any thread. All I/O blocks. */
#ifndef MZ_OS_FILE_H
#define MZ_OS_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct mz_file {
    int fd;               /* buffered; -1 when closed */
    int direct_fd;        /* O_DIRECT; -1 where the file system refuses it */
    uint32_t mem_align;   /* bytes that memory addresses must be a multiple of for direct I/O; 1 without it */
    uint32_t file_align;  /* the same for file offsets and sizes */
    uint64_t dev, inode;  /* identity at opening */
    uint64_t size;        /* bytes at opening (model files) */
    int64_t mtime_ns;     /* at opening */
};

/* Opens a regular file for reading and checks that it is the one with this device and inode, as stat() or
 * mz_maps_find() name them (0, 0: any). -ENOENT, -EACCES, ...; -ESTALE when another file lies there now; -EINVAL when
 * it is not a regular file. Closed by mz_file_close(). */
int mz_file_open(const char *path, uint64_t dev, uint64_t inode, struct mz_file *ret);

/* -ESTALE when size or modification time differ from those at opening, else 0. */
int mz_file_check(const struct mz_file *file);

/* Makes a private file without a name in `folder` (O_TMPFILE; where that is missing: 0600, unlinked at once), with
 * copy-on-write off where the file system allows. -ENOENT, -EACCES, -EROFS, -ENOSPC as found;
 * -EMEDIUMTYPE when the folder lies in memory (tmpfs, ramfs) and `force` is false. */
int mz_file_open_swap(const char *folder, bool force, struct mz_file *ret);

/* Closes both descriptors; a closed or zeroed one is left alone. */
void mz_file_close(struct mz_file *file);

/* Reads or writes exactly `bytes`, by direct I/O when address and offset are aligned (all but a tail that is shorter
 * than the alignment), otherwise buffered: what was written so has reached the device on return, and the page cache is
 * dropped behind. Short transfers go on where they stopped. -EIO, -ENODATA at the end of the file, -ENOSPC, -EDQUOT ...
 * After an error the part before it may have been transferred. */
int mz_file_read(const struct mz_file *file, void *to, uint64_t bytes, uint64_t offset);
int mz_file_write(const struct mz_file *file, const void *from, uint64_t bytes, uint64_t offset);

/* Gives the file's blocks in the range back to the file system. A hint; its failure costs disk only. */
void mz_file_punch(const struct mz_file *file, uint64_t offset, uint64_t bytes);

/* Bytes free for us on the file system of the file. Negative errno as found. */
int mz_file_space(const struct mz_file *file, uint64_t *ret_bytes);

/* Bytes of the file that lie in the page cache (mincore over a mapping of it); 0 when it cannot be told. The kernel
 * tells only those who own the file or may write to it; others are told that all of it is there. */
uint64_t mz_file_cached(const struct mz_file *file);

#endif
