/* The profile: figures to text and back, and the times that follow from them. No state, no locks: the caller
 * guards the record. The text is JSON that people may read and edit, so everything in it is checked. */
#include "core/profile.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "codec/codec.h"
#include "os/fault.h"
#include "os/folder.h"
#include "os/text.h"

#define VERSION    1
#define FILE_BYTES (64u << 10) /* a real one has 2 KiB */

/* What cannot be. No storage or memory moves 10 TB/s; a figure under 1 KB/s is a unit gone wrong. */
#define GBPS_MIN    1e-6
#define GBPS_MAX    1e4
#define FACTOR_MIN  0.25
#define FACTOR_MAX  4.0
#define REQUEST_MIN (64u << 10)
#define REQUEST_MAX (16u << 20)

/* Guesses, GB/s: a modest solid-state disk, and a quarter of what one core of a laptop does with AVX2. */
#define GUESS_READ   1.0
#define GUESS_WRITE  0.5
#define GUESS_DECODE 4.0 /* a worker */
#define GUESS_ENCODE 2.0 /* a worker */

/* Learning: samples this large count in full, and then move the factor by 1/8 of the way on a logarithmic
 * scale: some 20 restores settle it, one odd restore (a busy disk) moves it by no more than 4^(1/8) = 19
 * %. */
#define LEARN_MIN_BYTES  (1u << 20)
#define LEARN_FULL_BYTES (64.0 * (1 << 20))
#define LEARN_STEP       0.125

static bool in_range(double value, double low, double high)
{
    return isfinite(value) && value >= low && value <= high;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* -------------------------------------------------------------------------------- figures */

void mz_profile_guess(struct mz_profile *ret, uint32_t workers)
{
    memset(ret, 0, sizeof *ret);
    ret->read_factor = ret->write_factor = 1;
    for (uint32_t i = 0; i < MZ_PROFILE_CODECS; i++)
        ret->decode_factor[i] = ret->encode_factor[i] = 1;
    ret->workers = workers == 0 ? 1 : workers > MZ_PROFILE_WORKERS ? MZ_PROFILE_WORKERS : workers;
    ret->request_bytes = 1u << 20;
    memcpy(ret->device, "unknown", sizeof "unknown");
}

bool mz_profile_decodes(uint32_t worker)
{
    return worker % 2 == 1;
}

uint32_t mz_profile_decoders(uint32_t workers)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < workers; i++)
        n += mz_profile_decodes(i);
    return n ? n : 1;
}

struct figure {
    double measured; /* 0: not */
    double guess;
    double factor;
};

static struct figure figure_of(const struct mz_profile *p, uint32_t path)
{
    uint32_t decode = path - MZ_PROFILE_DECODE, encode = path - MZ_PROFILE_ENCODE;
    if (decode < MZ_PROFILE_CODECS)
        return (struct figure){p->decode_gbps[decode], GUESS_DECODE * mz_profile_decoders(p->workers),
                               p->decode_factor[decode]};
    if (encode < MZ_PROFILE_CODECS)
        return (struct figure){p->encode_gbps[encode], GUESS_ENCODE * p->workers, p->encode_factor[encode]};
    if (path == MZ_PROFILE_WRITE)
        return (struct figure){p->write_gbps, GUESS_WRITE, p->write_factor};
    return (struct figure){p->read_gbps, GUESS_READ, p->read_factor};
}

static double *factor_at(struct mz_profile *p, uint32_t path)
{
    uint32_t decode = path - MZ_PROFILE_DECODE, encode = path - MZ_PROFILE_ENCODE;
    if (decode < MZ_PROFILE_CODECS)
        return &p->decode_factor[decode];
    if (encode < MZ_PROFILE_CODECS)
        return &p->encode_factor[encode];
    return path == MZ_PROFILE_WRITE ? &p->write_factor : &p->read_factor;
}

double mz_profile_gbps(const struct mz_profile *profile, uint32_t path)
{
    struct figure figure = figure_of(profile, path);
    double base = in_range(figure.measured, GBPS_MIN, GBPS_MAX) ? figure.measured : figure.guess;
    if (!(base > 0)) /* a record that nobody filled in */
        base = GUESS_READ;
    return base * (in_range(figure.factor, FACTOR_MIN, FACTOR_MAX) ? figure.factor : 1);
}

double mz_profile_read_ns(const struct mz_profile *profile, uint64_t bytes)
{
    return rint((double)bytes / mz_profile_gbps(profile, MZ_PROFILE_READ));
}

double mz_profile_decode_ns(const struct mz_profile *profile, uint32_t codec, uint64_t bytes)
{
    uint32_t id = codec < MZ_PROFILE_CODECS ? codec : MZ_CODEC_RAW;
    return rint((double)bytes / mz_profile_gbps(profile, MZ_PROFILE_DECODE + id));
}

