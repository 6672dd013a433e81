"""mzCache in units of a real systemd, with cgroup v2 and PSI. Run as root in the virtual machine of scripts/check-vm.sh."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
import units                # finds the next two
import server as house
import talk

TEXT = "The lighthouse keeper wrote in his book that"       # short: an emulated processor is slow
OVER_MIB = 16           # beyond memory.high
try:
    PSI = bool(pathlib.Path("/proc/pressure/memory").read_text())
except OSError:
    PSI = False             # booted with psi=0


def in_group(group, *words):
    """The command that starts these words in a cgroup."""
    return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', *map(str, (group, *words))]


def figures(unit, file):
    return {key: int(n) for key, n in (line.split() for line in (unit.group / file).read_text().splitlines())}


@contextlib.contextmanager
def pressed(unit):
    """Somebody in the unit's cgroup takes more than what it may have without being slowed down; not much more, since whoever is in
    it then sleeps, up to two seconds for each allocation."""
    size = (units.HIGH_MIB + OVER_MIB << 20) - figures(unit, "memory.stat")["anon"]
    hog = subprocess.Popen(in_group(unit.group, sys.executable, house.ROOT / "scripts" / "hog.py"), stdin=subprocess.PIPE, text=True)
    try:
        print(f"take {size} {1 << 30}", file=hog.stdin, flush=True)
        yield
    finally:
        hog.kill()
        hog.wait()


def has_heard(unit, reporters):
    """Whether all of these sources have reported, and something was evicted."""
    try:
        return unit.status()["pressure"]["evictions"] and all(unit.sources()[each]["reports"] for each in reporters)
    except RuntimeError:        # it sleeps with all others of its cgroup, for longer than the command waits
        return False


def check_pressure(unit, reporters):
    """Under pressure all of these sources report, and the model is evicted; the answer is the same, from the conversation that was
    there."""
    warm = talk.warm_up(unit, TEXT)
    with pressed(unit):
        house.wait_for(lambda: has_heard(unit, reporters), house.READY_S, f"an eviction, and reports of {reporters}")
    print(figures(unit, "memory.events"), unit.mzcache("log").stdout, unit.status()["pressure"])
    talk.assert_same(talk.ask(unit, TEXT), warm)
    assert figures(unit, "memory.events")["oom_kill"] == 0


@pytest.mark.skipif(not PSI, reason="booted without PSI")
def test_the_unit_of_a_user():
    """MemoryPressureWatch=on of the packaged unit: systemd's file is watched, beside all else. A user has windows of two seconds."""
    with units.user_unit() as unit:
        live = unit.sources()
        assert live.keys() == {"systemd", "psi-cgroup", "cgroup-events", "psi-system", "cgroup-limit", "meminfo"}
        assert live["systemd"]["detail"].startswith(f"file {unit.group}"[:60])
        assert live["psi-cgroup"]["detail"] == live["psi-system"]["detail"] == "woken by 150 ms of stalls in 2 s"
        check_pressure(unit, ("systemd", "psi-cgroup", "cgroup-events"))


@pytest.mark.skipif(not PSI, reason="booted without PSI")
def test_without_the_protocol():
    with units.user_unit("MemoryPressureWatch=skip") as unit:
        assert unit.sources().keys() == {"psi-cgroup", "cgroup-events", "psi-system", "cgroup-limit", "meminfo"}
        check_pressure(unit, ("psi-cgroup", "psi-system", "cgroup-events"))


def test_switched_off():
    with units.user_unit("MemoryPressureWatch=off") as unit:
        assert unit.sources() == {}


@pytest.mark.skipif(not PSI, reason="booted without PSI")
def test_a_system_service():
    """With the packaged drop-in; root has windows of one second."""
    with units.system_unit() as unit:
        live = unit.sources()
        assert "systemd" in live
        assert live["psi-cgroup"]["detail"] == live["psi-system"]["detail"] == "woken by 70 ms of stalls in 1 s"
        check_pressure(unit, ("systemd", "psi-cgroup", "cgroup-events"))


@pytest.mark.skipif(PSI, reason="booted with PSI")
def test_without_psi():
    """What polls and counts is left, and does."""
    with units.user_unit() as unit:
        assert unit.sources().keys() == {"cgroup-events", "cgroup-limit", "meminfo"}
        check_pressure(unit, ("cgroup-events",))


def test_doctor():
    done = subprocess.run(["mzcache", "doctor", "--json", "llama-server"], text=True, capture_output=True)
    found = {finding["what"]: finding for finding in map(json.loads, done.stdout.splitlines())}
    print(done.stdout)
    assert done.returncode == 0
    assert found["pressure"]["grade"] == ("good" if PSI else "note")
    assert found["program"]["grade"] == "good" and "MZ0" in found["program"]["found"]


def test_the_unit_is_accepted():
    """Without a complaint: this systemd knows all of it."""
    done = subprocess.run(["systemd-analyze", "--user", "verify", "/usr/lib/systemd/user/mzcache-llama@.service"], text=True,
                          capture_output=True, env=dict(os.environ, XDG_RUNTIME_DIR=units.RUNTIME))
    assert done.returncode == 0 and "mzcache" not in done.stderr, done.stderr


def test_the_real_machine():
    """The unit test that skips what a machine has not, in the group below which all others are."""
    done = subprocess.run(in_group("/sys/fs/cgroup", "/test/unit/test_pressure_real"), text=True, capture_output=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert ("SKIPPED" in done.stdout) == (not PSI)
