/* mzcache top: its bars and lines from made-up figures, and on a real terminal, which tmux plays. */
#include "cli_test.h"

#include "cli.h"
#include "top_view.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    live_in_folder(folder, sizeof(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static void bars(void **state)
{
    static const struct {
        int resident, moving, stack, store, dropped, lost, empty;
        const char *bar;
    } table[] = {
        {10, 0, 0, 0, 0, 0, 0, "##########"},   {0, 0, 0, 0, 0, 0, 0, "          "},
        {5, 0, 0, 0, 5, 0, 0, "#####....."},    {2, 2, 2, 2, 2, 0, 0, "##~~==--.."},
        {0, 0, 0, 0, 0, 0, 9, "          "},    {1, 0, 0, 0, 1, 0, 9, "#####....."},
        {1000, 0, 0, 0, 0, 1, 0, "##########"}, {0, 0, 0, 1, 1000, 0, 0, "-........."},
        {0, 0, 0, 0, 5, 5, 0, ".....!!!!!"},
    };
    char bar[11];

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        json_t *layer = json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "resident_bytes", table[i].resident,
                                  "moving_bytes", table[i].moving, "stack_bytes", table[i].stack,
                                  "store_bytes", table[i].store, "dropped_bytes", table[i].dropped,
                                  "lost_bytes", table[i].lost, "empty_bytes", table[i].empty);
        top_bar(layer, 10, bar);
        assert_string_equal(bar, table[i].bar);
        json_decref(layer);
    }
}

struct lines {
    int n;
    size_t longest, used;
    char text[16384]; /* all of them */
};

static void count_line(void *user, const char *text)
{
    struct lines *lines = user;

    lines->n++;
    if (strlen(text) > lines->longest)
        lines->longest = strlen(text);
    int added = snprintf(lines->text + lines->used, sizeof(lines->text) - lines->used, "%s\n", text);
    lines->used += lines->used + (size_t)added < sizeof(lines->text) ? (size_t)added : 0;
}

/* Nothing that a process says, or leaves out, makes it fail. */
static void odd_replies(void **state)
{
    static const char *const replies[] = {
        "{}",
        "{\"pressure\": null, \"program\": 7, \"layers\": 3, \"events\": {}}",
        "{\"layers\": [1, null, {}, {\"layer\": 1e300, \"resident_bytes\": -5}], \"events\": [null, "
        "{\"time_s\": 1e300}]}",
        "{\"layers\": [{\"layer\": 0, \"resident_bytes\": 9223372036854775807, \"store_bytes\": "
        "9223372036854775807}]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(replies) / sizeof(*replies); i++) {
        for (int width = 0, rows = 0; width < 300; width += 37, rows += 5) {
            json_t *reply = json_loads(replies[i], 0, NULL);
            struct lines lines = {0};
            top_view(reply, reply, reply, width, rows, count_line, &lines);
            assert_true(lines.n >= 2);
            assert_true(width == 0 || lines.longest <= (size_t)width);
            json_decref(reply);
        }
    }
}

/* Layers share bars where the screen is low; the last bar may stand for fewer, and what is no layer has one
 * of its own. */
static void layers_fit_the_rows(void **state)
{
    static const struct {
        int rows, bars;
        const char *first, *last;
    } table[] = {{0, 30, "       0 [", "      29 ["},
                 {35, 30, "       0 [", "      29 ["},
                 {34, 15, "     0-1 [", "   28-29 ["},
                 {13, 8, "     0-3 [", "   28-29 ["},
                 {3, 1, "    0-29 [", "    0-29 ["}};

    (void)state;
    json_t *list = json_array(), *status = json_pack("{s:{}}", "pressure");
    for (int layer = 0; layer < 31; layer++)
        (void)json_array_append_new(list, json_pack("{s:i, s:i, s:i}", "layer", layer == 30 ? -1 : layer,
                                                    "resident_bytes", 1 << 20, "store_bytes", 1 << 20));
    json_t *layers = json_pack("{s:o}", "layers", list), *events = json_pack("{s:[]}", "events");
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct lines lines = {0};
        top_view(status, layers, events, 80, table[i].rows, count_line, &lines);
        if (lines.n != 3 + table[i].bars + 1 + 1)
            print_error("%d rows: %d lines, %s\n", table[i].rows, lines.n, lines.text);
        assert_int_equal(lines.n, 3 + table[i].bars + 1 + 1);
        assert_non_null(strstr(lines.text, table[i].first));
        assert_non_null(strstr(lines.text, table[i].last));
        assert_non_null(strstr(lines.text, "others ["));
    }
    json_decref(layers);
    json_decref(events);
    json_decref(status);
}

