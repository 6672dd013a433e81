/* Model files and the swap file. A struct mz_file is written at opening and closing only; in between any
 * thread reads it. No lock. */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/file_io.h"
#include "os/maps.h"
#include "os/mem.h"

#ifndef RAMFS_MAGIC
#define RAMFS_MAGIC 0x858458f6
#endif

/* include/uapi/linux/stat.h; declared here because headers before 6.1 lack the two fields. */
struct raw_statx {
    uint32_t mask;
    char before[0x98 - 4];
    uint32_t dio_mem_align, dio_offset_align;
    char after[0x100 - 0xa0];
};
#define RAW_STATX_DIOALIGN 0x2000u

/* For those who do not say: no device asks for more than a page. */
#define ALIGN_UNTOLD 4096u
#define ALIGN_MAX    (1u << 20)

static bool power_of_two(uint32_t n)
{
    return n && !(n & (n - 1)) && n <= ALIGN_MAX;
}

/* 0 with both alignments, or -EOPNOTSUPP when the file is known not to have direct I/O. */
static int direct_alignment(int fd, uint32_t *ret_mem, uint32_t *ret_file)
{
    struct raw_statx stx;
    memset(&stx, 0, sizeof stx);
    if (mz_fault_hit(MZ_FAULT_STAT) || syscall(SYS_statx, fd, "", AT_EMPTY_PATH, RAW_STATX_DIOALIGN, &stx) ||
        !(stx.mask & RAW_STATX_DIOALIGN)) {
        *ret_mem = *ret_file = ALIGN_UNTOLD;
        return 0;
    }
    if (!power_of_two(stx.dio_mem_align) || !power_of_two(stx.dio_offset_align))
        return -EOPNOTSUPP;
    *ret_mem = stx.dio_mem_align;
    *ret_file = stx.dio_offset_align;
    return 0;
}

/* A struct mz_file of zeros is a closed one, and standard error of a later child is no place for a swap file.
 */
static int above_stdio(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), saved = errno;
    close(fd);
    errno = saved;
    return higher;
}

/* The same file, opened once more for direct I/O through /proc: it may have no name, or another file has it
 * by now. */
static void open_direct(struct mz_file *file, int access)
{
    file->direct_fd = -1;
    file->mem_align = file->file_align = 1;
    uint32_t mem, offset;
    if (mz_fault_hit(MZ_FAULT_OPEN) || direct_alignment(file->fd, &mem, &offset))
        return;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    file->direct_fd = above_stdio(open(path, access | O_DIRECT | O_CLOEXEC));
    if (file->direct_fd < 0)
        return;
    file->mem_align = mem;
    file->file_align = offset;
    /* What is left for the buffered one are heads and tails: reading ahead would only fill the page cache. */
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
}

static int identify(struct mz_file *file)
{
    struct stat st;
    int r = mz_fault_hit(MZ_FAULT_STAT);
    if (!r && fstat(file->fd, &st))
        r = -errno;
    if (r)
        return r;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    file->dev = st.st_dev;
    file->inode = st.st_ino;
    file->size = (uint64_t)st.st_size;
    file->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

/* Whether /proc/self/maps names this file so. On btrfs and overlay mounts it shows another device (and inode)
 * than stat() does; a mapping of our own shows the same. */
static bool maps_name_it(int fd, uint64_t dev, uint64_t inode)
{
    size_t page = (size_t)mz_os_page_bytes();
    void *p = mz_fault_hit(MZ_FAULT_MMAP) ? MAP_FAILED : mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return false;
    struct mz_mapping mapping;
    bool same = !mz_maps_find(p, &mapping) && mapping.dev == dev && mapping.inode == inode;
    munmap(p, page);
    return same;
}

int mz_file_open(const char *path, uint64_t dev, uint64_t inode, struct mz_file *ret)
{
    struct mz_file file = {.fd = -1, .direct_fd = -1};
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (r)
        return r;
    file.fd =
        above_stdio(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)); /* a FIFO must not hold us */
    if (file.fd < 0)
        return -errno;
    r = identify(&file);
    if (!r && fcntl(file.fd, F_SETFL, 0)) /* io_uring takes O_NONBLOCK seriously, even for files */
        r = -errno;
    if (!r && (dev || inode) && (file.dev != dev || file.inode != inode) &&
        !maps_name_it(file.fd, dev, inode))
        r = -ESTALE;
    if (r) {
        close(file.fd);
        return r;
    }
    open_direct(&file, O_RDONLY);
    *ret = file;
    return 0;
}

