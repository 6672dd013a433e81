#!/usr/bin/env bash
# Run once by systemd in the virtual machine of scripts/check-vm.sh, which has put there what is named here.
export HOME=/root OMP_WAIT_POLICY=passive MZ_CACHE=/test/cache MZ_BUILD=/usr MZ_LLAMA=/usr/local MZ_MODELS=/test/models
mkdir -p "$MZ_CACHE"
cd /test || exit
exec python3 -m pytest -v -ra --tb=short -p no:cacheprovider -c tests/e2e/pytest.ini --junitxml /out/results.xml tests/vm
