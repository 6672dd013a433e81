#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json and prints its folder.
#
#   scripts/build.sh PRESET [CMAKE OPTION...]
#     MZ_LLAMA   the llama.cpp build to use; without it scripts/llama.sh's; empty: none, only what needs none is built
#     MZ_TARGETS what to build; without it everything
#     MZ_BUILD   the folder to build in; without it build/PRESET
. "$(dirname "$0")/lib.sh"

preset=${1:-release}
shift || true
llama=${MZ_LLAMA-$("$MZ_ROOT/scripts/llama.sh")}
dir=${MZ_BUILD:-$MZ_ROOT/build/$preset}

step "Configuring mzCache ($preset)" cmake -S "$MZ_ROOT" --preset "$preset" -B "$dir" "-DMZ_LLAMA_DIR=$llama" "$@"
read -ra targets <<<"${MZ_TARGETS:-all}"
step "Building mzCache ($preset)" cmake --build "$dir" -j "$MZ_JOBS" --target "${targets[@]}" -- -k 0
printf '%s\n' "$dir"
