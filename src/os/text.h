/* Small text files of /proc and /sys, and the folder that replaces "/" in tests.
 * Every call is safe from any thread; files are read whole and closed again. Calls block as long as the file does. */
#ifndef MZ_OS_TEXT_H
#define MZ_OS_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Prefixes an absolute path with $MZ_SYSROOT if that is set, unless the path begins with it already.
 * -ENAMETOOLONG. */
int mz_os_rooted(const char *path, char *buf, size_t size);

/* Reads up to size - 1 bytes of the (rooted) file and ends them with NUL. Returns their number or negative errno;
 * what does not fit is left out. */
int64_t mz_os_read_text(const char *path, char *buf, size_t size);

/* Reads until the end of the file, or until `room` bytes are there. Returns their number or negative errno. */
int64_t mz_os_read_all(int fd, char *buf, size_t room);

/* Writes the whole text to an existing (rooted) file, in one write as /proc and /sys want it. 0 or negative errno;
 * -EIO when only a part was taken. */
int mz_os_write_text(const char *path, const char *text);

/* The number behind "key" at the start of a line ("MemTotal:", "high"), times its unit (kB). `key` is the whole first
 * word: "high" does not find "high_events". -ENOENT, -EBADMSG: no number there, or more than 64 bits. */
int mz_os_find_number(const char *text, const char *key, uint64_t *ret);

/* A whole decimal number, spaces and newline around it allowed; "max" gives UINT64_MAX. -EBADMSG. */
int mz_os_parse_number(const char *text, uint64_t *ret);

#endif
