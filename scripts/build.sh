#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json and prints its folder.
#
#   scripts/build.sh PRESET [CMAKE OPTION...]      MZ_LLAMA: a llama.cpp build; scripts/llama.sh's without it
. "$(dirname "$0")/lib.sh"

preset=${1:-release}
shift || true
llama=${MZ_LLAMA:-$("$MZ_ROOT/scripts/llama.sh")}
dir=$MZ_ROOT/build/$preset

step "Configuring mzCache ($preset)" cmake -S "$MZ_ROOT" --preset "$preset" "-DMZ_LLAMA_DIR=$llama" "$@"
step "Building mzCache ($preset)" cmake --build "$dir" -j "$MZ_JOBS"
printf '%s\n' "$dir"
