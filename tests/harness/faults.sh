#!/usr/bin/env bash
# A model under eviction while one system call after another fails: a decode may fail, what it computed before may not
# be wrong, and nothing may crash.
#
#   faults.sh HARNESS PLUGIN MODEL N...      the N-th call of each kind; "N+": all from the N-th on
set -u
harness=$1 plugin=$2 model=$3
shift 3
if [[ ! -r $model ]]; then
    echo "skip: there is no $model"
    exit 77
fi
bad=0
for kind in mmap madvise populate read write open alloc uring; do
    for n in "$@"; do
        sticky=; [[ $n == *+ ]] && sticky=:sticky
        out=$(MZ_FAULT=$kind:${n%+}:5$sticky MZ_LOG=error timeout 300 "$harness" "$plugin" "$model" --brief --may-fail chat 2>&1)
        rc=$?
        if ((rc == 0)); then
            echo "ok $kind $n"
        else
            printf 'not ok: %s %s, exit %d\n%s\n' "$kind" "$n" "$rc" "$(tail -n 20 <<<"$out")"
            bad=1
        fi
    done
done
exit $bad
