"""llama-server, unmodified: evicting and restoring change nothing but memory and time."""

import threading

import pytest
import server as house
from talk import ask, assert_same, warm_up

MODELS = ["smollm2-135m", "gemma3-270m"]


@pytest.mark.quick
@pytest.mark.trap
@pytest.mark.parametrize("model", MODELS)
def test_everything_evicted(start, document, model):
    """The same answer, the whole prefix kept, and the memory really gone."""
    server = start(model)
    warm = warm_up(server, document)
    before = server.anonymous()
    report = server.evict("100%")
    fell = before - server.anonymous()
    assert report["freed_bytes"] > 60 * house.MIB
    assert fell >= 0.95 * report["freed_bytes"]
    assert server.status()["remaining_bytes"] == report["remaining_bytes"]
    assert_same(ask(server, document), warm)


@pytest.mark.trap
@pytest.mark.parametrize("model", MODELS)
def test_partly_evicted(start, document, model):
    """At every level, several rounds, also one after the other without restoring in between."""
    server = start(model)
    warm = warm_up(server, document)
    for percent in (75, 50, 25, 0, 60, 10):
        report = server.mzcache("evict", "--to", f"{percent}%", "--json")
        assert report["remaining_bytes"] <= report["total_bytes"] * percent / 100 + report["floor_bytes"]
        assert_same(ask(server, document), warm)
    for percent in (80, 40, 0):
        server.mzcache("evict", "--to", f"{percent}%")
    assert_same(ask(server, document), warm)


def test_memory_is_available_to_others(start, document):
    """The machine, not only the process, has the memory back."""
    server = start("gemma3-270m")
    warm_up(server, document)

    def available():
        for line in open("/proc/meminfo"):
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10

    before = available()
    freed = server.evict("100%")["freed_bytes"]
    house.wait_for(lambda: available() - before >= 0.7 * freed, 60, "MemAvailable rises by what was freed")


@pytest.mark.trap
def test_evicted_while_generating(start, document):
    """Evictions from outside, at any moment of a long answer, change no token."""
    server = start("smollm2-135m")
    prompt = document[:1500]
    warm_up(server, prompt)
    calm = ask(server, prompt, 120)
    answer = {}
    thread = threading.Thread(target=lambda: answer.update(ask(server, prompt, 120)))
    thread.start()
    evictions = 0
    while thread.is_alive() and evictions < 60:
        server.mzcache("evict", ("20%", "50%", "100%")[evictions % 3])
        evictions += 1
    thread.join()
    assert answer["tokens"] == calm["tokens"]
    assert evictions > 0


def test_evicted_while_reading_the_prompt(start, document):
    server = start("smollm2-135m")
    prompt = document[:2400]
    calm = ask(server, prompt, cache_prompt=False)
    answer = {}
    thread = threading.Thread(target=lambda: answer.update(ask(server, prompt, cache_prompt=False)))
    thread.start()
    evictions = 0
    while thread.is_alive() and evictions < 60:
        server.evict("100%")
        evictions += 1
    thread.join()
    assert answer["timings"]["cache_n"] == 0
    assert answer["tokens"] == calm["tokens"]


def test_two_conversations_do_not_mix(start, document):
    server = start("smollm2-135m", "-np", "2", "-kvu")
    prompts = [document[:1600], document[3000:4800]]

    def both():
        return [ask(server, prompt, id_slot=slot)["tokens"] for slot, prompt in enumerate(prompts)]

    both()
    calm = both()
    for _ in range(3):
        server.evict("100%")
        assert both() == calm
        server.mzcache("evict", "--to", "40%")
        assert both() == calm


def test_asking_for_more_than_there_is(start, document):
    """That is no error: what can be freed is, and the report names the floor."""
    server = start("smollm2-135m")
    warm = warm_up(server, document)
    before = server.anonymous()
    report = server.evict("100GiB")
    assert 0 < report["freed_bytes"] <= before
    assert report["floor_bytes"] >= report["remaining_bytes"] * 0.9
    assert server.evict("100%")["freed_bytes"] <= house.MIB
    assert_same(ask(server, document), warm)


@pytest.mark.quick
def test_restore_ahead_of_a_request(start, document):
    server = start("smollm2-135m")
    warm = warm_up(server, document)
    full = server.anonymous()
    freed = server.evict("100%")["freed_bytes"]
    server.mzcache("restore", "--wait")
    assert server.anonymous() >= full - 0.05 * freed
    assert_same(ask(server, document), warm)


@pytest.mark.quick
def test_processes_and_status(start, document):
    server = start("smollm2-135m")
    warm_up(server, document)
    assert str(server.pid) in server.mzcache("ps").stdout
    status = server.status()
    kinds = status["kinds"]
    assert kinds["weights"]["total_bytes"] > 80 * house.MIB
    assert 0 < kinds["kv"]["resident_bytes"] <= kinds["kv"]["total_bytes"]
    assert status["total_bytes"] == sum(kinds[kind]["total_bytes"] for kind in ("weights", "kv", "other"))


def test_many_cycles_leak_nothing(start, document):
    """Memory, descriptors, threads and mappings are after 30 cycles what they were after 5."""
    import os
    server = start("smollm2-135m")
    prompt = document[:1200]
    warm = warm_up(server, prompt)

    def cycle():
        server.evict("100%")
        assert_same(ask(server, prompt), warm)

    def sizes():
        proc = f"/proc/{server.pid}"
        return dict(fds=len(os.listdir(f"{proc}/fd")), threads=len(os.listdir(f"{proc}/task")),
                    maps=sum(1 for _ in open(f"{proc}/maps")))

    for _ in range(5):
        cycle()
    early, memory = sizes(), server.anonymous()
    for _ in range(25):
        cycle()
    late = sizes()
    assert late["fds"] <= early["fds"] + 2 and late["threads"] <= early["threads"]
    assert late["maps"] <= early["maps"] + 32
    assert server.anonymous() <= memory + 16 * house.MIB
