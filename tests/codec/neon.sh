#!/bin/sh
# The NEON kernels: cross-compiled for aarch64, run under qemu's user emulation, and compared byte for byte
# with what this machine's kernels give and with the portable ones.
#
#   neon.sh SOURCE_DIR DIGEST_PROGRAM_OF_THIS_MACHINE
#
# 0: equal, 1: different or broken, 77: no cross compiler or no emulator here.
set -eu

source=$1
native=$2
cc=${MZ_AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=${MZ_QEMU_AARCH64:-qemu-aarch64-static}

skip() { echo "skipped: $1"; exit 77; }

case $(uname -m) in aarch64) skip "this machine runs NEON itself: the other tests cover it" ;; esac
command -v "$cc" >/dev/null || skip "no $cc"
command -v "$qemu" >/dev/null || skip "no $qemu"

work=$(mktemp -d)
trap 'rm -f "$work/xxhash.h" "$work/digest" "$work/neon" "$work/portable" "$work/native"; rmdir "$work"' EXIT

# xxhash.h is the same for every architecture, but the folder that it lies in is not.
header=$(printf '#include <xxhash.h>\n' | ${CC:-cc} -E -x c - |
    sed -n 's/^# [0-9]* "\(.*xxhash\.h\)".*/\1/p' | head -n 1)
[ -n "$header" ] || skip "no xxhash.h"
cp "$header" "$work/xxhash.h"
printf 'int main(void) { return 0; }\n' | "$cc" -static -x c -o "$work/digest" - 2>/dev/null ||
    skip "$cc has no static C library"

codec=$source/src/codec
"$cc" -std=gnu11 -O2 -static -ffp-contract=off -Wall -Wextra -Werror -D_GNU_SOURCE \
    -I"$source/src" -isystem "$work" -o "$work/digest" \
    "$source/tests/codec/digest.c" "$source/tests/codec/codec_data.c" \
    "$codec/codec.c" "$codec/image.c" "$codec/isa.c" "$codec/raw.c" "$codec/q8.c" "$codec/flexgen.c" \
    "$codec/q8_portable.c" "$codec/flexgen_portable.c" "$codec/q8_neon.c" "$codec/flexgen_neon.c" \
    "$codec/hash_baseline.c" -lm

"$native" >"$work/native"
"$qemu" "$work/digest" neon >"$work/neon"
"$qemu" "$work/digest" portable >"$work/portable"
lines=$(wc -l <"$work/native")
[ "$lines" -gt 100 ] || { echo "only $lines digests"; exit 1; }
cmp "$work/native" "$work/neon"
cmp "$work/native" "$work/portable"
echo "$lines images and decoded chunks are equal"
