"""Survival beside the real earlyoom with the memory controller of cgroup v2: in a small machine inside the virtual one, and in the
virtual one as a whole. Run as root in the virtual machine of scripts/check-vm.sh."""

import pytest
import units                # finds the rest
import small_machine
from test_pressure import assert_survived, survive

PLAY = dict(model="sparse-q4_0", tokens=48)       # little to compute: the processor may be an emulated one
SERVER_MIB = 190


def test_hog_and_server_survive(tmp_path):
    assert_survived(survive("own", tmp_path, **PLAY))


@pytest.mark.parametrize("config", ["mmap", "mmap+zram"])
def test_the_stock_server(tmp_path, config):
    """The control: without mzCache the server is killed; with swap in zram, it may live."""
    outcome = survive(config, tmp_path, rounds=1, **PLAY)
    print(outcome)
    if config == "mmap":
        assert outcome["survived"] == 0 and outcome["server_killed"] == 1 and outcome["hog_killed"] == 0, outcome


def test_the_whole_machine(tmp_path):
    """Nothing is made up: what the hog leaves beside all that the server holds is 8 % of the machine; earlyoom acts at 10."""
    memory = small_machine.meminfo()
    hog = (memory["MemAvailable"] - memory["MemTotal"] * 8 // 100 >> 20) - SERVER_MIB
    assert_survived(survive("own", tmp_path, **PLAY, machine=("--hog-mib", hog)))
