#!/usr/bin/env bash
# Builds the pinned llama.cpp once, as shared libraries with dynamic CPU code chosen for this
# machine, and prints the folder: include/ bin/ (programs and libraries) src/ (its source).
# The folder is keyed by version, flags and CPU features, so a changed machine builds anew.
#
#   MZ_LLAMA_DL=1   the other build: backends as loadable modules, as the official binaries have them. Its one CPU module
#                   is for AVX2: llama.cpp does not let modules be built for the very machine
. "$(dirname "$0")/lib.sh"

VERSION=0.3.36
SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
SDIST=llama_cpp_python-$VERSION.tar.gz
PROGRAMS=(llama-server llama-cli llama-bench llama-completion llama-perplexity llama-imatrix test-backend-ops)

native=ON
modules=()
if [[ ${MZ_LLAMA_DL:-0} == 1 ]]; then
    native=OFF
    modules=(-DGGML_BACKEND_DL=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
fi
FLAGS=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON "-DGGML_NATIVE=$native" -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF
       -DLLAMA_BUILD_TESTS=ON -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON
       -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF "${modules[@]}")
# The AMX header of gcc 12 tells the compiler that loading a tile configuration reads 8 of its 64 bytes. The
# stores of the rest are then removed, and the first matrix product dies of an illegal instruction.
if cc -march=native -dM -E - </dev/null 2>/dev/null | grep __AMX_TILE__ >/dev/null; then
    FLAGS+=("-DCMAKE_PROJECT_ggml_INCLUDE=$MZ_ROOT/cmake/llama-no-amx.cmake")
fi
key=$(printf '%s\n' "$VERSION" "${FLAGS[@]##*/}" "$(cpu_key)" "$(cc -dumpfullversion)" | sha256sum | cut -c1-12)
dir=$MZ_CACHE/llama.cpp-$VERSION-$key
if ((${#modules[@]})); then
    FLAGS+=("-DGGML_BACKEND_DIR=$dir/build/bin")    # there every program finds them, not only those that lie beside them
fi

if [[ -e $dir/complete ]]; then
    printf '%s\n' "$dir"
    exit 0
fi

unpack() {
    local sdist
    sdist=$(fetch_pypi llama-cpp-python "$VERSION" "$SHA256" "$SDIST" --no-binary llama-cpp-python)
    mkdir -p "$dir/src"
    tar -xzf "$sdist" -C "$dir/src" --strip-components=3 "${SDIST%.tar.gz}/vendor/llama.cpp"
}

configure() {
    local launcher=()
    if command -v ccache >/dev/null; then
        launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    fi
    cmake -G Ninja -S "$dir/src" -B "$dir/build" "${launcher[@]}" "${FLAGS[@]}"
}

# What mzCache is built against: the headers of the public interface and the two private
# ones that every backend needs, together in one folder.
headers() {
    mkdir -p "$dir/include"
    cp "$dir"/src/ggml/include/*.h "$dir"/src/include/*.h "$dir/include/"
    cp "$dir"/src/ggml/src/ggml-impl.h "$dir"/src/ggml/src/ggml-backend-impl.h "$dir/include/"
}

step "Getting the source of llama.cpp ($VERSION)" unpack
step "Configuring llama.cpp" configure
step "Building llama.cpp (5 to 15 minutes, once)" cmake --build "$dir/build" -j "$MZ_JOBS" --target "${PROGRAMS[@]}"
headers
ln -sfn build/bin "$dir/bin"
touch "$dir/complete"
printf '%s\n' "$dir"
