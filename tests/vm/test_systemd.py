"""mzCache in units of a real systemd, with cgroup v2 and PSI. Run as root in the virtual machine of scripts/check-vm.sh."""

import json
import subprocess

import units                # finds the next two
import server as house
import talk

TEXT = "The lighthouse keeper wrote in his book that"       # short: an emulated processor is slow
ROOM_MIB = 8        # less than what mzCache leaves free


def check_limit(unit):
    """When the manager lowers memory.high to what the unit holds and little more, the model is evicted; when there is room again, the
    answer is the same, from the conversation that was there."""
    warm = talk.warm_up(unit, TEXT)
    before = unit.show("MemoryHigh")
    held = dict(line.split() for line in (unit.group / "memory.stat").read_text().splitlines())["anon"]
    unit.set_property(f"MemoryHigh={int(held) + (ROOM_MIB << 20)}")
    try:
        house.wait_for(lambda: unit.status()["pressure"]["evictions"] > 0, house.READY_S, "an eviction")
    finally:
        unit.set_property(f"MemoryHigh={before}")
    talk.assert_same(talk.ask(unit, TEXT), warm)


def test_the_unit_of_a_user():
    """MemoryPressureWatch=on of the packaged unit: systemd's file is watched, beside all else. A user has windows of two seconds."""
    with units.user_unit() as unit:
        live = unit.sources()
        assert live.keys() == {"systemd", "psi-cgroup", "cgroup-events", "psi-system", "cgroup-limit", "meminfo"}
        assert live["systemd"]["detail"].startswith(f"file {unit.group}"[:60])
        assert live["psi-cgroup"]["detail"] == live["psi-system"]["detail"] == "woken by 150 ms of stalls in 2 s"
        check_limit(unit)


def test_without_the_protocol():
    with units.user_unit("MemoryPressureWatch=skip") as unit:
        assert unit.sources().keys() == {"psi-cgroup", "cgroup-events", "psi-system", "cgroup-limit", "meminfo"}
        check_limit(unit)


def test_switched_off():
    with units.user_unit("MemoryPressureWatch=off") as unit:
        assert unit.sources() == {}


def test_a_system_service():
    """With the packaged drop-in; root has windows of one second."""
    with units.system_unit() as unit:
        live = unit.sources()
        assert "systemd" in live
        assert live["psi-cgroup"]["detail"] == live["psi-system"]["detail"] == "woken by 70 ms of stalls in 1 s"
        check_limit(unit)


def test_doctor():
    done = subprocess.run(["mzcache", "doctor", "--json", "llama-server"], text=True, capture_output=True)
    found = {finding["what"]: finding for finding in map(json.loads, done.stdout.splitlines())}
    print(done.stdout)
    assert done.returncode == 0
    assert found["pressure"]["grade"] == "good"
    assert found["program"]["grade"] == "good" and "MZ0" in found["program"]["found"]


def test_the_real_machine():
    """The unit test that skips what a machine has not."""
    done = subprocess.run(["/test/unit/test_pressure_real"], text=True, capture_output=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
