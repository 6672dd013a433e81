# Shared by the scripts of this folder: sourced, never run. Needs bash.
# Everything that is built or fetched outside the tree lies under $MZ_CACHE.

set -euo pipefail

MZ_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MZ_CACHE=${MZ_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mzcache}
MZ_JOBS=${MZ_JOBS:-$(nproc)}

say()  { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die()  { warn "$*"; exit 1; }

# log_name TITLE -> a file name made of the title
log_name() { tr -cs 'a-zA-Z0-9' '-' <<<"$1" | tr 'A-Z' 'a-z' | sed 's/^-*//;s/-*$//'; }

# step TITLE COMMAND...: runs the command with its output in a log, shows that it is
# alive every 30 seconds, and prints the last $step_tail (40) lines of the log when it fails.
step() {
    local title=$1 log pid rc=0 start=$SECONDS
    shift
    log=$MZ_CACHE/log/$(log_name "$title").log
    mkdir -p "${log%/*}"
    say "$title"
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM   # what runs in the background does not hear Ctrl-C
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        if (( (SECONDS - start) % 30 == 29 )); then
            printf '    %4d s  %.90s\n' $((SECONDS - start)) "$(tail -n 1 "$log" | tr -d '\r')" >&2
        fi
    done
    wait "$pid" || rc=$?
    trap - INT TERM
    if ((rc)); then
        tail -n "${step_tail:-40}" "$log" >&2
        warn "$title failed with $rc; the whole log is $log"
    fi
    return "$rc"
}

# fetch_pypi NAME VERSION SHA256 FILE [PIP OPTION...]: the file's path under the cache.
# The file is checked against the hash even when it is there already.
fetch_pypi() {
    local name=$1 version=$2 sha=$3 file=$4 dir=$MZ_CACHE/download
    shift 4
    mkdir -p "$dir"
    if ! sha256sum --status -c <<<"$sha  $dir/$file" 2>/dev/null; then
        rm -f "$dir/$file"
        python3 -m pip --disable-pip-version-check --quiet download --no-deps --dest "$dir" \
            "$@" "$name==$version" >&2 || die "cannot download $name $version from the Python package index"
        sha256sum --status -c <<<"$sha  $dir/$file" ||
            die "$file of $name $version is not the file that this version was tested with (SHA-256 differs)"
    fi
    printf '%s\n' "$dir/$file"
}

# cpu_key: eight letters that differ between processors whose builds must not be mixed.
cpu_key() {
    { uname -m; grep -m1 -E '^(flags|Features)' /proc/cpuinfo | tr ' ' '\n' |
        grep -E '^(avx|amx|fma|f16c|bmi|sse|asimd|sve|i8mm|bf16|fphp)' | sort -u; } | sha256sum | cut -c1-8
}

# What the other scripts find where: the virtual environment's interpreter and the models.
MZ_PYTHON=$MZ_CACHE/venv/bin/python
MZ_MODELS=$MZ_CACHE/models
