"""Conversations survive eviction: several at once, longer than the context, saved, asleep, and forked into two."""

import pathlib

import pytest
import server as house
import talk
from conftest import model_path

MODEL = "smollm2-135m"
BOTH_KINDS = pytest.mark.parametrize("unified", ["--kv-unified", "--no-kv-unified"])


def parts(document, first, n, length=260):
    """Pieces of text that follow each other, for a conversation that grows."""
    return [document[first + i * length:first + (i + 1) * length] for i in range(n)]


@pytest.mark.trap
@BOTH_KINDS
def test_two_slots_never_mix(document, unified):
    """Two texts grow in turn; something is evicted between every two requests."""
    texts = [parts(document, 0, 3), parts(document, 4000, 3)]

    def script(server, disturb):
        said, seen = ["", ""], []
        for step in range(3):
            for slot in (0, 1):
                said[slot] += texts[slot][step]
                seen.append(talk.see(server, said[slot], 6, id_slot=slot))
                disturb(server)
        return seen

    seen = talk.assert_undisturbed(script, MODEL, "-np", "2", unified, levels=(0, 40, 0, 0, 70))
    assert all(answer["cached"] > 0 for answer in seen[2:])


@pytest.mark.trap
def test_the_context_is_shifted_after_eviction(document):
    """The shift moves what was evicted before it; more evictions come while it goes on."""
    def script(server, disturb):
        prompt = server.tokenize(document[:1500])
        first = talk.ask(server, prompt, 16)["tokens"]
        disturb(server)
        if disturb is talk.leave_alone:
            return first, talk.ask(server, prompt + first, 150)["tokens"]
        with talk.Storm(server) as storm:
            rest = talk.ask(server, prompt + first, 150)["tokens"]
        assert storm.count > 0
        return first, rest

    talk.assert_undisturbed(script, MODEL, "--context-shift", "--keep", "32", context=512)


def test_a_shift_writes_no_unused_cells(document):
    """The second slot's part of the cache was never written, and stays without memory."""
    with house.Server(model_path(MODEL), "-np", "2", "--no-kv-unified", "--context-shift", context=1024) as server:
        before = server.status()["kinds"]["kv"]
        talk.ask(server, server.tokenize(document[:1500]), 170, id_slot=0)
        assert "context shift" in server.log()
        after = server.status()["kinds"]["kv"]
    assert after["empty_bytes"] >= before["empty_bytes"] // 2
    assert after["resident_bytes"] <= before["empty_bytes"] // 2


@pytest.mark.trap
def test_a_slot_is_saved_and_loaded(document, tmp_path):
    """An evicted conversation is saved without coming back, byte for byte; a loaded one can be evicted."""
    def script(server, disturb):
        talk.ask(server, document[:1200])
        disturb(server)
        resident = server.status()["kinds"]["kv"]["resident_bytes"]
        server.post("/slots/0?action=save", filename="saved")
        assert server.status()["kinds"]["kv"]["resident_bytes"] == resident
        disturb(server)
        saved = (tmp_path / "saved").read_bytes()
        server.post("/slots/0?action=erase")
        disturb(server)
        server.post("/slots/0?action=restore", filename="saved")
        disturb(server)
        return saved, talk.see(server, document[:1200])

    calm = talk.run_once(script, talk.leave_alone, MODEL, "--slot-save-path", tmp_path)
    disturb = talk.Levels(0)
    assert talk.run_once(script, disturb, MODEL, "--slot-save-path", tmp_path) == calm
    assert disturb.freed[0] > 0 and disturb.freed[-1] > 0
    assert calm[1]["cached"] > 200


def test_a_sleeping_server_wakes_up(document):
    """llama-server's own sleep drops model and conversation, also when they are evicted; awake, all is as at first."""
    with house.Server(model_path(MODEL), "--sleep-idle-seconds", "2") as server:
        calm = talk.ask(server, document[:600])["tokens"]
        for _ in range(2):
            server.mzcache("evict", "100%", check=False)     # it may be asleep already
            house.wait_for(lambda: server.mzcache("status", check=False).returncode == 3, 120, "the server sleeps")
            assert talk.held(server.pid) < 4 * house.MIB
            answer = talk.ask(server, document[:600])
            assert answer["tokens"] == calm and answer["timings"]["cache_n"] == 0
        assert "sleeping state" in server.log()


def assert_nearly_equal(one, other):
    """Of two answers to the same prompt. Their cells lie at different places and are added up in another order, which products
    with quantised weights make a difference of 0.05 of."""
    for a, b in zip(one, other, strict=True):
        token, logprob = a[0]
        assert abs(logprob - dict(b).get(token, -100)) < 0.3, (one, other)
        if token != b[0][0]:
            break       # two were about as likely; from here on the texts differ


@pytest.mark.trap
@BOTH_KINDS
def test_one_prompt_two_answers(document, unified):
    """n_cmpl copies a sequence, in one cache or from one stream to the other."""
    kv = []

    def script(server, disturb):
        prompt = document[:700]
        talk.ask(server, prompt, 4, id_slot=0)
        disturb(server)
        both = server.post("/completion", prompt=prompt, n_predict=10, temperature=0, n_cmpl=2, ignore_eos=True, n_probs=4)
        kv.append(server.status()["kinds"]["kv"])
        disturb(server)
        again = talk.see(server, prompt, id_slot=0)
        return sorted(talk.probabilities(answer) for answer in both), again

    answers, _ = talk.assert_undisturbed(script, MODEL, "-np", "2", unified)
    assert len(answers) == 2
    assert_nearly_equal(*answers)
    for state in kv:      # a copy does not make unwritten cells exist
        assert state["total_bytes"] < state["empty_bytes"] / 2


def test_saved_file_is_what_stock_writes(document, tmp_path):
    """A program without mzCache reads the state, and goes on from it."""
    with house.Server(model_path(MODEL), "--slot-save-path", tmp_path) as server:
        talk.ask(server, document[:600], 4)
        server.evict("100%")
        server.post("/slots/0?action=save", filename="ours")
    with house.Server(model_path(MODEL), "--slot-save-path", tmp_path, plugin=False) as stock:
        stock.post("/slots/0?action=restore", filename="ours")
        answer = talk.ask(stock, document[:600], 4)
    assert pathlib.Path(tmp_path, "ours").stat().st_size > 1 << 20
    assert answer["timings"]["cache_n"] == answer["tokens_evaluated"] - 1