void mz_profile_learn(struct mz_profile *profile, uint32_t path, uint64_t bytes, uint64_t ns)
{
    if (bytes < LEARN_MIN_BYTES || ns == 0)
        return;
    double *factor = factor_at(profile, path);
    double ratio = clamp((double)bytes / (double)ns / mz_profile_gbps(profile, path), FACTOR_MIN, FACTOR_MAX);
    double weight = LEARN_STEP * clamp((double)bytes / LEARN_FULL_BYTES, 0, 1);
    double old = in_range(*factor, FACTOR_MIN, FACTOR_MAX) ? *factor : 1;
    *factor = clamp(old * pow(ratio, weight), FACTOR_MIN, FACTOR_MAX);
}

/* -------------------------------------------------------------------------------- what can be */

static bool is_gbps(double value)
{
    return value == 0 || in_range(value, GBPS_MIN, GBPS_MAX);
}

static bool is_factor(double value)
{
    return in_range(value, FACTOR_MIN, FACTOR_MAX);
}

static bool is_device(const char *name, size_t size)
{
    size_t length = strnlen(name, size);
    return length > 0 && length < size && name[0] != '.' && !strchr(name, '/');
}

static bool is_valid(const struct mz_profile *p)
{
    bool valid = is_gbps(p->read_gbps) && is_gbps(p->write_gbps) && is_factor(p->read_factor) &&
                 is_factor(p->write_factor) && is_device(p->device, sizeof p->device) && p->workers >= 1 &&
                 p->workers <= MZ_PROFILE_WORKERS && p->request_bytes >= REQUEST_MIN &&
                 p->request_bytes <= REQUEST_MAX && p->request_bytes % 4096 == 0 && p->when <= INT64_MAX;
    for (uint32_t i = 0; i < MZ_PROFILE_CODECS; i++)
        valid = valid && is_gbps(p->decode_gbps[i]) && is_gbps(p->encode_gbps[i]) &&
                is_factor(p->decode_factor[i]) && is_factor(p->encode_factor[i]);
    for (uint32_t i = 0; i < MZ_PROFILE_SIZES; i++)
        valid = valid && is_gbps(p->read_curve_gbps[i]);
    return valid;
}

/* -------------------------------------------------------------------------------- text */

/* A missing number stays as it is. */
static bool get_number(const json_t *object, const char *key, double *ret)
{
    const json_t *value = json_object_get(object, key);
    if (value && json_is_number(value))
        *ret = json_number_value(value);
    return !value || json_is_number(value);
}

static bool get_integer(const json_t *object, const char *key, uint64_t max, uint64_t *ret)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > max)
        return false;
    *ret = (uint64_t)number;
    return true;
}

static bool get_curve(const json_t *root, struct mz_profile *p)
{
    const json_t *curve = json_object_get(root, "read_curve_gbps");
    if (!curve)
        return true;
    if (!json_is_array(curve) || json_array_size(curve) > MZ_PROFILE_SIZES)
        return false;
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *value = json_array_get(curve, i);
        if (!json_is_number(value))
            return false;
        p->read_curve_gbps[i] = json_number_value(value);
    }
    return true;
}

/* Codecs by name; those that this build does not know are passed over. */
static bool get_codecs(const json_t *root, struct mz_profile *p)
{
    json_t *codecs = json_object_get(root, "codecs"), *one;
    const char *name;
    if (!codecs)
        return true;
    if (!json_is_object(codecs))
        return false;
    json_object_foreach(codecs, name, one)
    {
        const struct mz_codec *codec = mz_codec_find(name);
        if (!json_is_object(one))
            return false;
        if (!codec || codec->id >= MZ_PROFILE_CODECS)
            continue;
        uint32_t i = codec->id;
        if (!get_number(one, "decode_gbps", &p->decode_gbps[i]) ||
            !get_number(one, "encode_gbps", &p->encode_gbps[i]) ||
            !get_number(one, "decode_factor", &p->decode_factor[i]) ||
            !get_number(one, "encode_factor", &p->encode_factor[i]))
            return false;
    }
    return true;
}

static bool get_all(const json_t *root, struct mz_profile *p)
{
    uint64_t version, workers, request;
    const char *device = json_string_value(json_object_get(root, "device"));
    mz_profile_guess(p, 1);
    if (!get_integer(root, "version", UINT32_MAX, &version) || version != VERSION || !device ||
        !is_device(device, sizeof p->device) || !get_integer(root, "workers", UINT32_MAX, &workers) ||
        !get_integer(root, "request_bytes", UINT32_MAX, &request) ||
        !get_integer(root, "when", INT64_MAX, &p->when))
        return false;
    memcpy(p->device, device, strlen(device) + 1);
    p->workers = (uint32_t)workers;
    p->request_bytes = (uint32_t)request;
    return get_number(root, "read_gbps", &p->read_gbps) && get_number(root, "write_gbps", &p->write_gbps) &&
           get_number(root, "read_factor", &p->read_factor) &&
           get_number(root, "write_factor", &p->write_factor) && get_curve(root, p) && get_codecs(root, p);
}

