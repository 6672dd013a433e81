/* Running the command as a child, without a shell, and a fake process for it to talk to. */
#ifndef MZ_TESTS_CLI_TEST_H
#define MZ_TESTS_CLI_TEST_H

#include "../control/control_test.h"

#include <jansson.h>

#define OUTPUT_BYTES ((size_t)256 * 1024)

struct outcome {
    int exit;               /* 128 + the signal when it was killed */
    char out[OUTPUT_BYTES]; /* standard output, ended by NUL */
    char err[OUTPUT_BYTES];
};

/* Runs a program with these arguments (NULL behind the last) to its end. Standard input is empty. */
static inline void run_program(struct outcome *ret, const char *program, char *const *argv)
{
    int out[2], err[2], status;
    size_t out_used = 0, err_used = 0;

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)dup2(err[1], STDERR_FILENO);
        (void)execvp(program, argv);
        _exit(99);
    }
    (void)close(out[1]);
    (void)close(err[1]);
    struct pollfd p[2] = {{.fd = out[0], .events = POLLIN}, {.fd = err[0], .events = POLLIN}};
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        assert_true(poll(p, 2, PATIENCE_MS) > 0);
        for (int i = 0; i < 2; i++) {
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            char *to = i == 0 ? ret->out : ret->err;
            size_t *used = i == 0 ? &out_used : &err_used;
            ssize_t n = read(p[i].fd, to + *used, OUTPUT_BYTES - 1 - *used);
            if (n <= 0)
                p[i].fd = -1;
            else
                *used += (size_t)n;
        }
    }
    (void)close(out[0]);
    (void)close(err[0]);
    ret->out[out_used] = ret->err[err_used] = '\0';
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ret->exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct outcome last;

/* mzcache with these arguments; the result is in `last`. */
#define mzcache(...)                                                                                         \
    do {                                                                                                     \
        const char *argv_[] = {"mzcache", __VA_ARGS__, NULL};                                                \
        run_program(&last, MZ_COMMAND, (char *const *)(uintptr_t)argv_);                                     \
    } while (0)

#define expect_exit(code)                                                                                    \
    do {                                                                                                     \
        if (last.exit != (code))                                                                             \
            print_error("stdout: %s\nstderr: %s\n", last.out, last.err);                                     \
        assert_int_equal(last.exit, code);                                                                   \
    } while (0)

/* The output as one JSON object; the caller frees it. */
static inline json_t *output_json(void)
{
    json_t *object = json_loads(last.out, 0, NULL);

    if (!json_is_object(object))
        print_error("stdout: %s\nstderr: %s\n", last.out, last.err);
    assert_true(json_is_object(object));
    return object;
}

static inline uint64_t number(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* ------------------------------------------------------------------------------------ the fake process */

struct fake {
    pid_t pid;
    int to, from; /* its standard input and output */
    char pid_text[16];
};

static inline void fake_expect(struct fake *fake, const char *text)
{
    char line[64];
    size_t n = 0;

    while (n + 1 < sizeof(line)) {
        struct pollfd p = {.fd = fake->from, .events = POLLIN};
        assert_true(poll(&p, 1, PATIENCE_MS) == 1);
        assert_int_equal(read(fake->from, line + n, 1), 1);
        if (line[n] == '\n')
            break;
        n++;
    }
    line[n] = '\0';
    assert_string_equal(line, text);
}

static inline void fake_start(struct fake *fake, const char *argument)
{
    int in[2], out[2];

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    fake->pid = fork();
    assert_true(fake->pid >= 0);
    if (fake->pid == 0) {
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)execl(MZ_FAKE_PROCESS, "fake", argument, (char *)NULL);
        _exit(99);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    fake->to = in[1];
    fake->from = out[0];
    (void)snprintf(fake->pid_text, sizeof(fake->pid_text), "%ld", (long)fake->pid);
    fake_expect(fake, "ready");
}

static inline void fake_use(struct fake *fake)
{
    assert_int_equal(write(fake->to, "use\n", 4), 4);
    fake_expect(fake, "0");
}

/* Has it exit and waits for that. */
static inline void fake_end(struct fake *fake)
{
    int status;

    (void)close(fake->to);
    assert_int_equal(waitpid(fake->pid, &status, 0), fake->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    (void)close(fake->from);
}

#endif
