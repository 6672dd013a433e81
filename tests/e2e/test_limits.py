"""Limits hold at every moment, and what status says is what the kernel counts."""

import os
import pathlib
import shutil
import threading

import pytest
import server as house
import talk
from conftest import model_path
from groups import Hog, start_in

MODEL = "smollm2-135m"
HEAP = 6 * house.MIB      # the program's own heap moves by that much while it answers


class Peak:
    """with Peak(server) as peak: samples what the process holds beside its heap, as often as possible."""

    def __init__(self, server):
        self.server, self.bytes, self.samples = server, 0, 0
        self.heap = server.anonymous() - talk.held(server.pid)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self.done.wait(0.005):
            self.bytes = max(self.bytes, self.server.anonymous() - self.heap)
            self.samples += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


# --- limits ---

@pytest.mark.trap
def test_a_limit_holds_while_generating(start, document):
    """A model larger than its limit goes on, layer by layer, with the same answer."""
    server = start(MODEL)
    calm = talk.see(server, document[:800], cache_prompt=False)
    limit = server.mzcache("limit", "60%", "--json")["limit_bytes"]
    assert limit < 0.61 * server.status()["total_bytes"]
    assert talk.held(server.pid) <= limit
    with Peak(server) as peak:
        talk.ask(server, document[:800], 4)
        answer = talk.see(server, document[:800], cache_prompt=False)
    assert peak.samples > 20
    assert peak.bytes <= limit + HEAP
    assert answer == calm
    status = server.status()
    assert status["ledger_bytes"] <= limit and status["limit_bytes"] == limit
    server.mzcache("limit", "off")
    server.mzcache("restore", "--wait")
    assert server.status()["remaining_percent"] > 99


def test_a_limit_below_the_floor_is_refused(start, document):
    """The answer names the floor; a limit just above it works."""
    server = start(MODEL)
    calm = talk.warm_up(server, document[:400], 4)
    refused = server.mzcache("limit", "1MiB", check=False)
    assert refused.returncode == 4
    assert "computing needs at least" in refused.stderr and "MiB" in refused.stderr, refused.stderr
    assert server.status()["limit_bytes"] == 0
    floor = float(refused.stderr.split(":")[-1].split()[0])
    server.mzcache("limit", f"{int(floor) + 4}MiB")
    talk.assert_same(talk.ask(server, document[:400], 4), calm)
    assert server.status()["ledger_bytes"] <= (int(floor) + 4) * house.MIB
    server.mzcache("limit", "off")


def test_a_limit_set_at_the_start(document):
    """Loading keeps to it as well: the process never holds more."""
    with house.Server(model_path(MODEL), run_options=("--limit", "60MiB"), context=1024) as server:
        status = server.status()
        assert status["ledger_peak_bytes"] <= 60 * house.MIB, status
        talk.ask(server, document[:200], 4)
        assert server.status()["ledger_peak_bytes"] <= 60 * house.MIB


# --- accounting ---

def check_sums(server):
    status = server.status()
    kinds = status["kinds"]
    for name in ("weights", "kv", "other"):
        kind = kinds[name]
        assert kind["total_bytes"] == sum(kind[f"{where}_bytes"] for where in ("resident", "stack", "store", "dropped", "lost")), name
    ours = sum(kind["counted_bytes"] + kind["swapped_bytes"] for kind in kinds.values())
    ours += status["stack_used_bytes"] + status["stack_reserve_bytes"] + status["bounce_bytes"]
    # The stack and the buffers are counted as they are mapped, the regions as they are paged in.
    assert abs(ours - talk.held(server.pid)) <= 2 * house.MIB, (ours, talk.held(server.pid), status)
    assert status["total_bytes"] == sum(kinds[kind]["total_bytes"] for kind in ("weights", "kv", "other"))
    process = status["process"]
    assert abs(process["rss_anon_bytes"] + process["swap_bytes"] - server.anonymous()) <= 2 * house.MIB
    return status


@pytest.mark.trap
@pytest.mark.parametrize("kv", ["exact", "q8"])
def test_status_is_what_the_kernel_counts(document, kv):
    with house.Server(model_path(MODEL), run_options=("--kv", kv)) as server:
        talk.ask(server, document[:1500], 4)
        full = check_sums(server)
        assert full["remaining_bytes"] == full["total_bytes"]
        for percent in (85, 50, 0):
            report = server.mzcache("evict", "--to", f"{percent}%", "--json")
            status = check_sums(server)
            assert status["remaining_bytes"] <= report["total_bytes"] * percent / 100 + status["floor_bytes"]
            assert status["remaining_bytes"] == report["remaining_bytes"]
        server.mzcache("restore", "--wait")
        assert check_sums(server)["remaining_percent"] > 99


