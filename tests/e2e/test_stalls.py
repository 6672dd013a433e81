"""What cgroups of version 2 report, when it really happens: stalls, and limits that are reached."""

import base64
import subprocess
import sys

import pytest
import server as house
import talk
from conftest import model_path
from groups import Hog, enter, start_in
from test_pressure import WATCHED, events

MODEL = "tiny-llama"
TRIGGER = b"some 200000 2000000\0"       # as systemd hands it on: 200 ms of stalls in 2 s


@pytest.fixture
def v2(group):
    if group.v1:
        pytest.skip("the memory controller is one of cgroups version 1 here")
    if not (group.folder / "memory.pressure").exists():
        pytest.skip("this kernel has no PSI, or it is off (psi=1)")
    return group


@pytest.fixture
def service(v2):
    """The group of a service with two groups in it: .server, and .neighbour, who is held back behind 32 MiB."""
    v2.server, v2.neighbour = v2.child("server"), v2.child("neighbour")
    (v2.neighbour.folder / "memory.high").write_text(str(32 << 20))
    v2.neighbour.never_swap()
    yield v2
    v2.neighbour.remove()
    v2.server.remove()


def source(server, name):
    return next(source for source in server.status()["pressure"]["sources"] if source["name"] == name)


def server_of(env):
    return house.Server(model_path(MODEL), run_options=("--hold", "0s"), env=WATCHED | env)


def test_stalls_that_the_systems_protocol_reports(service, document):
    """The file named by $MEMORY_PRESSURE_WATCH is the service's own. Nobody in the server's own group stalls, and the machine has
    memory: what evicts is that report, and what was evicted comes back."""
    server = server_of({"MEMORY_PRESSURE_WATCH": str(service.folder / "memory.pressure"),
                        "MEMORY_PRESSURE_WRITE": base64.b64encode(TRIGGER).decode()})
    try:
        start_in(service.server, server)
        warm = talk.warm_up(server, document[:300])
        assert source(server, "systemd")["detail"].startswith("file ")
        assert server.status()["pressure"]["evictions"] == 0
        with Hog(service.neighbour) as hog:
            hog.want(256)
            first = house.wait_for(lambda: events(server, "evict"), 120, "an eviction")[0]
        assert first["why"] == "reported to us" and first["bytes"] > 0
        assert source(server, "systemd")["reports"] > 0 == source(server, "psi-cgroup")["reports"]
        talk.assert_same(talk.ask(server, document[:300]), warm)
    finally:
        server.stop()


READER = """
import sys, time
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        time.sleep(0.005)                   # in a hurry, taking back what it read before would be a stall
"""


def test_files_that_fill_the_limit(v2, document, disk_path):
    """Page cache alone fills a group to its limit, and leaves when asked: that is no pressure."""
    v2.limit(512 << 20)
    file = disk_path / "read"
    with open(file, "wb") as hole:
        hole.truncate(1 << 30)
    server = server_of({})
    try:
        start_in(v2, server)
        talk.ask(server, document[:300])
        before = source(server, "cgroup-events")["reports"]
        subprocess.run(["/bin/sh", "-c", f'{enter(v2)} "$@"', "sh", sys.executable, "-c", READER, file], check=True)
        assert int(v2.figures("memory.events")["max"]) > 0
        house.wait_for(lambda: source(server, "cgroup-events")["reports"] > before, 120, "mzCache hears of it")
        looks = server.status()["pressure"]["wakeups"]
        house.wait_for(lambda: server.status()["pressure"]["wakeups"] > looks + 1, 120, "mzCache looks again")
        assert server.status()["pressure"]["evictions"] == 0, events(server, "evict")
    finally:
        server.stop()
