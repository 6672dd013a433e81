"""mzCache decides by itself: idle time, the system's reports of pressure, levels handed in."""

import json
import os
import subprocess
import sys

import idle
import pytest
import server as house
import talk
from conftest import model_path
from test_socket import Client

MODEL = "tiny-llama"
WATCHED = {"MZ_PRESSURE": "on"}


def events(server, what):
    return [event for event in server.events() if event["what"] == what]


def remaining(server):
    return server.status()["remaining_percent"]


@pytest.mark.trap
def test_idle_time_steps_down(document):
    """A quarter after each two seconds without use; the next question is answered as before."""
    with house.Server(model_path(MODEL), run_options=("--idle", "2s:25%", "--hold", "0s"), env=WATCHED) as server:
        calm = talk.see_warm(server, document[:300])
        house.wait_for(lambda: remaining(server) < 80, 120, "the first step")
        house.wait_for(lambda: remaining(server) < 30, 120, "further steps")
        assert len(events(server, "evict")) >= 2
        assert talk.see(server, document[:300]) == calm and calm["cached"] > 50


def test_idle_time_respects_the_floor(document):
    with house.Server(model_path(MODEL), run_options=("--idle", "1s", "--hold", "0s", "--floor", "50%"), env=WATCHED) as server:
        talk.ask(server, document[:300], 4)
        house.wait_for(lambda: events(server, "evict"), 120, "an eviction")
        house.wait_for(lambda: server.status()["idle_ms"] > 5000, 120, "more idle time")
        assert remaining(server) >= 45


@pytest.mark.parametrize("kind", ["fifo", "file that is none"])
def test_the_systems_protocol(document, tmp_path, kind):
    """$MEMORY_PRESSURE_WATCH: a pipe reports pressure and is answered; /dev/null switches it off."""
    path = tmp_path / "pressure"
    os.mkfifo(path) if kind == "fifo" else None
    env = dict(WATCHED, MEMORY_PRESSURE_WATCH=str(path if kind == "fifo" else "/dev/null"))
    with house.Server(model_path(MODEL), run_options=("--hold", "0s"), env=env) as server:
        talk.ask(server, document[:300], 4)
        sources = {source["name"]: source for source in server.status()["pressure"]["sources"]}
        assert sources["systemd"]["live"] == (kind == "fifo")
        if kind == "fifo":
            with open(path, "wb", buffering=0) as pipe:
                def press():
                    pipe.write(b"x")
                    return events(server, "evict")
                house.wait_for(press, 120, "an eviction")
            assert remaining(server) < 100


@pytest.mark.trap
def test_levels_of_a_host_application(document):
    """20: hidden, copies are written and nothing leaves; 40: in the background, all leaves."""
    with house.Server(model_path(MODEL), run_options=("--hold", "0s"), env=WATCHED) as server:
        calm = talk.see_warm(server, document[:300])
        client = Client(server)
        client.line()
        assert not client.ask(cmd="trim", level=3)["ok"]
        assert client.ask(cmd="trim", level=20)["ok"]
        house.wait_for(lambda: server.status()["kinds"]["kv"]["clean_bytes"] > 0, 120, "copies are written")
        assert remaining(server) > 99
        client.close()
        client = Client(server)
        client.line()
        assert client.ask(cmd="trim", level=40)["ok"]
        client.close()
        house.wait_for(lambda: remaining(server) < 10, 120, "all is evicted")
        assert talk.see(server, document[:300]) == calm


@pytest.mark.parametrize("seconds", [60, pytest.param(600, marks=pytest.mark.long)])
def test_watching_costs_little(document, seconds):
    """Idle and without pressure: all threads of the plugin together take less than a thousandth of a core, and nothing leaves."""
    with house.Server(model_path("smollm2-135m"), env=WATCHED) as server:
        talk.ask(server, document[:300], 4)
        cost = idle.watch(server, seconds)
        print(cost)
        assert cost["cpu_percent"] < 0.1, cost
        assert cost["wakeups_per_s"] < 2, cost
        assert server.status()["pressure"]["evictions"] == 0


def survive(config, tmp_path, rounds=3):
    """What the survival of a server of 190 MiB came to on a machine of 1 GiB, beside a hog of 770 MiB and the real earlyoom. With
    all that it holds 86 MiB would be left; earlyoom acts at 102."""
    words = ["--rounds", rounds, "--memory-mib", 1024, "--hog-mib", 770, "--context", 8192, "--tokens", 768,
             "--trace", tmp_path / "trace.jsonl", "--config", config, "--model", model_path("smollm2-135m")]
    done = subprocess.run([sys.executable, house.ROOT / "scripts" / "survival.py", *map(str, words)], text=True, capture_output=True)
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    if "skipped" in outcome:
        pytest.skip(outcome["skipped"])
    return outcome


def test_hog_and_server_survive(tmp_path):
    """Three rounds: both live, each answer is the first one, and nothing of the conversation is computed again."""
    outcome = survive("own", tmp_path)
    assert outcome["survived"] == outcome["answers_same"] == outcome["cache_kept"] == 3, outcome
    assert outcome["server_killed"] == outcome["hog_killed"] == 0, outcome


def test_the_server_alone_is_killed(tmp_path):
    """The control: the same without mzCache, so that surviving means something."""
    outcome = survive("mmap", tmp_path, rounds=1)
    assert outcome["survived"] == 0 and outcome["server_killed"] == 1 and outcome["hog_killed"] == 0, outcome


@pytest.mark.long
def test_a_thousand_cycles(document):
    """Memory, descriptors, threads and mappings do not drift."""
    with house.Server(model_path(MODEL)) as server:
        calm = talk.warm_up(server, document[:300], 4)

        def sizes():
            proc = f"/proc/{server.pid}"
            return (server.anonymous(), len(os.listdir(f"{proc}/fd")), len(os.listdir(f"{proc}/task")),
                    sum(1 for _ in open(f"{proc}/maps")), server.status()["store_file_bytes"])

        for cycle in range(1000):
            server.evict("100%")
            talk.assert_same(talk.ask(server, document[:300], 4), calm)
            if cycle == 50:
                early = sizes()
        late = sizes()
    assert late[0] <= early[0] + 16 * house.MIB
    assert late[1] <= early[1] + 2 and late[2] <= early[2] and late[3] <= early[3] + 32
    assert late[4] <= 2 * early[4] + house.MIB
