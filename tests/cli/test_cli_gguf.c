/* Reading, sorting and writing GGUF headers: a round trip through mzcache pack, and every way in which a
 * header can be broken. */
#include "cli_test.h"

#include <dirent.h>
#include <signal.h>

#include "gguf.h"

/* ---------------------------------------------------------------------------------------- a small file */

struct image {
    char bytes[64 * 1024];
    size_t n;
};

static void put(struct image *f, const void *bytes, size_t n)
{
    assert_true(f->n + n <= sizeof(f->bytes));
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void put32(struct image *f, uint32_t value)
{
    put(f, &value, sizeof(value));
}

static void put64(struct image *f, uint64_t value)
{
    put(f, &value, sizeof(value));
}

static void put_text(struct image *f, const char *text)
{
    put64(f, strlen(text));
    put(f, text, strlen(text));
}

static const struct {
    const char *name;
    uint32_t n_dims, type;
    uint64_t ne[4], bytes;
} tensors[] = {
    {"output.weight", 2, 8, {64, 3, 1, 1}, 204},        /* Q8_0: 6 blocks of 34 */
    {"blk.1.ffn_down.weight", 2, 2, {32, 5, 1, 1}, 90}, /* Q4_0 */
    {"blk.0.ffn_down.weight", 2, 0, {7, 3, 1, 1}, 84},  /* F32 */
    {"blk.0.attn_q.weight", 2, 1, {33, 2, 1, 1}, 132},  /* F16 */
    {"token_embd.weight", 1, 30, {5, 1, 1, 1}, 10},     /* BF16 */
    {"blk.0.ffn_up.weight", 3, 0, {4, 2, 600, 1}, 19200}, {"output_norm.weight", 1, 0, {9, 1, 1, 1}, 36},
};

#define TENSORS (sizeof(tensors) / sizeof(*tensors))

static const char *const sorted[TENSORS] = {
    "token_embd.weight",     "blk.0.attn_q.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight",
    "blk.1.ffn_down.weight", "output_norm.weight",  "output.weight"};

static uint8_t byte_of(size_t tensor, uint64_t i)
{
    return (uint8_t)(tensor * 37 + i * 11 + (i >> 8) + 1);
}

/* `align` 0: the file says nothing, so it is 32. */
static void make_image(struct image *f, uint32_t align)
{
    uint64_t offset = 0, step = align ? align : 32;

    f->n = 0;
    put(f, "GGUF", 4);
    put32(f, 3);
    put64(f, TENSORS);
    put64(f, align ? 4 : 3);
    put_text(f, "general.architecture");
    put32(f, 8);
    put_text(f, "llama");
    if (align) {
        put_text(f, "general.alignment");
        put32(f, 4);
        put32(f, align);
    }
    put_text(f, "tokenizer.ggml.tokens");
    put32(f, 9);
    put32(f, 8);
    put64(f, 2);
    put_text(f, "a");
    put_text(f, "bc");
    put_text(f, "numbers");
    put32(f, 9);
    put32(f, 12);
    put64(f, 3);
    put(f, "012345678901234567890123", 24);
    for (size_t i = 0; i < TENSORS; i++) {
        put_text(f, tensors[i].name);
        put32(f, tensors[i].n_dims);
        put(f, tensors[i].ne, tensors[i].n_dims * 8);
        put32(f, tensors[i].type);
        put64(f, offset);
        offset += (tensors[i].bytes + step - 1) / step * step;
    }
    while (f->n % step)
        put(f, "", 1);
    for (size_t t = 0; t < TENSORS; t++) {
        for (uint64_t i = 0; i < tensors[t].bytes; i++) {
            uint8_t byte = byte_of(t, i);
            put(f, &byte, 1);
        }
        while (f->n % step && t + 1 < TENSORS)
            put(f, "", 1);
    }
}

static struct image image;

/* --------------------------------------------------------------------------------------------- packing */

static char folder[64], in_path[128], out_path[128];

static int setup(void **state)
{
    (void)state;
    make_folder(folder, sizeof(folder));
    (void)snprintf(in_path, sizeof(in_path), "%s/in.gguf", folder);
    (void)snprintf(out_path, sizeof(out_path), "%s/out.gguf", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static void write_image(const char *path, const struct image *f, size_t n)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    assert_int_equal(write(fd, f->bytes, n), n);
    assert_int_equal(close(fd), 0);
}

static size_t number_of(const struct gguf_tensor *t)
{
    for (size_t i = 0; i < TENSORS; i++)
        if (strlen(tensors[i].name) == t->name_bytes && memcmp(tensors[i].name, t->name, t->name_bytes) == 0)
            return i;
    fail();
    return 0;
}

static void check_packed(const char *path)
{
    static struct image packed;
    struct gguf gguf;
    const char *why;
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, packed.bytes, sizeof(packed.bytes));

    assert_true(n > 0);
    (void)close(fd);
    assert_int_equal(gguf_parse(packed.bytes, (size_t)n, (uint64_t)n, &gguf, &why), 0);
    assert_int_equal(gguf.align, 4096);
    assert_int_equal(gguf.data_begin % 4096, 0);
    assert_int_equal(gguf.n_kv, 4);
    assert_int_equal(gguf.n_tensors, TENSORS);
    for (uint32_t i = 0; i < gguf.n_tensors; i++) {
        const struct gguf_tensor *t = &gguf.tensors[i];
        size_t number = number_of(t);
        assert_int_equal(t->name_bytes, strlen(sorted[i]));
        assert_memory_equal(t->name, sorted[i], t->name_bytes);
        assert_int_equal(t->offset % 4096, 0);
        assert_int_equal(t->bytes, tensors[number].bytes);
        assert_int_equal(t->type, tensors[number].type);
        assert_memory_equal(t->ne, tensors[number].ne, sizeof(t->ne));
        for (uint64_t b = 0; b < t->bytes; b++)
            assert_int_equal((uint8_t)packed.bytes[gguf.data_begin + t->offset + b], byte_of(number, b));
    }
    gguf_close(&gguf);
}

static void round_trip(void **state)
{
    static const uint32_t aligns[] = {0, 32, 64, 4096};

    (void)state;
    for (size_t i = 0; i < sizeof(aligns) / sizeof(*aligns); i++) {
        make_image(&image, aligns[i]);
        write_image(in_path, &image, image.n);
        mzcache("pack", "--force", in_path, out_path);
        expect_exit(0);
        check_packed(out_path);
        mzcache("pack", "--force", out_path, in_path); /* packed again: the same */
        expect_exit(0);
        check_packed(in_path);
    }
}

static void keeps_what_is_there(void **state)
{
    struct stat st;

    (void)state;
    make_image(&image, 0);
    write_image(in_path, &image, image.n);
    write_image(out_path, &image, 5);
    mzcache("pack", in_path, out_path);
    expect_exit(1);
    assert_int_equal(stat(out_path, &st), 0);
    assert_int_equal(st.st_size, 5);
    mzcache("pack", "/no/such/file", out_path);
    expect_exit(1);
    mzcache("pack", "--force", folder, out_path);
    expect_exit(1);
    mzcache("pack", in_path, "/no/such/folder/out.gguf");
    expect_exit(1);
    /* A broken model leaves neither a half-written file nor the old one replaced. */
    write_image(in_path, &image, image.n / 2);
    mzcache("pack", "--force", in_path, out_path);
    expect_exit(1);
    assert_int_equal(stat(out_path, &st), 0);
    assert_int_equal(st.st_size, 5);
}

/* Killed while it writes: the file may not grow beyond a KiB. */
static void the_killed_leave_nothing(void **state)
{
    const char *argv[] = {"sh",       "-c",    "ulimit -f 2; exec \"$0\" pack --force \"$1\" \"$2\"",
                          MZ_COMMAND, in_path, out_path,
                          NULL};
    char name[sizeof(folder) + sizeof(((struct dirent *)0)->d_name) + 1];

    (void)state;
    make_image(&image, 0);
    write_image(in_path, &image, image.n);
    write_image(out_path, &image, 5);
    run_program(&last, "sh", (char *const *)(uintptr_t)argv);
    expect_exit(128 + SIGXFSZ);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        (void)snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && strcmp(name, in_path) != 0)
            assert_string_equal(name, out_path);
    }
    (void)closedir(dir);
}

