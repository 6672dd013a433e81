#!/bin/sh
# neon.sh SOURCE_ROOT BUILD_FOLDER: builds src/attn and its table of cases for AArch64 and runs them under qemu-user.
# 77: the compiler or the emulator is not there.
set -eu
root=$1 build=$2 cc=${MZ_AARCH64_CC:-aarch64-linux-gnu-gcc} emulator=

command -v "$cc" >/dev/null || { echo "skipped: no $cc"; exit 77; }
for name in qemu-aarch64-static qemu-aarch64; do
    command -v $name >/dev/null && emulator=$name && break
done
[ -n "$emulator" ] || { echo "skipped: no qemu-aarch64-static or qemu-aarch64"; exit 77; }

"$cc" -std=gnu11 -D_GNU_SOURCE -O2 -static -Wall -Wextra -ffp-contract=off -I"$root/src" -o "$build/attn_neon" \
    "$root"/src/attn/*.c "$root/tests/attn/attn_fixture.c" "$root/tests/attn/neon_main.c" -lpthread -lm
"$emulator" "$build/attn_neon"
