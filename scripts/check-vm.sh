#!/usr/bin/env bash
# Boots a small virtual machine and runs tests/vm in it: what needs systemd as the first process, cgroup v2, and a kernel with PSI. In
# it are the Debian package of mzCache (of build/release, or MZ_BUILD), llama.cpp, and a tiny model. The system is made anew from an
# archive each time, and gone afterwards. Needs root.
#
#   scripts/check-vm.sh RESULTS.xml
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/debian.sh"

VM_SUITE=trixie     # the first whose systemd has the memory pressure protocol (254)
PACKAGES=(linux-image-cloud-amd64 systemd-sysv systemd-oomd libpam-systemd dbus python3-pytest procps kmod
          libgomp1 libstdc++6 libcmocka0)
MEMORY=2G
results=$1
llama=${MZ_LLAMA:-$("$MZ_ROOT/scripts/llama.sh")}
build=${MZ_BUILD:-$MZ_ROOT/build/release}

# /dev/kvm alone says little: without vmx or svm it runs only kernels that were made for it (PVM).
if grep -qwE 'vmx|svm' /proc/cpuinfo && { : <>/dev/kvm; } 2>/dev/null; then
    machine=(-accel kvm -cpu host)
else
    say "No virtualisation by hardware here: the machine is emulated, about 20 times slower"
    machine=(-accel "tcg,thread=multi" -cpu max)
fi

# What an emulated processor can is AVX2 at most. Of llama.cpp only ggml-cpu is built for one processor.
ggml_cpu() {
    cmake -G Ninja -S "$llama/src" -B "$llama/avx2" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF \
        -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF
    cmake --build "$llama/avx2" -j "$MZ_JOBS" --target ggml-cpu
}

# What the tests read, where tests/vm/run.sh says that it is, and the unit that runs them.
copy_in() {
    debian_llama "$llama"
    cp -P "$llama"/avx2/bin/libggml-cpu.so* "$root/usr/local/lib/"
    mkdir -p "$root/test/models" "$root/test/unit" "$root/out"
    cp -r "$MZ_ROOT/scripts" "$MZ_ROOT/tests" "$root/test/"
    cp "$MZ_MODELS/tiny-moe-q4_0.gguf" "$root/test/models/"
    cp "$build/tests/test_pressure_real" "$root/test/unit/"
    cpack --config "$build/CPackConfig.cmake" -B "$work/package"
    cp "$work"/package/*.deb "$root/test/mzcache.deb"
    inside apt-get install -y --no-install-recommends /test/mzcache.deb
    inside useradd --create-home --shell /bin/bash tester
    install -D /dev/null "$root/var/lib/systemd/linger/tester"       # its manager starts with the machine
    install -m 0644 "$MZ_ROOT/tests/vm/mzcache-test.service" "$root/etc/systemd/system/"
    inside systemctl enable mzcache-test.service
}

# The machine ends itself when its tests are done; their results are then read from its disk.
boot() {
    mke2fs -q -t ext4 -d "$root" "$work/disk" 4G
    qemu-system-x86_64 "${machine[@]}" -smp 2 -m "$MEMORY" -nodefaults -no-user-config -display none -serial stdio -no-reboot \
        -kernel "$root/vmlinuz" -initrd "$root/initrd.img" -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
        -append "console=ttyS0 root=/dev/vda rw quiet panic=-1 systemd.getty_auto=no psi=1"
    debugfs -R "dump /out/results.xml $results" "$work/disk"
    [[ -s $results ]] && ! grep -E '<(failure|error)' "$results"
}

"$MZ_ROOT/scripts/bootstrap.sh" vm venv
debian_begin vm
step "Making the model" "$MZ_PYTHON" "$MZ_ROOT/scripts/models.py" "$MZ_MODELS" tiny-moe-q4_0
step "Building ggml-cpu for AVX2" ggml_cpu
debian_unpack "$VM_SUITE" "${PACKAGES[@]}"
step "Putting llama.cpp, the package and the tests into it" copy_in
step "Running tests/vm in a virtual machine" boot