int mz_file_check(const struct mz_file *file)
{
    struct mz_file now = *file;
    int r = identify(&now);
    if (r)
        return r;
    return now.size == file->size && now.mtime_ns == file->mtime_ns ? 0 : -ESTALE;
}

static int refuse_memory(const char *folder)
{
    struct statfs fs;
    int r = mz_fault_hit(MZ_FAULT_STAT);
    if (!r && statfs(folder, &fs))
        r = -errno;
    if (r)
        return r;
    uint32_t magic = (uint32_t)fs.f_type;
    return magic == TMPFS_MAGIC || magic == RAMFS_MAGIC || magic == HUGETLBFS_MAGIC ? -EMEDIUMTYPE : 0;
}

static int open_named(const char *folder)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/.mzcache-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return -ENAMETOOLONG;
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (r)
        return r;
    int fd = above_stdio(mkostemp(path, O_CLOEXEC)); /* 0600 */
    if (fd < 0)
        return -errno;
    if (unlink(path)) {
        r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

static int open_unnamed(const char *folder)
{
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (!r) {
        int fd = above_stdio(open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
        if (fd >= 0)
            return fd;
        r = -errno;
    }
    /* File systems without it say EOPNOTSUPP, kernels without it EISDIR or EINVAL. */
    return r == -EOPNOTSUPP || r == -EISDIR || r == -EINVAL ? open_named(folder) : r;
}

/* btrfs: in-place writes need no new extents, and direct ones stay direct. Only an empty file takes the flag.
 */
static void no_copy_on_write(int fd)
{
    int flags = 0;
    if (!mz_fault_hit(MZ_FAULT_STAT) && !ioctl(fd, FS_IOC_GETFLAGS, &flags)) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

int mz_file_open_swap(const char *folder, bool force, struct mz_file *ret)
{
    int r = refuse_memory(folder);
    if (r && !(r == -EMEDIUMTYPE && force))
        return r;
    struct mz_file file = {.fd = open_unnamed(folder), .direct_fd = -1};
    if (file.fd < 0)
        return file.fd;
    no_copy_on_write(file.fd);
    r = identify(&file);
    if (r) {
        close(file.fd);
        return r;
    }
    open_direct(&file, O_RDWR);
    *ret = file;
    return 0;
}

void mz_file_close(struct mz_file *file)
{
    if (file->fd <= STDERR_FILENO) /* zeroed or closed */
        return;
    if (file->direct_fd >= 0)
        close(file->direct_fd);
    close(file->fd);
    file->fd = file->direct_fd = -1;
}

int mz_file_read(const struct mz_file *file, void *to, uint64_t bytes, uint64_t offset)
{
    struct mz_io io;
    mz_io_init(&io, file, to, bytes, offset, false);
    return mz_io_run(&io);
}

int mz_file_write(const struct mz_file *file, const void *from, uint64_t bytes, uint64_t offset)
{
    struct mz_io io;
    mz_io_init(&io, file, (void *)(uintptr_t)from, bytes, offset, true); /* only read from */
    return mz_io_run(&io);
}

void mz_file_punch(const struct mz_file *file, uint64_t offset, uint64_t bytes)
{
    if (bytes && !mz_fault_hit(MZ_FAULT_WRITE))
        (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

int mz_file_space(const struct mz_file *file, uint64_t *ret_bytes)
{
    struct statfs fs;
    int r = mz_fault_hit(MZ_FAULT_STAT);
    if (!r && fstatfs(file->fd, &fs))
        r = -errno;
    if (!r)
        *ret_bytes =
            (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize; /* FUSE counts in these; f_bsize may be 1 MiB */
    return r;
}

/* Pages in memory of one window of the file, in bytes. */
static uint64_t window_cached(int fd, uint64_t offset, uint64_t bytes, unsigned char *pages)
{
    uint64_t found = 0, page = mz_os_page_bytes();
    if (mz_fault_hit(MZ_FAULT_MMAP))
        return 0;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    if (p == MAP_FAILED)
        return 0;
    if (!mincore(p, (size_t)bytes, pages))
        for (uint64_t i = 0; i < (bytes + page - 1) / page; i++)
            found += pages[i] & 1u ? page : 0;
    munmap(p, (size_t)bytes);
    return found;
}

uint64_t mz_file_cached(const struct mz_file *file)
{
    unsigned char pages[8192];
    uint64_t window = sizeof pages * mz_os_page_bytes(), found = 0;
    struct mz_file now = *file;
    if (identify(&now))
        return 0;
    for (uint64_t at = 0; at < now.size; at += window)
        found += window_cached(now.fd, at, now.size - at < window ? now.size - at : window, pages);
    return found < now.size ? found : now.size;
}
