/* cmocka.h with what it wants included before it. */
#ifndef MZ_TESTS_CODEC_CMOCKA_ALL_H
#define MZ_TESTS_CODEC_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
