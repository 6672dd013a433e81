#!/bin/sh
# neon.sh SOURCE_ROOT BUILD_FOLDER: builds src/attn and its table of cases for AArch64 and runs them under qemu-user,
# as processors with FMLAL and without. 77: the compiler or the emulator is not there.
set -eu
root=$1 build=$2 cc=${MZ_AARCH64_CC:-aarch64-linux-gnu-gcc} emulator='' objects=''

command -v "$cc" >/dev/null || { echo "skipped: no $cc"; exit 77; }
for name in qemu-aarch64-static qemu-aarch64; do
    command -v $name >/dev/null && emulator=$name && break
done
[ -n "$emulator" ] || { echo "skipped: no qemu-aarch64-static or qemu-aarch64"; exit 77; }

mkdir -p "$build/neon"
for source in "$root"/src/attn/*.c "$root/tests/attn/attn_fixture.c" "$root/tests/attn/neon_main.c"; do
    object=$build/neon/$(basename "$source" .c).o option=
    case $source in *_neon_fp16.c) option=-march=armv8.2-a+fp16fml ;; esac
    "$cc" -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -ffp-contract=off $option -I"$root/src" -c -o "$object" "$source"
    objects="$objects $object"
done
# shellcheck disable=SC2086 # a list
"$cc" -static -o "$build/attn_neon" $objects -lpthread -lm
"$emulator" -cpu max "$build/attn_neon" neon-fp16
"$emulator" -cpu cortex-a57 "$build/attn_neon" neon
"$emulator" -cpu cortex-a76 "$build/attn_neon" neon selection # fp16 without FMLAL
