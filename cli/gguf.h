/* The header of a GGUF file (versions 2 and 3, little endian): enough to lay its tensors out anew.
 * The layout is that of ggml's include/gguf.h. Pure functions on bytes in memory. */
#ifndef MZ_CLI_GGUF_H
#define MZ_CLI_GGUF_H

#include <stddef.h>
#include <stdint.h>

#define GGUF_MAX_ALIGN 65536u

struct gguf_tensor {
    const char *name;    /* not ended by NUL; points into the header */
    uint32_t name_bytes; /* at most 63, as ggml has it */
    uint32_t n_dims, type;
    uint64_t ne[4];
    uint64_t offset; /* from the start of the data */
    uint64_t bytes;  /* of data, without padding */
    uint32_t number; /* in the file */
};

struct gguf {
    const char *bytes; /* the header's, borrowed */
    uint32_t version, align;
    uint64_t n_kv;
    size_t kv_begin, kv_end;       /* where the key-value pairs lie */
    size_t align_begin, align_end; /* where general.alignment's pair lies; both 0: it is not there */
    uint64_t data_begin;           /* where the data lie in the file */
    struct gguf_tensor *tensors;
    uint32_t n_tensors;
};

/* Reads the header of a file of `file_bytes` from its first `bytes` bytes, which must outlive *ret. -ENODATA:
 * the header goes on behind them. -EBADMSG: malformed, with the reason in *ret_why. -EPROTONOSUPPORT: another
 * version. -ENOMEM. */
int gguf_parse(const char *bytes, size_t n_bytes, uint64_t file_bytes, struct gguf *ret,
               const char **ret_why);

/* Frees the list of tensors. */
void gguf_close(struct gguf *gguf);

/* Sorts the tensors in the order in which computing reads them: token embedding, layer by layer, output. */
void gguf_sort(struct gguf *gguf);

/* Makes the header of a file with the tensors in their present order, each at a multiple of `align` (a power
 * of two, at least the present alignment): *ret_bytes bytes, padded, freed by free(). `offset` of the tensors
 * become the new ones. -ENOMEM. */
int gguf_header(struct gguf *gguf, uint32_t align, char **ret, size_t *ret_bytes);

#endif
