/* What the whole process shares: one engine, one core. Made when the first buffer or backend needs them,
 * since ggml loads plugins also into programs that never use them. */
#include "ggml/glue.h"

#include "control/process.h"
#include "os/log.h"

struct mz_engine *mz_glue_engine(void)
{
    struct mz_engine *engine = NULL;
    int err = mz_cpu_engine(&engine);

    if (err)
        mz_log_once(MZ_LOG_ERROR, "no engine: %s", mz_log_errno(err));
    return err ? NULL : engine;
}

struct mz_core *mz_glue_core(void)
{
    struct mz_engine *engine = mz_glue_engine();
    struct mz_core *core = NULL;
    int err = engine ? mz_process_start(engine, &core) : 0;

    if (err)
        mz_log_once(MZ_LOG_ERROR, "cannot start: %s", mz_log_errno(err));
    return err || !engine ? NULL : core;
}
