#!/usr/bin/env bash
# Makes a release: the source archive of this tree, and the Debian package, which is built from what the archive
# contains and nothing else. A few unit tests run on the way.
#
#   scripts/release.sh FOLDER      FOLDER gets mzcache-VERSION.tar.gz and mzcache_VERSION_ARCHITECTURE.deb
#     MZ_LLAMA                     the llama.cpp build that the plugin is for; without it scripts/llama.sh's
#     DEBFULLNAME, DEBEMAIL        who makes the package, as for Debian's own tools; without them it is one for this machine
. "$(dirname "$0")/lib.sh"

mkdir -p "${1:?needs a folder}"
out=$(cd "$1" && pwd)
llama=${MZ_LLAMA:-$("$MZ_ROOT/scripts/llama.sh")}
work=$(mktemp -d "${TMPDIR:-/tmp}/mzcache-release.XXXXXX")
trap 'rm -r --one-file-system -- "${work:?}"' EXIT

maintainer=()
if [[ -n ${DEBFULLNAME:-} && -n ${DEBEMAIL:-} ]]; then
    maintainer=("-DCPACK_PACKAGE_CONTACT=$DEBFULLNAME <$DEBEMAIL>")
fi

source_archive() {
    cmake -S "$MZ_ROOT" --preset release -B "$work/archive" -DMZ_TESTS=OFF
    cpack --config "$work/archive/CPackSourceConfig.cmake" -B "$work/packages"
}

unpack() {
    mkdir "$work/source"
    tar -xzf "$work"/packages/*.tar.gz -C "$work/source" --strip-components=1
}

debian_package() {
    cmake -S "$work/source" --preset release -B "$work/build" "-DMZ_LLAMA_DIR=$llama" "${maintainer[@]}"
    cmake --build "$work/build" -j "$MZ_JOBS"
    ctest --test-dir "$work/build" --output-on-failure --no-tests=error -R '^test_(core_plan|cli_packaging|cli_completion)$'
    cpack --config "$work/build/CPackConfig.cmake" -B "$work/packages"
}

# A package for this machine has no maintainer whom mail would reach.
complaints() {
    lintian --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$work"/packages/*.deb
}

step "Making the source archive" source_archive
step "Unpacking it" unpack
step "Building, testing and packaging what it contains" debian_package
if command -v lintian >/dev/null; then
    step "Checking the package by Debian's rules" complaints
fi
cp "$work"/packages/*.tar.gz "$work"/packages/*.deb "$out"
