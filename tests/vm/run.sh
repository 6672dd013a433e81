#!/usr/bin/env bash
# Run once by systemd in the virtual machine of scripts/check-vm.sh, which has put there what is named here. Without PSI, it is only
# about what is watched then.
export HOME=/root OMP_WAIT_POLICY=passive MZ_CACHE=/test/cache MZ_BUILD=/usr MZ_LLAMA=/usr/local MZ_MODELS=/test/models
mkdir -p "$MZ_CACHE"
modprobe zram num_devices=0
cd /test || exit
what=tests/vm
cat /proc/pressure/memory || what=tests/vm/test_systemd.py
exec python3 -m pytest -v -ra --tb=short -p no:cacheprovider -c tests/e2e/pytest.ini --junitxml /out/results.xml "$what"
