"""What the end-to-end tests say to a server, and how they compare two runs.

Most behaviours are checked in one way: a script of requests runs on a fresh server that is left alone, then on another fresh one
that is disturbed between the requests. Both must see the same tokens and the same probabilities, to the last bit.

Only answers to prompts of which the same part was cached can be compared. What is cached is not computed again, so a warm prompt
is a batch of one token where a cold one was a batch of all: other kernels, which round differently, and another token where two
are about as likely. On which processor that shows is chance."""

import random
import re
import threading

import server as house
from conftest import MODEL_OPTIONS, model_path

TOKENS = 24


def ask(server, prompt, n_predict=TOKENS, **options):
    answer = server.complete(prompt, n_predict, ignore_eos=True, **options)
    assert len(answer["tokens"]) == n_predict
    return answer


def warm_up(server, prompt, n_predict=TOKENS):
    """The answer of the server with everything in memory and the prompt in its cache."""
    server.mzcache("restore", "--wait")
    ask(server, prompt, n_predict)
    return ask(server, prompt, n_predict)


def assert_same(restored, warm):
    """Both with the whole prompt in the cache but its last token, which is always computed."""
    assert warm["timings"]["cache_n"] == restored["timings"]["cache_n"] == restored["tokens_evaluated"] - 1
    assert restored["tokens"] == warm["tokens"]


def probabilities(answer):
    """Of each token, the best four (token, logarithm); none where a character is not complete: the server leaves those out."""
    table = [[(top["id"], top["logprob"]) for top in token["top_logprobs"]] for token in answer["completion_probabilities"]]
    assert table
    return table


def see(server, prompt, n_predict=12, **options):
    """What a run is compared by: each token with the probabilities of the best four, and how much of the prompt was cached."""
    answer = ask(server, prompt, n_predict, n_probs=4, **options)
    return {"tokens": answer["tokens"], "probabilities": probabilities(answer), "cached": answer["timings"]["cache_n"]}


def see_warm(server, prompt, n_predict=12):
    """The same with the prompt in the server's cache."""
    see(server, prompt, n_predict)
    return see(server, prompt, n_predict)


# --- disturbing ---

def leave_alone(server):
    pass


class Levels:
    """Evicts to one level after the other, and counts what that freed."""

    def __init__(self, *percents):
        self.percents, self.freed = percents or (0,), []

    def __call__(self, server):
        percent = self.percents[len(self.freed) % len(self.percents)]
        self.freed.append(server.mzcache("evict", "--to", f"{percent}%", "--json")["freed_bytes"])


class Storm:
    """with Storm(server): evictions and restores from outside, one after the other, until the block ends."""

    def __init__(self, server, seed=1, words=None):
        self.server, self.random, self.words = server, random.Random(seed), words
        self.done, self.count, self.failure = threading.Event(), 0, None
        self.thread = threading.Thread(target=self._rage)

    def _rage(self):
        while not self.done.is_set() and not self.failure:
            words = self.words or self.random.choice((("evict", "100%"), ("evict", "30%"), ("evict", "--to", "55%"), ("restore",)))
            result = self.server.mzcache(*words, check=False)
            if result.returncode:
                self.failure = f"{words}: {result.returncode} {result.stderr}"
            self.count += 1
            self.done.wait(0.1)      # the answer wants the cores, too

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        assert not self.failure, self.failure


def run_once(script, disturb, model, *args, **options):
    with house.Server(model_path(model), *MODEL_OPTIONS.get(model, []), *args, **options) as server:
        return script(server, disturb)


def assert_undisturbed(script, model, *args, levels=(0,), **options):
    """Runs the script with nothing evicted and with evictions; both see the same. Returns what they saw."""
    calm = run_once(script, leave_alone, model, *args, **options)
    disturb = Levels(*levels)
    assert run_once(script, disturb, model, *args, **options) == calm
    assert disturb.freed and all(freed > 0 for freed in disturb.freed), disturb.freed
    return calm


# --- memory, as the kernel counts it ---

def regions(pid):
    """Mappings of mzCache: nobody else marks anonymous memory as neither dumped nor inherited. [(start, end, bytes held)]"""
    found, start = [], None
    for line in open(f"/proc/{pid}/smaps"):
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if head:
            start, end, held = int(head[1], 16), int(head[2], 16), 0
        elif line.startswith(("Rss:", "Swap:")):
            held += int(line.split()[1]) << 10
        elif line.startswith("VmFlags:") and {"dd", "dc"} <= set(line.split()):
            found.append((start, end, held))
    return found


def held(pid):
    return sum(region[2] for region in regions(pid))
