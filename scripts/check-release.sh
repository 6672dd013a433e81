#!/usr/bin/env bash
# Makes a release, installs its Debian package in a bare Debian of this machine's version in which nothing else was ever installed,
# and uses it there (tests/release/inside.sh). Needs root.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/debian.sh"

PACKAGES=(bash-completion curl libgomp1 libstdc++6 man-db systemd zsh)       # what the test and llama.cpp need there
llama=${MZ_LLAMA:-$("$MZ_ROOT/scripts/llama.sh")}

# llama.cpp, the package, and what the test reads.
copy_in() {
    debian_llama "$llama"
    mkdir "$root/test"
    cp "$work/out"/*.deb "$MZ_MODELS/smollm2-135m.gguf" "$MZ_ROOT/tests/release/inside.sh" "$MZ_ROOT/tests/cli/complete.zsh" \
        "$root/test/"
}

"$MZ_ROOT/scripts/bootstrap.sh" release smollm2
debian_begin release
"$MZ_ROOT/scripts/release.sh" "$work/out"
debian_unpack "$SUITE" "${PACKAGES[@]}"
step "Putting llama.cpp and the package into it" copy_in
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
step "Installing and using the package there" inside bash /test/inside.sh "$port"
