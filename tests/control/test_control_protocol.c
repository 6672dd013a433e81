/* The protocol: every command with right and wrong arguments on a real core with a small model; garbage; the
 * sums of the dump. */
#include "control_test.h"

#include <jansson.h>
#include <stdatomic.h>

#include "control/client.h"
#include "control/dump.h"
#include "control/protocol.h"
#include "fake_engine.h"
#include "os/fault.h"
#include "small_model.h"

static char folder[64];
static struct small_model model;
static struct mz_homes homes;

static struct mz_engine engine; /* the fake one, which counts how often it is asked for pages */
static struct mz_engine_ops engine_ops;
static atomic_uint asked_for_pages;

static int count_pages(struct mz_engine *self, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                       uint64_t *ret_resident, uint64_t *ret_swapped)
{
    atomic_fetch_add(&asked_for_pages, 1);
    return fake_engine()->ops->counted(self, memory, offset, bytes, ret_resident, ret_swapped);
}

static int setup(void **state)
{
    struct mz_core_config config = {.engine = &engine, .swap_folder = folder, .workers = 2};

    (void)state;
    engine = *fake_engine();
    engine_ops = *engine.ops;
    engine_ops.counted = count_pages;
    engine.ops = &engine_ops;
    make_folder(folder, sizeof(folder));
    assert_int_equal(mz_core_create(&config, &homes.core), 0);
    assert_int_equal(small_model_make(&model, homes.core), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    small_model_free(&model);
    mz_core_destroy(homes.core);
    remove_folder(folder);
    return 0;
}

static json_t *ask_bytes(const char *line, size_t bytes)
{
    char *reply = mz_protocol_answer(&homes, line, bytes);

    assert_non_null(reply);
    size_t length = strlen(reply);
    assert_true(length > 0 && length <= MZ_LINE_BYTES && reply[length - 1] == '\n');
    assert_ptr_equal(strchr(reply, '\n'), reply + length - 1); /* one line */
    json_t *object = json_loads(reply, 0, NULL);
    assert_true(json_is_object(object));
    free(reply);
    return object;
}

static json_t *ask(const char *line)
{
    return ask_bytes(line, strlen(line));
}

static void succeed(const char *line)
{
    json_t *reply = ask(line);

    if (!json_is_true(json_object_get(reply, "ok")))
        print_error("%s: %s\n", line, json_string_value(json_object_get(reply, "message")));
    assert_true(json_is_true(json_object_get(reply, "ok")));
    json_decref(reply);
}

static void fail_with(const char *line, const char *error)
{
    json_t *reply = ask(line);

    assert_true(json_is_false(json_object_get(reply, "ok")));
    if (strcmp(json_string_value(json_object_get(reply, "error")), error) != 0)
        print_error("%s: %s\n", line, json_string_value(json_object_get(reply, "error")));
    assert_string_equal(json_string_value(json_object_get(reply, "error")), error);
    assert_true(json_string_length(json_object_get(reply, "message")) > 0);
    json_decref(reply);
}

static uint64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static void greets(void **state)
{
    char *line = mz_protocol_greeting();
    json_t *greeting = json_loads(line, 0, NULL);

    (void)state;
    assert_int_equal(number(greeting, "protocol"), MZ_PROTOCOL);
    assert_int_equal(number(greeting, "pid"), getpid());
    assert_true(json_is_string(json_object_get(greeting, "mzcache")));
    assert_true(json_is_string(json_object_get(greeting, "program")));
    json_decref(greeting);
    free(line);
}

static void garbage(void **state)
{
    static const char *const lines[] = {"",
                                        " ",
                                        "x",
                                        "{",
                                        "[]",
                                        "[1,2]",
                                        "null",
                                        "1",
                                        "\"evict\"",
                                        "{}}",
                                        "{\"cmd\"}",
                                        "\xff\xfe",
                                        "{\"cmd\":\"hello\",\"cmd\":\"hello\"}"};
    char deep[4096];

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        fail_with(lines[i], "EBADMSG");
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    fail_with(deep, "EBADMSG");
    json_t *reply = ask_bytes("{\"cmd\":\"hello\0\"}", 17); /* a NUL in the middle */
    assert_true(json_is_false(json_object_get(reply, "ok")));
    json_decref(reply);
    fail_with("{}", "EOPNOTSUPP");
    fail_with("{\"cmd\":1}", "EOPNOTSUPP");
    fail_with("{\"cmd\":\"EVICT\"}", "EOPNOTSUPP");
}

static void wrong_arguments(void **state)
{
    (void)state;
    fail_with("{\"cmd\":\"evict\"}", "EINVAL");
    fail_with("{\"cmd\":\"evict\",\"bytes\":-1}", "EINVAL");
    fail_with("{\"cmd\":\"evict\",\"bytes\":1.5}", "EINVAL");
    fail_with("{\"cmd\":\"evict\",\"bytes\":\"1\"}", "EINVAL");
    fail_with("{\"cmd\":\"evict\",\"percent\":101}", "EINVAL");
    fail_with("{\"cmd\":\"evict\",\"percent\":-0.1}", "EINVAL");
    fail_with("{\"cmd\":\"evict_to\"}", "EINVAL");
    fail_with("{\"cmd\":\"evict_to\",\"percent\":\"50\"}", "EINVAL");
    fail_with("{\"cmd\":\"limit\"}", "EINVAL");
    fail_with("{\"cmd\":\"limit\",\"value\":\"much\"}", "EINVAL");
    fail_with("{\"cmd\":\"limit\",\"value\":\"0%\"}", "EINVAL");
    fail_with("{\"cmd\":\"option_get\"}", "EINVAL");
    fail_with("{\"cmd\":\"option_get\",\"name\":\"nothing\"}", "ENOENT");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"kv\"}", "EINVAL");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"kv\",\"value\":\"best\"}", "EINVAL");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"nothing\",\"value\":\"1\"}", "ENOENT");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"control\",\"value\":\"off\"}", "EBUSY");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"workers\",\"value\":\"4\"}", "EBUSY");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"uring\",\"value\":\"off\"}", "EBUSY");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"swap-folder\",\"value\":\"/var/tmp\"}", "EBUSY");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"swap-force\",\"value\":\"on\"}", "EBUSY");
    fail_with("{\"cmd\":\"option_set\",\"name\":\"idle\",\"value\":\"5m\"}",
              "EOPNOTSUPP"); /* no watch here */
    fail_with("{\"cmd\":\"trim\",\"level\":40}", "EOPNOTSUPP");
    fail_with("{\"cmd\":\"trim\",\"level\":999}", "EINVAL");
    fail_with("{\"cmd\":\"units\",\"from\":-1}", "EINVAL");
    fail_with("{\"cmd\":\"events\",\"since\":\"x\"}", "EINVAL");
    fail_with("{\"cmd\":\"clean\",\"bytes\":true}", "EINVAL");
}