@pytest.mark.trap
def test_what_is_evicted_is_what_was_asked_for(start, document):
    """At least that much and less than 2 MiB more, in the page tables."""
    server = start(MODEL)
    talk.ask(server, document[:1000], 4)
    for mib in (1, 7, 30):
        server.mzcache("restore", "--wait")
        before = talk.held(server.pid)
        report = server.evict(f"{mib}MiB")
        fell = before - talk.held(server.pid)
        assert mib * house.MIB <= report["freed_bytes"] < (mib + 2) * house.MIB + report["asked_bytes"] % 4096 + 2 * house.MIB
        assert abs(fell - report["freed_bytes"]) <= house.MIB


def test_the_page_cache_of_loading_is_given_back(disk_path):
    """What was copied to the device stays in no page cache; only what the processor reads from the file itself does."""
    path = disk_path / "model.gguf"
    shutil.copy(model_path(MODEL), path)
    os.sync()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with house.Server(path) as server:
        status = server.status()
        assert status["model_cached_bytes"] < 0.5 * path.stat().st_size, status["model_cached_bytes"]
        assert status["process"]["rss_file_bytes"] < 0.5 * path.stat().st_size + 40 * house.MIB


# --- the machine ---

def test_freed_memory_leaves_the_cgroup(group, document):
    group.limit(1 << 30)
    server = house.Server(model_path(MODEL), context=2048)
    try:
        start_in(group, server)
        talk.ask(server, document[:800], 4)
        before = group.usage()
        freed = server.evict("100%")["freed_bytes"]
        house.wait_for(lambda: before - group.usage() >= 0.9 * freed, 60, "the group has the memory back")
    finally:
        server.stop()


def test_restoring_never_kills(group, document):
    """With less room in the group than the model needs, it computes in what there is, and nobody is killed."""
    limit = 700
    group.limit(limit << 20)
    server = house.Server(model_path(MODEL), context=2048)
    try:
        start_in(group, server)
        calm = talk.warm_up(server, document[:300], 4)
        server.evict("100%")
        with Hog(group) as hog:
            hog.hold(limit - (group.taken() >> 20) - 110)
            talk.assert_same(talk.ask(server, document[:300], 4), calm)
            assert group.kills() == 0 and server.process.poll() is None
        server.mzcache("restore", "--wait")
        talk.assert_same(talk.ask(server, document[:300], 4), calm)
        assert server.status()["remaining_percent"] > 99
        assert group.kills() == 0
    finally:
        server.stop()


@pytest.mark.parametrize("rounds", [3, pytest.param(10, marks=pytest.mark.long)])
def test_survival(group, document, rounds):
    """A hog takes what is free, and then what mzCache gives back: both live, and the conversation is still there."""
    limit = 700
    group.limit(limit << 20)
    server = house.Server(model_path(MODEL), "-c", "2048", run_options=("--hold", "0s"), env={"MZ_PRESSURE": "on"})
    try:
        start_in(group, server)
        calm = talk.warm_up(server, document[:800])
        with Hog(group) as hog:
            for _ in range(rounds):
                whole = server.status()["remaining_bytes"]
                fits = limit - (group.taken() >> 20)      # what is free while the model is in memory
                for more in range(fits - 120, fits - 20, 10):
                    hog.hold(more)
                    house.wait_for(lambda: limit - (group.taken() >> 20) > 30, 120, "mzCache gives way")
                assert server.status()["remaining_bytes"] < whole
                talk.assert_same(talk.ask(server, document[:800]), calm)
                hog.hold(0)
                talk.assert_same(talk.ask(server, document[:800]), calm)
                server.mzcache("restore", "--wait")
        assert group.kills() == 0
    finally:
        server.stop()


@pytest.mark.long
def test_given_back_memory_stays_away(document):
    """A minute later, with huge pages for all, nothing has grown back."""
    setting = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not os.access(setting, os.W_OK):
        pytest.skip("huge pages cannot be set here")
    before = setting.read_text().split("[")[1].split("]")[0]
    setting.write_text("always")
    try:
        with house.Server(model_path(MODEL)) as server:
            talk.ask(server, document[:800], 4)
            server.mzcache("evict", "--to", "35%")
            held = talk.held(server.pid)
            threading.Event().wait(65)
            assert talk.held(server.pid) <= held + house.MIB
    finally:
        setting.write_text(before)