/* ----------------------------------------------------------------------------------------- broken ones */

static int parse(const struct image *f, size_t n, uint64_t file_bytes)
{
    struct gguf gguf;
    const char *why = NULL;
    /* In a block of its own size, so that a sanitizer sees every byte read beyond. */
    char *bytes = malloc(n + 1);
    memcpy(bytes, f->bytes, n);
    int rc = gguf_parse(bytes, n, file_bytes, &gguf, &why);

    if (rc == 0)
        gguf_close(&gguf);
    if (rc == -EBADMSG)
        assert_non_null(why);
    free(bytes);
    return rc;
}

static void every_length(void **state)
{
    (void)state;
    make_image(&image, 0);
    size_t header = image.n - 19840; /* somewhere before the data */
    for (size_t n = 0; n < image.n; n += n < 2048 ? 1 : 97) {
        int rc = parse(&image, n, image.n); /* the beginning of a file: more is needed, or it is enough */
        assert_true(rc == -ENODATA || (rc == 0 && n >= header - 600));
        rc = parse(&image, n, n); /* a file cut off */
        assert_int_equal(rc, -EBADMSG);
    }
    assert_int_equal(parse(&image, image.n, image.n), 0);
}

/* Every byte of the header made wrong in three ways: refused or read, never beyond the end. */
static void every_byte(void **state)
{
    static struct image broken;

    (void)state;
    make_image(&image, 64);
    for (size_t at = 0; at < 1400; at++) {
        static const uint8_t masks[] = {0x01, 0x80, 0xff};
        for (size_t m = 0; m < sizeof(masks); m++) {
            broken = image;
            broken.bytes[at] = (char)(broken.bytes[at] ^ masks[m]);
            int rc = parse(&broken, broken.n, broken.n);
            assert_true(rc == 0 || rc == -EBADMSG || rc == -EPROTONOSUPPORT || rc == -ENOMEM);
        }
    }
}

static void random_headers(void **state)
{
    static struct image noise;
    uint64_t x = 88172645463325252u;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        noise.n = 0;
        put(&noise, "GGUF", 4);
        put32(&noise, 3);
        for (int i = 0; i < 24; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            put64(&noise, x % 5 == 0 ? x : x % 16);
        }
        int rc = parse(&noise, noise.n, noise.n);
        assert_true(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_what_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(the_killed_leave_nothing, setup, teardown),
        cmocka_unit_test(every_length),
        cmocka_unit_test(every_byte),
        cmocka_unit_test(random_headers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