static void every_command(void **state)
{
    (void)state;
    succeed("{\"cmd\":\"hello\"}");
    succeed("{\"cmd\":\"status\"}");
    succeed("{\"cmd\":\"brief\"}");
    succeed("{\"cmd\":\"layers\"}");
    succeed("{\"cmd\":\"units\"}");
    succeed("{\"cmd\":\"events\"}");
    succeed("{\"cmd\":\"options\"}");
    succeed("{\"cmd\":\"evict\",\"bytes\":1}");
    succeed("{\"cmd\":\"evict\",\"percent\":12.5,\"why\":\"a test\"}");
    succeed("{\"cmd\":\"evict_to\",\"percent\":0}");
    succeed("{\"cmd\":\"restore\"}");
    succeed("{\"cmd\":\"restore_stop\"}");
    succeed("{\"cmd\":\"restore\",\"wait\":true}");
    succeed("{\"cmd\":\"limit\",\"value\":\"1T\"}");
    succeed("{\"cmd\":\"limit\",\"value\":\"off\"}");
    succeed("{\"cmd\":\"option_get\",\"name\":\"kv\"}");
    succeed("{\"cmd\":\"option_set\",\"name\":\"kv\",\"value\":\"q8\"}");
    succeed("{\"cmd\":\"option_set\",\"name\":\"kv\",\"value\":\"exact\"}");
    succeed("{\"cmd\":\"clean\",\"bytes\":1048576}");
}

static void echoes_the_id(void **state)
{
    json_t *reply = ask("{\"cmd\":\"hello\",\"id\":{\"a\":[1]}}");
    json_t *id = json_pack("{s:[i]}", "a", 1);

    (void)state;
    assert_true(json_equal(json_object_get(reply, "id"), id));
    json_decref(reply);
    reply = ask("{\"cmd\":\"nothing\",\"id\":7}");
    assert_int_equal(number(reply, "id"), 7);
    json_decref(reply);
    json_decref(id);
}

