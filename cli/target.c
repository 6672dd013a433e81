/* Finding processes and asking them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

#define OPEN_MS 3000

static const char *open_error(int rc, pid_t pid);

/* Why a process has no socket that we can see. */
static const char *no_socket(pid_t pid)
{
    char path[32];
    struct stat st;

    (void)snprintf(path, sizeof(path), "/proc/%ld", (long)pid);
    if (stat(path, &st) < 0)
        return "it does not run";
    if (geteuid() != 0 && st.st_uid != geteuid())
        return open_error(-EPERM, pid);
    return "mzCache is not in it; start it with: mzcache run -- PROGRAM ...";
}

static const char *open_error(int rc, pid_t pid)
{
    switch (rc) {
    case -ENOENT:
        return no_socket(pid);
    case -ECONNRESET: /* it ended between accepting and greeting */
        return "it ended";
    case -EPERM:
        return "it belongs to another user: ask as that user, or as root";
    case -EPROTO:
        return "it speaks another version of the protocol";
    case -ETIMEDOUT:
    case -EAGAIN:
        return "it does not answer";
    default:
        return strerror(-rc);
    }
}

/* What the process says about itself. */
static int introduce(struct mz_client *client, struct cli_target *ret)
{
    json_t *request = json_pack("{s:s}", "cmd", "brief"), *brief = NULL;
    int rc = request ? mz_client_ask(client, request, CLI_ASK_MS, &brief) : -ENOMEM;

    json_decref(request);
    if (rc < 0)
        return rc;
    *ret = (struct cli_target){.client = client, .brief = brief, .pid = client->pid};
    (void)snprintf(ret->program, sizeof(ret->program), "%s", cli_text(client->greeting, "program"));
    return 0;
}

int cli_target_open(pid_t pid, struct cli_target *ret)
{
    struct mz_client *client;
    int rc = mz_client_open(pid, OPEN_MS, &client);

    if (rc < 0)
        return rc;
    rc = introduce(client, ret);
    if (rc < 0)
        mz_client_close(client);
    return rc;
}

/* Never used counts as idle for ever, computing as not idle at all. */
static double idle_ms(const struct cli_target *target)
{
    const json_t *idle = json_object_get(target->brief, "idle_ms");

    return json_is_integer(idle) ? json_number_value(idle) : 1e18;
}

static int by_idle(const void *a, const void *b)
{
    double x = idle_ms(a), y = idle_ms(b);

    return (x < y) - (x > y);
}

int cli_targets_all(struct cli_target **ret, size_t *ret_n)
{
    pid_t *pids = NULL;
    size_t n = 0, used = 0;
    int rc = mz_client_list(&pids, &n);
    struct cli_target *targets = rc < 0 ? NULL : calloc(n + 1, sizeof(*targets));

    if (!targets) {
        free(pids);
        cli_error("%s", strerror(ENOMEM));
        return CLI_FAILED;
    }
    for (size_t i = 0; i < n; i++) {
        rc = cli_target_open(pids[i], &targets[used]);
        if (rc == 0)
            used++;
        else if (rc != -ENOENT && rc != -ECONNRESET)
            cli_error("process %ld is left out: %s", (long)pids[i], open_error(rc, pids[i]));
    }
    free(pids);
    qsort(targets, used, sizeof(*targets), by_idle);
    *ret = targets;
    *ret_n = used;
    return CLI_OK;
}

static int target_of(const struct cli_input *input, const char *text, struct cli_target **ret, size_t *ret_n)
{
    uint64_t pid;

    if (!cli_count(input, "--pid", text, &pid))
        return CLI_USAGE;
    struct cli_target *target = calloc(1, sizeof(*target));
    if (!target)
        return CLI_FAILED;
    int rc = pid > INT32_MAX ? -ENOENT : cli_target_open((pid_t)pid, target);
    if (rc < 0) {
        free(target);
        cli_error("process %s: %s", text,
                  pid > INT32_MAX ? "there is no such number" : open_error(rc, (pid_t)pid));
        return rc == -ENOENT || rc == -ECONNRESET ? CLI_NO_PROCESS : CLI_FAILED;
    }
    *ret = target;
    *ret_n = 1;
    return CLI_OK;
}

int cli_targets(const struct cli_input *input, struct cli_target **ret, size_t *ret_n)
{
    const char *pid = cli_value(input, "pid");
    struct cli_target *all;
    size_t n, used = 0;

    if (pid)
        return target_of(input, pid, ret, ret_n);
    int rc = cli_targets_all(&all, &n);
    if (rc != CLI_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (cli_number(all[i].brief, "total_bytes") > 0) {
            struct cli_target keep = all[i];
            all[i] = all[used];
            all[used++] = keep;
        }
    }
    if (used == 0) {
        cli_error(n ? "no process has a model yet"
                    : "no process found; start one with: mzcache run -- llama-server ...");
        cli_targets_free(all, n);
        return CLI_NO_PROCESS;
    }
    for (size_t i = used; i < n; i++)
        cli_target_close(&all[i]);
    *ret = all;
    *ret_n = used;
    return CLI_OK;
}

int cli_targets_one(const struct cli_input *input, struct cli_target **ret, size_t *ret_n)
{
    struct cli_target *targets;
    size_t n;
    int rc = cli_targets(input, &targets, &n);

    if (rc != CLI_OK)
        return rc;
    if (n > 1 && !cli_value(input, "all")) {
        rc = cli_usage(input, "%zu processes have a model: name one with --pid%s", n,
                       cli_takes(input, "all") ? ", or give --all" : "");
        cli_targets_free(targets, n);
        return rc;
    }
    *ret = targets;
    *ret_n = n;
    return CLI_OK;
}

void cli_target_close(struct cli_target *target)
{
    mz_client_close(target->client);
    json_decref(target->brief);
}

void cli_targets_free(struct cli_target *targets, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cli_target_close(&targets[i]);
    free(targets);
}

int cli_each(const struct cli_input *input, struct cli_target *targets, size_t n,
             int (*one)(const struct cli_input *input, const struct cli_target *target))
{
    int rc = CLI_OK;

    for (size_t i = 0; i < n; i++) {
        int code = one(input, &targets[i]);
        rc = code == CLI_OK ? rc : code;
    }
    cli_targets_free(targets, n);
    return rc;
}

json_t *cli_ask(const struct cli_target *target, json_t *request, uint32_t timeout_ms, int *ret_exit)
{
    json_t *reply = NULL;
    int rc = request ? mz_client_ask(target->client, request, timeout_ms, &reply) : -ENOMEM;

    json_decref(request);
    *ret_exit = rc == -ECONNRESET ? CLI_NO_PROCESS : CLI_FAILED;
    if (rc < 0) {
        cli_error("%s (%ld) does not answer: %s", target->program, (long)target->pid,
                  rc == -ECONNRESET ? "it ended" : strerror(-rc));
        return NULL;
    }
    if (cli_true(reply, "ok"))
        return reply;
    char size[CLI_TEXT] = "";
    const json_t *floor = json_object_get(reply, "floor_bytes");
    cli_error("%s (%ld): %s%s%s", target->program, (long)target->pid, cli_text(reply, "message"),
              floor ? ": " : "", floor ? cli_size(cli_number(reply, "floor_bytes"), size) : "");
    if (floor && strcmp(cli_text(reply, "error"), "ERANGE") == 0)
        *ret_exit = CLI_REFUSED;
    json_decref(reply);
    return NULL;
}
