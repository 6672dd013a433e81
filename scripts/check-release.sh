#!/usr/bin/env bash
# Makes a release, installs its Debian package in a bare Debian of this machine's version in which nothing else was ever installed,
# and uses it there (tests/release/inside.sh). Needs root.
#
# The bare system lies in a folder of its own under the cache, made anew from an archive each time. It is entered in namespaces of
# its own: what is mounted and started there is gone with them, before anything is deleted.
. "$(dirname "$0")/lib.sh"

((EUID == 0)) || die "needs root, to install packages in a system of their own"
"$MZ_ROOT/scripts/bootstrap.sh" release smollm2

SUITE=$(. /etc/os-release && printf '%s\n' "$VERSION_CODENAME")
PACKAGES=(bash-completion curl libgomp1 libstdc++6 man-db systemd zsh)       # what the test and llama.cpp need there
llama=${MZ_LLAMA:-$("$MZ_ROOT/scripts/llama.sh")}
base=$MZ_CACHE/debian-$SUITE.tar.gz

work=$(mktemp -d "$MZ_CACHE/release.XXXXXX")
root=$work/root

# Refuses while anything is mounted or running below: then a namespace did not end.
clean_up() {
    if grep -F " $work/" /proc/self/mountinfo || find /proc/[0-9]* -maxdepth 1 -name root -lname "$work*" 2>/dev/null | grep .; then
        warn "$work is still in use and left there"
        return 1
    fi
    rm -r --one-file-system -- "${work:?}"
}
trap clean_up EXIT

# sources FORMAT -> this machine's package sources of Debian itself; see apt-get(8), indextargets
sources() {
    apt-get indextargets --format "$1" 'Created-By: Packages' 'Origin: Debian' "${@:2}" | sort -u
}

# inside COMMAND...: in the bare system, as the only processes that it can see
inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child --propagation private -- bash -ec '
        mount -t proc proc "$0/proc"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts"
        exec chroot "$0" /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb \
            DEBIAN_FRONTEND=noninteractive "$@"' "$root" "$@"
}

make_base() {
    local mirror
    mirror=$(sources '$(REPO_URI)' "Codename: $SUITE" | head -n 1)
    mkdir -p "$root"
    debootstrap --variant=minbase "$SUITE" "$root" "${mirror:-http://deb.debian.org/debian}"
    sources 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' >"$root/etc/apt/sources.list"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    inside apt-get update
    inside apt-get install -y --no-install-recommends "${PACKAGES[@]}"
    inside apt-get clean
    tar -C "$root" -czf "$base.part" . && mv "$base.part" "$base"
}

unpack_base() {
    mkdir -p "$root"
    tar -C "$root" -xzf "$base"
}

# llama.cpp as if it had been installed by hand, and what the test reads.
copy_in() {
    cp -P "$llama"/bin/*.so* "$root/usr/local/lib/"
    cp "$llama/bin/llama-server" "$root/usr/local/bin/"
    inside ldconfig
    mkdir "$root/test"
    cp "$work/out"/*.deb "$MZ_MODELS/smollm2-135m.gguf" "$MZ_ROOT/tests/release/inside.sh" "$MZ_ROOT/tests/cli/complete.zsh" \
        "$root/test/"
}

"$MZ_ROOT/scripts/release.sh" "$work/out"
if [[ -e $base ]]; then
    step "Unpacking a bare Debian" unpack_base
else
    step "Making a bare Debian (once)" make_base
fi
step "Putting llama.cpp and the package into it" copy_in
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
step "Installing and using the package there" inside bash /test/inside.sh "$port"
