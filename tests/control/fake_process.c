/* A process with a small model on the fake engine and everything that runs beside a core. Says "ready"; then
 * each line on standard input: "use" runs a pass over the model and says "0" or an error; "exit" returns from
 * main(). Ends with its input. */
#include <stdio.h>
#include <string.h>

#include "control/process.h"
#include "fake_engine.h"
#include "small_model.h"

static int say(const char *text)
{
    (void)puts(text);
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct small_model model;
    struct mz_core *core;
    char line[64];

    if (mz_process_start(fake_engine(), &core) < 0)
        return 1;
    bool empty = argc > 1 && strcmp(argv[1], "empty") == 0;
    if (!empty && small_model_make(&model, core) < 0)
        return 2;
    (void)say("ready");
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "exit\n") != 0) {
        if (strcmp(line, "use\n") == 0) {
            (void)snprintf(line, sizeof(line), "%d", small_model_use(&model));
            (void)say(line);
        }
    }
    return 0;
}