int mz_profile_parse(const char *text, struct mz_profile *ret)
{
    json_error_t error;
    struct mz_profile profile;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return json_error_code(&error) == json_error_out_of_memory ? -ENOMEM : -EBADMSG;
    bool good = get_all(root, &profile) && is_valid(&profile);
    json_decref(root);
    if (good)
        *ret = profile;
    return good ? 0 : -EBADMSG;
}

static json_t *print_codecs(const struct mz_profile *p)
{
    json_t *codecs = json_object();
    const struct mz_codec *codec;
    for (unsigned at = 0; codecs && (codec = mz_codec_at(at)); at++) {
        uint32_t i = codec->id;
        if (i >= MZ_PROFILE_CODECS)
            continue;
        json_t *one = json_pack("{s:f, s:f, s:f, s:f}", "decode_gbps", p->decode_gbps[i], "encode_gbps",
                                p->encode_gbps[i], "decode_factor", p->decode_factor[i], "encode_factor",
                                p->encode_factor[i]);
        if (json_object_set_new(codecs, codec->name, one)) {
            json_decref(codecs);
            return NULL;
        }
    }
    return codecs;
}

static json_t *print_curve(const struct mz_profile *p)
{
    json_t *curve = json_array();
    for (uint32_t i = 0; curve && i < MZ_PROFILE_SIZES; i++) {
        if (json_array_append_new(curve, json_real(p->read_curve_gbps[i]))) {
            json_decref(curve);
            return NULL;
        }
    }
    return curve;
}

int mz_profile_print(const struct mz_profile *profile, char **ret_text)
{
    const struct mz_profile *p = profile;
    if (!is_valid(p))
        return -EINVAL;
    /* "o" takes the references, also when packing fails; a NULL makes it fail. */
    json_t *root =
        json_pack("{s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "version", VERSION, "device",
                  p->device, "when", (json_int_t)p->when, "workers", (json_int_t)p->workers, "request_bytes",
                  (json_int_t)p->request_bytes, "read_gbps", p->read_gbps, "write_gbps", p->write_gbps,
                  "read_factor", p->read_factor, "write_factor", p->write_factor, "read_curve_gbps",
                  print_curve(p), "codecs", print_codecs(p));
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    if (!text)
        return -ENOMEM;
    *ret_text = text;
    return 0;
}

/* -------------------------------------------------------------------------------- files */

/* DEVNAME=nvme0n1p2 of the device's uevent; a slash in it ("cciss/c0d0") becomes "!", as in /sys. */
static bool find_name(const char *text, char *buf, size_t size)
{
    const char *line = strstr(text, "DEVNAME=");
    if (!line || (line != text && line[-1] != '\n'))
        return false;
    line += strlen("DEVNAME=");
    size_t length = strcspn(line, "\n");
    if (length == 0 || length >= size || line[0] == '.')
        return false;
    for (size_t i = 0; i < length; i++)
        buf[i] = line[i] == '/' ? '!' : line[i];
    buf[length] = 0;
    return true;
}

int mz_profile_device(uint64_t dev, char *buf, size_t size)
{
    char path[64], text[1024];
    unsigned high = major(dev), low = minor(dev);
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/uevent", high, low);
    if (mz_os_read_text(path, text, sizeof text) > 0 && find_name(text, buf, size))
        return 0;
    int length = snprintf(text, sizeof text, "dev-%u-%u", high, low);
    if (length < 0 || (size_t)length >= size)
        return -ENOSPC;
    memcpy(buf, text, (size_t)length + 1);
    return 0;
}

int mz_profile_path(const char *device, char *buf, size_t size)
{
    char folder[4096];
    if (!is_device(device, sizeof((struct mz_profile *)NULL)->device))
        return -EINVAL;
    int r = mz_folder_cache(folder, sizeof folder);
    if (r)
        return r;
    int length = snprintf(buf, size, "%s/profile-%s.json", folder, device);
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

int mz_profile_load(const char *device, struct mz_profile *ret)
{
    char path[4096];
    struct mz_profile profile;
    int r = mz_profile_path(device, path, sizeof path);
    if (r)
        return r;
    char *text = mz_alloc(FILE_BYTES);
    if (!text)
        return -ENOMEM;
    int64_t n = mz_folder_get_file(path, text, FILE_BYTES);
    if (n >= 0)
        r = strlen(text) == (size_t)n ? mz_profile_parse(text, &profile) : -EBADMSG;
    else
        r = n == -EFBIG ? -EBADMSG : (int)n;
    free(text);
    if (!r && strcmp(profile.device, device))
        r = -EBADMSG;
    if (!r)
        *ret = profile;
    return r;
}

int mz_profile_save(const struct mz_profile *profile)
{
    char path[4096], folder[4096], *text;
    int r = mz_profile_print(profile, &text);
    if (r)
        return r;
    r = mz_profile_path(profile->device, path, sizeof path);
    if (!r)
        r = mz_folder_cache(folder, sizeof folder);
    if (!r)
        r = mz_folder_make(folder);
    if (!r)
        r = mz_folder_put_file(path, text);
    free(text);
    return r;
}
