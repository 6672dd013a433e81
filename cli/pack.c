/* mzcache pack: lays a model file out so that restoring reads straight into place. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "gguf.h"

#define PACK_ALIGN  4096u /* of tensors: pages, and blocks of direct I/O everywhere */
#define COPY_BYTES  (UINT64_C(4) << 20)
#define FIRST_BYTES (UINT64_C(1) << 20) /* of header to begin with; a large vocabulary has tens of MiB */

static int read_at(int fd, char *to, uint64_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        to += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int write_all(int fd, const char *from, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        from += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

/* Reads as much of the file as its header needs. *ret_buf is freed by free(). */
static int read_header(int fd, uint64_t file_bytes, struct gguf *ret, char **ret_buf, const char **ret_why)
{
    for (uint64_t bytes = FIRST_BYTES;; bytes *= 2) {
        if (bytes > file_bytes)
            bytes = file_bytes;
        char *buf = malloc((size_t)bytes + 1);
        int rc = buf ? read_at(fd, buf, bytes, 0) : -ENOMEM;
        if (rc == 0)
            rc = gguf_parse(buf, (size_t)bytes, file_bytes, ret, ret_why);
        if (rc == 0) {
            *ret_buf = buf;
            return 0;
        }
        free(buf);
        if (rc != -ENODATA || bytes == file_bytes)
            return rc;
    }
}

/* --------------------------------------------------------------------------------------------- writing */

struct packing {
    int in, out;
    uint64_t data_begin; /* in the old file */
    bool progress;       /* to a terminal */
};

static int copy(const struct packing *p, char *buf, uint64_t from, uint64_t bytes)
{
    for (int rc; bytes > 0;) {
        uint64_t n = bytes < COPY_BYTES ? bytes : COPY_BYTES;
        if ((rc = read_at(p->in, buf, n, from)) < 0 || (rc = write_all(p->out, buf, n)) < 0)
            return rc;
        from += n;
        bytes -= n;
    }
    return 0;
}

/* `old` are the offsets in the old file, in the new order. */
static int copy_tensors(const struct packing *p, const struct gguf *gguf, const uint64_t *old)
{
    static const char zeros[PACK_ALIGN];
    char *buf = malloc(COPY_BYTES);
    int rc = buf ? 0 : -ENOMEM;

    for (uint32_t i = 0; i < gguf->n_tensors && rc == 0; i++) {
        const struct gguf_tensor *t = &gguf->tensors[i];
        rc = copy(p, buf, p->data_begin + old[i], t->bytes);
        if (rc == 0 && t->bytes % PACK_ALIGN)
            rc = write_all(p->out, zeros, PACK_ALIGN - t->bytes % PACK_ALIGN);
        if (p->progress)
            (void)fprintf(stderr, "\rpacking %" PRIu32 " of %" PRIu32 " tensors%s", i + 1, gguf->n_tensors,
                          i + 1 == gguf->n_tensors ? "\n" : "");
    }
    free(buf);
    return rc;
}

static int write_packed(const struct packing *p, struct gguf *gguf)
{
    uint64_t *old = calloc((size_t)gguf->n_tensors + 1, sizeof(*old));
    char *header = NULL;
    size_t header_bytes;

    if (!old)
        return -ENOMEM;
    gguf_sort(gguf);
    for (uint32_t i = 0; i < gguf->n_tensors; i++)
        old[i] = gguf->tensors[i].offset;
    int rc = gguf_header(gguf, PACK_ALIGN, &header, &header_bytes);
    if (rc == 0)
        rc = write_all(p->out, header, header_bytes);
    if (rc == 0)
        rc = copy_tensors(p, gguf, old);
    if (rc == 0 && fsync(p->out) < 0)
        rc = -errno;
    free(header);
    free(old);
    return rc;
}

/* A new file in the folder of `to`: without a name, so that nothing of it stays behind a killed command, or,
 * where the file system cannot do that, with the hidden one. */
static int open_new(const char *to, const char *hidden, bool *ret_nameless)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s", to);
    int fd = open(dirname(path), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
    *ret_nameless = fd >= 0;
    if (fd < 0)
        fd = open(hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : fd;
}

static int name_it(int fd, const char *name)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* The file appears under its name only when it is whole. */
static int write_file(const char *to, bool force, struct packing *p, struct gguf *gguf)
{
    char hidden[PATH_MAX];
    bool nameless;
    int length = snprintf(hidden, sizeof(hidden), "%s.part-%ld", to, (long)getpid());

    if (length < 0 || (size_t)length >= sizeof(hidden))
        return -ENAMETOOLONG;
    p->out = open_new(to, hidden, &nameless);
    if (p->out < 0)
        return p->out;
    int rc = write_packed(p, gguf);
    if (rc == 0 && nameless)
        rc = name_it(p->out, hidden);
    if (close(p->out) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && force && rename(hidden, to) < 0)
        rc = -errno;
    /* link() refuses a name that is taken, also by somebody who was quicker; some file systems have no links.
     */
    if (rc == 0 && !force && link(hidden, to) < 0)
        rc = errno == EEXIST || access(to, F_OK) == 0 ? -EEXIST : rename(hidden, to) < 0 ? -errno : 0;
    (void)unlink(hidden);
    return rc;
}

/* ----------------------------------------------------------------------------------------- the command */

static int pack(const char *from, const char *to, bool force, struct packing *p, const char **ret_why)
{
    struct stat st;
    struct gguf gguf;
    char *buf = NULL;

    if (fstat(p->in, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode)) {
        *ret_why = "it is no regular file";
        return -EBADMSG;
    }
    int rc = read_header(p->in, (uint64_t)st.st_size, &gguf, &buf, ret_why);
    if (rc < 0)
        return rc;
    p->data_begin = gguf.data_begin;
    if (gguf.align > PACK_ALIGN) {
        *ret_why = "its tensors are aligned to more than 4096 bytes already";
        rc = -EBADMSG;
    }
    if (rc == 0)
        rc = write_file(to, force, p, &gguf);
    if (rc == 0)
        (void)printf("%s: %" PRIu32 " tensors of %s, each at a multiple of %u, in the order of use\n", to,
                     gguf.n_tensors, from, PACK_ALIGN);
    gguf_close(&gguf);
    free(buf);
    return rc;
}

static int run(const struct cli_input *input)
{
    const char *from = input->operands[0], *to = input->operands[1], *why = NULL;
    bool force = cli_value(input, "force");
    struct packing p = {.progress = isatty(STDERR_FILENO) == 1};

    p.in = open(from, O_RDONLY | O_CLOEXEC);
    if (p.in < 0) {
        cli_error("%s: %s", from, strerror(errno));
        return CLI_FAILED;
    }
    int rc = !force && access(to, F_OK) == 0 ? -EEXIST : pack(from, to, force, &p, &why);
    (void)close(p.in);
    if (rc == -EBADMSG || rc == -ENODATA)
        cli_error("%s: not a model that can be packed: %s", from, why ? why : "it ends too early");
    else if (rc == -EPROTONOSUPPORT)
        cli_error("%s: GGUF of a version other than 2 and 3, or big endian", from);
    else if (rc == -EEXIST)
        cli_error("%s exists already (--force replaces it)", to);
    else if (rc < 0)
        cli_error("%s: %s", to, strerror(-rc));
    return rc < 0 ? CLI_FAILED : CLI_OK;
}

static const struct cli_option options[] = {
    {"force", 'f', NULL, "replace OUT.gguf if it exists"},
    {0},
};

const struct cli_command cli_pack = {
    .name = "pack",
    .operands = "MODEL.gguf OUT.gguf",
    .summary = "Write a model file that restores without a copy: tensors at pages, in the order of use",
    .help =
        "The result is a valid GGUF that every llama.cpp program loads; it is a few KiB larger a tensor at "
        "most. Optional: mzCache restores from any file, but reads from this one straight into place. Of a "
        "model in several files, pack each and keep their names.\n",
    .options = options,
    .min_operands = 2,
    .max_operands = 2,
    .run = run,
};
