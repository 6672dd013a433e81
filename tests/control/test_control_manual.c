/* mzcache-control(7) and the socket name the same things: every key of every reply and every command is in
 * the page, and what looks like one in the page is one. */
#include "control_test.h"

#include <ctype.h>
#include <jansson.h>

#include "control/process.h"
#include "control/protocol.h"
#include "fake_engine.h"
#include "small_model.h"

static char folder[64];
static struct small_model model;
static struct mz_homes homes;
static char *page, *source; /* the man page; what the table of commands stands in */
static json_t *seen;        /* an object with every key of a reply */

/* The whole file, ended by NUL. */
static char *read_file(const char *path)
{
    enum { BYTES = 1 << 18 };
    char *text = calloc(1, BYTES);
    FILE *file = fopen(path, "r");

    assert_true(file && text);
    size_t n = fread(text, 1, BYTES, file);
    assert_true(n > 0 && n < BYTES);
    (void)fclose(file);
    return text;
}

static int setup(void **state)
{
    (void)state;
    live_in_folder(folder, sizeof(folder));
    (void)setenv("MZ_PRESSURE", "on", 1); /* its sources have keys, too */
    (void)setenv("MZ_CONTROL", "off", 1);
    assert_int_equal(mz_process_start(fake_engine(), &homes.core), 0);
    homes.watch = mz_process_watch();
    assert_non_null(homes.watch);
    assert_int_equal(small_model_make(&model, homes.core), 0);
    page = read_file(MZ_SOURCE_DIR "/docs/man/mzcache-control.7");
    source = read_file(MZ_SOURCE_DIR "/src/control/protocol.c");
    seen = json_object();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(seen);
    free(source);
    free(page);
    remove_folder(folder);
    return 0;
}

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}

static bool in_page(const char *word)
{
    size_t length = strlen(word);

    for (const char *at = page; (at = strstr(at, word)) != NULL; at += length)
        if (!is_word(at[-1]) && !is_word(at[length]))
            return true;
    return false;
}

/* The keys of an object and of what is in it; those of "options" are names of options, which mzcache(1) has.
 */
static void see(const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;

    json_array_foreach(value, i, item) see(item);
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        (void)json_object_set_new(seen, key, json_true());
        if (strcmp(key, "options") != 0)
            see(item);
    }
}

static json_t *ask(const char *line)
{
    char *text = mz_protocol_answer(&homes, line, strlen(line));
    json_t *reply = json_loads(text, 0, NULL);

    assert_true(json_is_object(reply));
    free(text);
    return reply;
}

static void see_reply(const char *line, bool ok)
{
    json_t *reply = ask(line);

    assert_int_equal(json_is_true(json_object_get(reply, "ok")), ok);
    see(reply);
    json_decref(reply);
}

static bool is_command(const char *name)
{
    char line[128];

    (void)snprintf(line, sizeof(line), "{\"cmd\":\"%s\",\"bytes\":0}", name);
    json_t *reply = ask(line);
    const char *error = json_string_value(json_object_get(reply, "error"));
    bool is = !error || strcmp(error, "EOPNOTSUPP") != 0;
    json_decref(reply);
    return is;
}

static void see_all_replies(void)
{
    char *greeting = mz_protocol_greeting();
    json_t *object = json_loads(greeting, 0, NULL);

    see(object);
    json_decref(object);
    free(greeting);
    see_reply("{\"cmd\":\"evict_to\",\"percent\":50,\"id\":1}", true);
    see_reply("{\"cmd\":\"limit\",\"value\":\"4K\"}", false);
    see_reply("{\"cmd\":\"limit\",\"value\":\"off\"}", true);
    see_reply("{\"cmd\":\"restore\"}", true);
    see_reply("{\"cmd\":\"clean\"}", true);
    see_reply("{\"cmd\":\"option_get\",\"name\":\"kv\"}", true);
    see_reply("{\"cmd\":\"trim\",\"level\":20}", true);
    see_reply("{\"cmd\":\"status\"}", true);
    see_reply("{\"cmd\":\"brief\"}", true);
    see_reply("{\"cmd\":\"layers\"}", true);
    see_reply("{\"cmd\":\"units\"}", true);
    see_reply("{\"cmd\":\"events\"}", true);
    see_reply("{\"cmd\":\"options\"}", true);
}

static void page_has_every_key(void **state)
{
    const char *key;
    json_t *item;
    int missing = 0;

    (void)state;
    see_all_replies();
    assert_non_null(json_object_get(seen, "detail")); /* of a source of pressure */
    assert_non_null(json_object_get(seen, "time_s")); /* of an event */
    json_object_foreach(seen, key, item)
    {
        if (in_page(key))
            continue;
        print_error("mzcache-control.7 does not have the key %s\n", key);
        missing++;
    }
    assert_int_equal(missing, 0);
}

static void page_has_every_command(void **state)
{
    static const char mark[] = "\", MZ_LANE_";
    int commands = 0;

    (void)state;
    for (const char *at = source; (at = strstr(at, mark)) != NULL; at += sizeof(mark) - 1) {
        const char *start = at;
        char name[64];
        while (start[-1] != '"')
            start--;
        (void)snprintf(name, sizeof(name), "%.*s", (int)(at - start), start);
        if (!in_page(name))
            print_error("mzcache-control.7 does not have the command %s\n", name);
        assert_true(in_page(name));
        assert_true(is_command(name));
        commands++;
    }
    assert_true(commands >= 16);
}

/* Words of several parts are keys or commands, but for the function that it refers to. */
static void page_has_nothing_else(void **state)
{
    int unknown = 0;

    (void)state;
    for (char *at = page; *at; at++) {
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        char word[64];
        (void)snprintf(word, sizeof(word), "%.*s", (int)length, at);
        bool name = strchr(word, '_') && word[0] != '_' && !is_word(at[-1]) && !is_word(at[length]);
        if (name && strcmp(word, "mz_trim") != 0 && !json_object_get(seen, word) && !is_command(word)) {
            print_error("mzcache-control.7 has %s, which is neither key nor command\n", word);
            unknown++;
        }
        at += length > 0 ? length - 1 : 0;
    }
    assert_int_equal(unknown, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_has_every_key),
        cmocka_unit_test(page_has_every_command),
        cmocka_unit_test(page_has_nothing_else),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
