/* mzcache top: what happens now. On a terminal with ncurses, otherwise as plain lines. */
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "top_view.h"

/* Where lines go: the screen, row by row, or standard output. */
struct page {
    bool screen;
    int row, rows, width;
};

static void put_line(void *user, const char *text)
{
    struct page *page = user;

    if (!page->screen)
        (void)puts(text);
    else if (page->row + 1 < page->rows) /* the last row says how to end it */
        (void)mvaddnstr(page->row, 0, text, page->width);
    page->row++;
}

static json_t *ask(const struct cli_target *t, const char *command)
{
    int rc;

    return cli_ask(t, json_pack("{s:s}", "cmd", command), CLI_ASK_MS, &rc);
}

/* The last reply of the events, of which many may have gathered. */
static json_t *ask_events(const struct cli_target *t)
{
    json_t *last = NULL;
    uint64_t since = 0;

    for (int rc;;) {
        json_t *reply =
            cli_ask(t, json_pack("{s:s, s:I}", "cmd", "events", "since", (json_int_t)since), CLI_ASK_MS, &rc);
        if (!reply || json_array_size(json_object_get(reply, "events")) == 0) {
            json_decref(reply);
            return last;
        }
        json_decref(last);
        last = reply;
        since = cli_number(reply, "last");
    }
}

/* `rows`: that it may take; 0: any number. */
static void show_target(const struct cli_target *t, struct page *page, int rows)
{
    json_t *status = ask(t, "status"), *layers = ask(t, "layers"), *events = ask_events(t);

    if (status)
        top_view(status, layers, events, page->width, rows, put_line, page);
    json_decref(status);
    json_decref(layers);
    json_decref(events);
}

/* In the same order at each look, whoever is used meanwhile. */
static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct cli_target *)a)->pid, y = ((const struct cli_target *)b)->pid;

    return (x > y) - (x < y);
}

/* One look. Connections are made anew each time: one that lies idle may be closed by the other end. */
static int show(const struct cli_input *input, struct page *page)
{
    struct cli_target *targets;
    size_t n;
    int rc;

    page->row = 0;
    rc = cli_targets(input, &targets, &n);
    if (rc != CLI_OK)
        return rc;
    qsort(targets, n, sizeof(*targets), by_pid);
    for (size_t i = 0; i < n; i++) {
        if (i)
            put_line(page, "");
        show_target(&targets[i], page, page->screen ? page->rows / (int)n - 1 : 0);
    }
    cli_targets_free(targets, n);
    return CLI_OK;
}

static int plain(const struct cli_input *input, uint64_t interval_s, uint64_t count)
{
    struct page page = {.width = 100};
    int rc = CLI_OK;

    for (uint64_t i = 0; rc == CLI_OK && (count == 0 || i < count); i++) {
        if (i)
            (void)sleep((unsigned)interval_s);
        rc = show(input, &page);
        (void)putchar('\n');
        if (fflush(stdout) != 0)
            break;
    }
    return rc;
}

/* What the look said on standard error, as lines of the page. */
static void put_errors(struct page *page, char *errors)
{
    char *rest = errors;

    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line)
            put_line(page, line);
}

/* One look, on the screen. Where no process has a model (any more) it says so and waits for one. */
static int look(const struct cli_input *input, struct page *page)
{
    char *errors = NULL;
    size_t size;
    FILE *to = open_memstream(&errors, &size);

    cli_errors_to(to);
    int rc = show(input, page);
    cli_errors_to(NULL);
    if (to && fclose(to) == 0)
        put_errors(page, errors);
    free(errors);
    return rc == CLI_NO_PROCESS && !cli_value(input, "pid") ? CLI_OK : rc;
}

static int on_screen(const struct cli_input *input, uint64_t interval_s, uint64_t count)
{
    struct page page = {.screen = true};
    int rc = CLI_OK;

    if (!newterm(NULL, stdout, stdin)) /* a terminal that curses does not know */
        return plain(input, interval_s, count);
    (void)cbreak();
    (void)noecho();
    (void)curs_set(0);
    timeout((int)(interval_s * 1000));
    for (uint64_t i = 0; rc == CLI_OK && (count == 0 || i < count); i++) {
        (void)erase();
        getmaxyx(stdscr, page.rows, page.width);
        rc = look(input, &page);
        if (page.rows > 0)
            (void)mvaddnstr(page.rows - 1, 0, "q: quit", page.width);
        (void)refresh();
        int key = rc == CLI_OK ? getch() : 0;
        if (key == 'q' || key == 'Q')
            break;
    }
    (void)endwin();
    if (rc == CLI_NO_PROCESS) /* said on a screen that is gone */
        cli_error("process %s does not run any more", cli_value(input, "pid"));
    else if (rc != CLI_OK)
        cli_error("process %s does not answer", cli_value(input, "pid"));
    return rc;
}

static int run(const struct cli_input *input)
{
    const char *interval = cli_value(input, "interval"), *times = cli_value(input, "count");
    uint64_t interval_s = 1, count = 0;

    if (interval && !cli_count(input, "--interval", interval, &interval_s))
        return CLI_USAGE;
    if (times && !cli_count(input, "--count", times, &count))
        return CLI_USAGE;
    if (interval_s > 3600)
        return cli_usage(input, "--interval: at most 3600");
    if (cli_value(input, "plain") || !isatty(STDOUT_FILENO))
        return plain(input, interval_s, count);
    return on_screen(input, interval_s, count);
}

static const struct cli_option options[] = {
    {"pid", 'p', "PID", "this process; without it all that hold a model"},
    {"interval", 'i', "SECONDS", "between two looks; default 1"},
    {"count", 'n', "COUNT", "end after that many looks"},
    {"plain", 0, NULL, "plain lines also on a terminal"},
    {0},
};

const struct cli_command cli_top = {
    .name = "top",
    .operands = "",
    .summary = "Watch models layer by layer, memory pressure and what happened last (q quits)",
    .help =
        "A bar is a layer, or several where the screen is low: # in memory, = compressed in memory, - in the "
        "swap file only, . in the model file only, ~ on its way, ! lost. \"held\" is all memory that mzCache "
        "holds, buffers for computing counted in.\n",
    .options = options,
    .run = run,
};
