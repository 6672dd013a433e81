#!/usr/bin/env bash
# Run by scripts/check-release.sh as root of a bare Debian: installs the package, uses it with a llama-server, removes it. Ends
# with the first thing that is not as it should be.
#
#   inside.sh PORT      a free one
set -euo pipefail
port=$1
cd /test

export XDG_RUNTIME_DIR=/test/runtime XDG_CACHE_HOME=/test/cache OMP_WAIT_POLICY=passive     # who spins gets nowhere on a busy machine
mkdir -m 0700 "$XDG_RUNTIME_DIR"

say() { printf '==> %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

# All files but those that change by themselves or belong to the test.
files() {
    find / -xdev \( -path /proc -o -path /test -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache \
        -o -path /var/log -o -path /run \) -prune -o -print | sort
}

# --- install ---

say "install"
depends=$(dpkg-deb -f ./*.deb Depends)
apt-get update
apt-get satisfy -y --no-install-recommends "$depends"
files >before
dpkg -i ./*.deb
dpkg --audit
[[ $(dpkg-query -W -f '${db:Status-Status}' mzcache) == installed ]] || fail "the package is not installed"

say "what came with it"
[[ $(mzcache --version) == "mzcache $(dpkg-query -W -f '${Version}' mzcache)" ]] || fail "mzcache has another version than the package"
for page in 1:mzcache 3:mzcache.h 7:mzcache-control 7:libggml-mz; do
    man "${page%:*}" "${page#*:}" >page
    grep -q '^NAME' page || fail "no man page ${page#*:}"
done
for shell in bash zsh; do
    line=$(zsh complete.zsh $shell '' 'mzcache st')
    [[ $line == "mzcache status " ]] || fail "$shell does not complete: $line"
done
for file in guide.md CHANGELOG.md changelog.gz copyright examples/mzcache.conf; do
    [[ -s /usr/share/doc/mzcache/$file ]] || fail "no $file"
done
grep -q '^Environment=GGML_BACKEND_PATH=/usr/lib/libggml-mz.so$' /usr/share/doc/mzcache/examples/mzcache.conf ||
    fail "the drop-in names another plugin than the installed one"

say "the units"
systemd-analyze --user verify /usr/lib/systemd/user/mzcache-llama@.service 2>complaints || { cat complaints; fail "the unit is not accepted"; }
# Systemd 252 does not know what came with 254; the unit says so.
if grep -v MemoryPressure complaints | grep mzcache; then fail "the unit is accepted with complaints"; fi

# --- use ---

say "doctor"
mzcache doctor llama-server || fail "something is bad here"

ask() {
    curl -sS --max-time 600 "http://127.0.0.1:$port/completion" -H 'Content-Type: application/json' -d '{
        "prompt": "The lighthouse keeper wrote in his book that", "n_predict": 16, "temperature": 0, "return_tokens": true}' |
        grep -o '"tokens":\[[0-9,]*\]'
}

say "llama-server"
mzcache run -- llama-server -m smollm2-135m.gguf --port $port -c 2048 -t 2 --no-webui >server.log 2>&1 &
server=$!
for _ in {1..300}; do
    kill -0 $server 2>/dev/null || { cat server.log; fail "llama-server ended"; }
    ! curl -sf "http://127.0.0.1:$port/health" >/dev/null || break
    sleep 1
done
ask || { cat server.log; fail "no answer"; }
warm=$(ask)     # with its prompt in the cache, as all that follow: a prompt that is computed at once is rounded differently
mzcache ps | grep "^ *$server " || fail "mzcache ps does not list the server"

say "evict, restore"
memory() { awk '/^RssAnon:/ { print $2 }' /proc/$server/status; }
before=$(memory)
mzcache evict 100%
evicted=$(memory)
((before - evicted > 50000)) || fail "evicting everything freed $before - $evicted KiB"
mzcache status
mzcache restore --wait
(($(memory) - evicted > 50000)) || fail "restoring brought nothing back"
[[ $(ask) == "$warm" ]] || fail "another answer after restoring"
mzcache evict 100%
[[ $(ask) == "$warm" ]] || fail "another answer after evicting"
kill $server
wait $server || true
[[ -z $(ls -A "$XDG_RUNTIME_DIR/mzcache") ]] || fail "a control socket was left"

# --- remove ---

say "remove"
dpkg -r mzcache
[[ ! -e /usr/bin/mzcache ]] || fail "the command is still there"
files >after
diff before after || fail "removing the package left something"
say "everything is as it should be"
