#!/usr/bin/env bash
# Runs the test programs of a build folder and writes JUnit XML.
#
#   scripts/run-unit.sh FOLDER [CTEST OPTION...] RESULTS.xml [again]      again: only what failed, one at a time
. "$(dirname "$0")/lib.sh"

words=("$@")
folder=$1
if [[ ${words[-1]} == again ]]; then
    results=${words[-2]}
    options=(-j 1 --rerun-failed)
else
    results=${words[-1]}
    options=(-j "$MZ_JOBS" --no-tests=error "${words[@]:1:$#-2}")
fi

# The sanitizers of gcc 12 cannot place their shadow memory where the kernel's randomisation of addresses uses all bits.
still=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
    still=(setarch "$(uname -m)" -R)
fi
exec "${still[@]}" ctest --test-dir "$folder" --output-on-failure --test-output-size-failed 60000 --output-junit "$results" \
    "${options[@]}"