static void tmux(const char *const *words)
{
    const char *argv[16] = {"tmux", "-f", "/dev/null", "-S", NULL};
    char path[128];
    size_t n = 4;

    (void)snprintf(path, sizeof(path), "%s/tmux", folder);
    for (argv[n++] = path; *words; words++)
        argv[n++] = *words;
    argv[n] = NULL;
    run_program(&last, "tmux", (char *const *)(uintptr_t)argv);
}

#define TMUX(...) tmux((const char *const[]){__VA_ARGS__, NULL})

static bool screen_has(const char *text)
{
    TMUX("capture-pane", "-p", "-t", "top");
    return strstr(last.out, text) != NULL;
}

static void on_a_narrow_screen(void **state)
{
    json_t *status = json_loads(
        "{\"program\": \"llama-server\", \"pid\": 4194304, \"model\": \"smollm2-135m.gguf\", \"idle_ms\": "
        "60000, "
        "\"remaining_bytes\": 1000000000, \"total_bytes\": 1000000000, \"remaining_percent\": 100, "
        "\"ledger_bytes\": 1000000000, \"pressure\": {\"level\": \"none\", \"available_bytes\": 5000000000}}",
        0, NULL);
    json_t *layers = json_loads("{\"layers\": [{\"layer\": 0, \"resident_bytes\": 5}]}", 0, NULL);
    struct lines lines = {0};

    (void)state;
    top_view(status, layers, NULL, 60, 20, count_line, &lines);
    assert_non_null(strstr(lines.text, "idle 60 s  smollm2-135m.gguf\n"));
    assert_non_null(strstr(lines.text, "held 954 MiB\n"));
    assert_non_null(strstr(lines.text, "free 4.66 GiB\n"));
    assert_non_null(strstr(lines.text, "! lost\n"));
    json_decref(layers);
    json_decref(status);
}

static bool session_ended(void)
{
    TMUX("has-session", "-t", "top");
    return last.exit != 0;
}

static void need_tmux(void)
{
    TMUX("-V");
    if (last.exit == 99) {
        print_message("skipped: tmux is not installed\n");
        skip();
    }
}

static void on_a_terminal(void **state)
{
    struct fake fake;

    (void)state;
    need_tmux();
    TMUX("new-session", "-d", "-s", "top", "-x", "100", "-y", "40", MZ_COMMAND, "top");
    expect_exit(0);
    eventually(screen_has("no process found")); /* it waits for one */
    fake_start(&fake, "model");
    eventually(screen_has(fake.pid_text));
    assert_true(screen_has("q: quit"));
    assert_true(screen_has("####"));
    mzcache("evict", "100%", "--pid", fake.pid_text);
    expect_exit(0);
    eventually(screen_has("evict"));
    eventually(screen_has("----"));
    TMUX("send-keys", "-t", "top", "q");
    eventually(session_ended());
    fake_end(&fake);
}

static void on_an_unknown_terminal(void **state)
{
    struct fake fake;

    (void)state;
    need_tmux();
    fake_start(&fake, "model");
    TMUX("new-session", "-d", "-s", "top", "-x", "100", "-y", "40",
         "TERM=nonsense " MZ_COMMAND " top; sleep 99");
    expect_exit(0);
    eventually(screen_has(fake.pid_text)); /* plain lines */
    TMUX("kill-session", "-t", "top");
    fake_end(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars),
        cmocka_unit_test(odd_replies),
        cmocka_unit_test(layers_fit_the_rows),
        cmocka_unit_test(on_a_narrow_screen),
        cmocka_unit_test_setup_teardown(on_a_terminal, setup, teardown),
        cmocka_unit_test_setup_teardown(on_an_unknown_terminal, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
