/* An engine without ggml: plain anonymous memory, a packed form that flips every byte, and nothing to compute. */
#ifndef MZ_TEST_FAKE_ENGINE_H
#define MZ_TEST_FAKE_ENGINE_H

#include "engine/engine.h"

/* The one instance; it has no state. Evicted memory traps when touched. */
struct mz_engine *fake_engine(void);

/* The packed form. */
const struct mz_form *fake_form(void);

#endif
