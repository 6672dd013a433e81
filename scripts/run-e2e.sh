#!/usr/bin/env bash
# Runs the end-to-end tests with the plugin of $MZ_BUILD and writes JUnit XML.
#
#   scripts/run-e2e.sh MARKS CACHE RESULTS.xml [again]      again: only what failed
. "$(dirname "$0")/lib.sh"

options=()
if [[ ${4:-} == again ]]; then
    options=(--last-failed --last-failed-no-failures none)
fi
cd "$MZ_ROOT"
exec "$MZ_PYTHON" -m pytest -v -ra --tb=short -m "$1" -o cache_dir="$2" --junitxml "$3" "${options[@]}" tests/e2e
