/* Clock, medians and JSON lines. No state. */
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void bench_must(int error, const char *what)
{
    if (error < 0)
        bench_die("%s: %s", what, strerror(-error));
}

double bench_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void bench_runs_add(struct bench_runs *runs, double value)
{
    if (runs->n < BENCH_RUNS_MAX)
        runs->values[runs->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_runs_median(const struct bench_runs *runs)
{
    double sorted[BENCH_RUNS_MAX];
    unsigned n = runs->n;

    if (n == 0)
        return 0;
    memcpy(sorted, runs->values, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double bench_runs_spread(const struct bench_runs *runs)
{
    double least = 0, most = 0;

    for (unsigned i = 0; i < runs->n; i++) {
        least = i == 0 || runs->values[i] < least ? runs->values[i] : least;
        most = i == 0 || runs->values[i] > most ? runs->values[i] : most;
    }
    return least > 0 ? most / least : 1;
}

void bench_emit(const char *section, const char *key, json_t *point)
{
    json_t *line = json_pack("{ss ss so}", "section", section, "key", key, "point", point);

    if (!line || json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(8)) != 0 || puts("") < 0 ||
        fflush(stdout) != 0)
        bench_die("a figure could not be written");
    json_decref(line);
}

double bench_number(const char *option, const char *text, double least, double most)
{
    char *end = NULL;
    double value = text ? strtod(text, &end) : 0;

    if (!text || end == text || *end != '\0' || !(value >= least && value <= most))
        bench_die("%s wants a number from %g to %g", option, least, most);
    return value;
}
