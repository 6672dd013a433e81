#!/usr/bin/env bash
# Compiles the plugin and the CPU engine against version 3 of ggml's backend interface, without linking: there are only headers.
. "$(dirname "$0")/lib.sh"

headers=$("$MZ_ROOT/scripts/api3.sh")
dir=$MZ_ROOT/build/api3
cmake -S "$MZ_ROOT" --preset release -B "$dir" "-DMZ_LLAMA_DIR=$headers" -DMZ_TESTS=OFF -DMZ_WERROR=ON
mapfile -t objects < <(ninja -C "$dir" -t targets all | sed -n 's,^\(src/\(ggml\|engine/cpu\)/.*\.o\): .*,\1,p')
((${#objects[@]})) || die "found nothing to compile"
ninja -C "$dir" -j "$MZ_JOBS" "${objects[@]}"