static void lanes(void **state)
{
    static const struct {
        const char *line;
        enum mz_lane lane;
    } table[] = {
        {"nonsense", MZ_LANE_VIEW},
        {"{\"cmd\":\"status\"}", MZ_LANE_VIEW},
        {"{\"cmd\":\"evict\",\"bytes\":1}", MZ_LANE_ACT},
        {"{\"cmd\":\"limit\",\"value\":\"off\"}", MZ_LANE_ACT},
        {"{\"cmd\":\"restore\"}", MZ_LANE_VIEW},
        {"{\"cmd\":\"restore\",\"wait\":false}", MZ_LANE_VIEW},
        {"{\"cmd\":\"restore\",\"wait\":true}", MZ_LANE_WAIT},
        {"{\"cmd\":\"restore_stop\"}", MZ_LANE_VIEW},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        assert_int_equal(mz_protocol_lane(table[i].line, strlen(table[i].line)), table[i].lane);
}

static uint64_t sum_of_wheres(const json_t *kind)
{
    return number(kind, "resident_bytes") + number(kind, "stack_bytes") + number(kind, "store_bytes") +
           number(kind, "dropped_bytes") + number(kind, "lost_bytes");
}

/* Whatever the state is, the parts make the whole, in all three views. */
static void check_sums(void)
{
    json_t *status = ask("{\"cmd\":\"status\"}"), *layers = ask("{\"cmd\":\"layers\"}"),
           *units = ask("{\"cmd\":\"units\"}");
    json_t *kinds = json_object_get(status, "kinds"), *kind, *item;
    const char *name;
    uint64_t total = 0, resident = 0, in_layers = 0, in_units = 0;
    size_t i;

    json_object_foreach(kinds, name, kind)
    {
        if (strcmp(name, "scratch") == 0)
            continue;
        assert_int_equal(sum_of_wheres(kind), number(kind, "total_bytes"));
        total += number(kind, "total_bytes");
        resident += number(kind, "resident_bytes");
    }
    assert_int_equal(total, number(status, "total_bytes"));
    assert_true(number(status, "remaining_bytes") <= total);
    json_array_foreach(json_object_get(layers, "layers"), i, item) in_layers +=
        number(item, "resident_bytes");
    assert_int_equal(in_layers, resident);
    assert_true(json_is_null(json_object_get(units, "next")));
    json_array_foreach(json_object_get(units, "units"), i,
                       item) if (strcmp(json_string_value(json_object_get(item, "where")), "resident") == 0)
        in_units += number(item, "bytes");
    assert_int_equal(in_units, resident);
    json_decref(status);
    json_decref(layers);
    json_decref(units);
}

static void sums(void **state)
{
    (void)state;
    check_sums();
    succeed("{\"cmd\":\"evict\",\"percent\":30}");
    check_sums();
    succeed("{\"cmd\":\"evict_to\",\"percent\":0}");
    check_sums();
    succeed("{\"cmd\":\"restore\",\"wait\":true}");
    check_sums();
    assert_int_equal(small_model_use(&model), 0);
}

static void evicting_frees_what_it_says(void **state)
{
    (void)state;
    json_t *before = ask("{\"cmd\":\"brief\"}");
    json_t *report = ask("{\"cmd\":\"evict\",\"percent\":100}");
    json_t *after = ask("{\"cmd\":\"brief\"}");
    uint64_t total = number(before, "total_bytes");

    assert_int_equal(total, SMALL_LAYERS * (SMALL_WEIGHT_BYTES + SMALL_CACHE_BYTES));
    assert_int_equal(number(report, "asked_bytes"), total);
    assert_int_equal(number(before, "remaining_bytes"), total);
    assert_true(number(report, "freed_bytes") + number(report, "floor_bytes") >= total);
    assert_int_equal(number(after, "remaining_bytes"), number(report, "remaining_bytes"));
    json_decref(before);
    json_decref(report);
    json_decref(after);
    json_t *events = ask("{\"cmd\":\"events\"}");
    assert_true(json_array_size(json_object_get(events, "events")) > 0);
    char line[64];
    (void)snprintf(line, sizeof(line), "{\"cmd\":\"events\",\"since\":%llu}",
                   (unsigned long long)number(events, "last"));
    json_decref(events);
    events = ask(line);
    assert_int_equal(json_array_size(json_object_get(events, "events")), 0);
    json_decref(events);
    assert_int_equal(small_model_use(&model), 0); /* comes back by itself, byte by byte */
}

/* What JSON writes with six letters each, as often as a reply has events; quotes take two. */
static void odd_reasons_fit_into_a_reply(void **state)
{
    char line[512] = "{\"cmd\":\"evict\",\"bytes\":0,\"why\":\"";

    (void)state;
    for (int i = 0; i < 63; i++)
        (void)strcat(line, i % 2 ? "\\\"" : "\\u001b");
    (void)strcat(line, "\"}");
    for (int i = 0; i < 256; i++)
        succeed(line);
    succeed("{\"cmd\":\"events\"}");
}

/* Nothing of this model has a file to come back from: where the swap file cannot be written, nothing leaves.
 */
static void a_failed_eviction_says_why(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_WRITE, 1, ENOSPC, true);
    json_t *reply = ask("{\"cmd\":\"evict\",\"percent\":100}");
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_string_equal(json_string_value(json_object_get(reply, "error")), "ENOSPC");
    assert_string_equal(json_string_value(json_object_get(reply, "message")),
                        "the swap file cannot be written: No space left on device");
    json_decref(reply);
    reply = ask("{\"cmd\":\"evict\",\"percent\":100}");
    assert_true(json_is_null(json_object_get(reply, "write_error")));
    json_decref(reply);
    reply = ask("{\"cmd\":\"brief\"}");
    assert_true(json_is_null(json_object_get(reply, "model")));
    json_decref(reply);
}

