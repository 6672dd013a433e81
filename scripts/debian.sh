# Debian systems of their own, for what has to be tried in one. Sourced by scripts that run as root; needs lib.sh before it.
# A system is entered in namespaces of its own: what is mounted and started there is gone with them, before anything is deleted.
#
#   debian_begin NAME                 sets `work`, a folder in the cache that goes when the script ends, and `root` in it
#   debian_unpack SUITE PACKAGE...    puts a bare system with these packages into $root; made once, then from an archive
#   inside COMMAND...                 runs it there, as the only processes that it can see
#   debian_llama FOLDER               puts llama.cpp there, as if it had been installed by hand

SUITE=$(. /etc/os-release && printf '%s\n' "$VERSION_CODENAME")      # this machine's

debian_begin() {
    ((EUID == 0)) || die "needs root, to make a system of its own"
    work=$(mktemp -d "$MZ_CACHE/$1.XXXXXX")
    root=$work/root
    mkdir "$root"
    trap debian_end EXIT
}

# Refuses while anything is mounted or running below: then a namespace did not end.
debian_end() {
    if grep -F " $work/" /proc/self/mountinfo || find /proc/[0-9]* -maxdepth 1 -name root -lname "$work*" 2>/dev/null | grep .; then
        warn "$work is still in use and left there"
        return 1
    fi
    rm -r --one-file-system -- "${work:?}"
}

inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child --propagation private -- bash -ec '
        mount -t proc proc "$0/proc"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts"
        exec chroot "$0" /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb \
            DEBIAN_FRONTEND=noninteractive "$@"' "$root" "$@"
}

debian_unpack() {
    local suite=$1 key archive
    key=$(printf '%s\n' "$@" | sha256sum | cut -c1-8)
    archive=$MZ_CACHE/debian-$suite-$key.tar.gz
    if [[ -e $archive ]]; then
        step "Unpacking a bare Debian ($suite)" tar -C "$root" -xzf "$archive"
    else
        step "Making a bare Debian ($suite, once)" debian_make "$archive" "$@"
    fi
}

# debian_make ARCHIVE SUITE PACKAGE...
debian_make() {
    local archive=$1 suite=$2 mirror
    shift 2
    mirror=$(debian_sources '$(REPO_URI)' "Codename: $SUITE" | head -n 1)
    debootstrap --variant=minbase "$suite" "$root" "${mirror:-http://deb.debian.org/debian}"
    debian_sources 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' | sed "s/ $SUITE/ $suite/" >"$root/etc/apt/sources.list"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    inside apt-get update
    inside apt-get install -y --no-install-recommends "$@"
    inside apt-get clean
    tar -C "$root" -czf "$archive.part" . && mv "$archive.part" "$archive"
}

# debian_sources FORMAT [FILTER] -> this machine's package sources of Debian itself; see apt-get(8), indextargets
debian_sources() {
    apt-get indextargets --format "$1" 'Created-By: Packages' 'Origin: Debian' "${@:2}" | sort -u
}

debian_llama() {
    cp -P "$1"/bin/*.so* "$root/usr/local/lib/"
    cp "$1/bin/llama-server" "$root/usr/local/bin/"
    inside ldconfig
}
