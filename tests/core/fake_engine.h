/* An engine without ggml: plain anonymous memory, a packed form that flips every byte, and nothing to compute. */
#ifndef MZ_TEST_FAKE_ENGINE_H
#define MZ_TEST_FAKE_ENGINE_H

#include "engine/engine.h"

/* The one instance. Evicted memory traps when touched. */
struct mz_engine *fake_engine(void);

/* The same without traps: core then commits whole huge pages, as with a release build's engine. */
struct mz_engine *fake_engine_without_traps(void);

/* How often memory was released so far, by both. Any thread. */
unsigned fake_engine_releases(void);

/* The packed form. */
const struct mz_form *fake_form(void);

#endif