static void a_refused_limit_names_the_floor(void **state)
{
    (void)state;
    json_t *reply = ask("{\"cmd\":\"limit\",\"value\":\"4K\"}");
    assert_string_equal(json_string_value(json_object_get(reply, "error")), "ERANGE");
    assert_true(number(reply, "floor_bytes") > 4096);
    json_decref(reply);
    json_t *brief = ask("{\"cmd\":\"brief\"}");
    assert_int_equal(number(brief, "limit_bytes"), 0);
    json_decref(brief);
}

/* Going through the page tables takes milliseconds for each gigabyte: status does it once for each region,
 * and what others ask for does without. */
static void pages_are_counted_once(void **state)
{
    (void)state;
    atomic_store(&asked_for_pages, 0);
    succeed("{\"cmd\":\"brief\"}");
    succeed("{\"cmd\":\"options\"}");
    succeed("{\"cmd\":\"option_get\",\"name\":\"limit\"}");
    succeed("{\"cmd\":\"evict\",\"percent\":0}");
    assert_int_equal(atomic_load(&asked_for_pages), 0);
    succeed("{\"cmd\":\"status\"}");
    assert_int_equal(atomic_load(&asked_for_pages), 2);
}

static void units_come_in_pages(void **state)
{
    uint64_t from = 0, seen = 0, pages = 0;
    char line[96];

    (void)state;
    for (;; pages++) {
        (void)snprintf(line, sizeof(line), "{\"cmd\":\"units\",\"from\":%llu,\"count\":3}",
                       (unsigned long long)from);
        json_t *reply = ask(line);
        size_t n = json_array_size(json_object_get(reply, "units"));
        assert_true(n <= 3);
        seen += n;
        bool last = json_is_null(json_object_get(reply, "next"));
        if (!last)
            from = number(reply, "next");
        json_decref(reply);
        if (last)
            break;
        assert_int_equal(from, seen);
    }
    json_t *all = mz_dump_units(homes.core, 0, 0);
    assert_int_equal(json_array_size(json_object_get(all, "units")), seen);
    assert_true(pages > 3);
    json_decref(all);
}

/* The longest replies there can be stay within a line. */
static void everything_fits(void **state)
{
    (void)state;
    json_t *all = mz_dump_all(&homes);
    assert_non_null(all);
    assert_non_null(json_object_get(all, "kinds"));
    assert_non_null(json_object_get(all, "layers"));
    assert_non_null(json_object_get(all, "units"));
    assert_non_null(json_object_get(all, "events"));
    json_decref(all);
    char *refusal = mz_protocol_refusal(-EMSGSIZE);
    assert_non_null(strstr(refusal, "EMSGSIZE"));
    free(refusal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(greets, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(every_command, setup, teardown),
        cmocka_unit_test_setup_teardown(echoes_the_id, setup, teardown),
        cmocka_unit_test_setup_teardown(lanes, setup, teardown),
        cmocka_unit_test_setup_teardown(sums, setup, teardown),
        cmocka_unit_test_setup_teardown(evicting_frees_what_it_says, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_reasons_fit_into_a_reply, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_eviction_says_why, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_limit_names_the_floor, setup, teardown),
        cmocka_unit_test_setup_teardown(pages_are_counted_once, setup, teardown),
        cmocka_unit_test_setup_teardown(units_come_in_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(everything_fits, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
