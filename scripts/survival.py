"""Survival: rounds in which a hog takes memory beside a server, on a small machine with the real earlyoom, and what comes of it.

    scripts/survival.py --config own --model FILE [--rounds N] [--trace FILE]

A round: the hog takes its share of the machine at speed and keeps it, the server is asked its question once more, the hog ends.
With everything that the server holds, that is more than the machine has. Prints one line of JSON:

    config, rounds, survived (rounds that server and hog lived through), answers_same (rounds with the first answer, token by
    token), cache_kept (rounds in which nothing of the prompt was computed again), server_killed, hog_killed, ttft_ms (a list),
    first_ms; or config and `skipped` with the reason
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import server as house
import small_machine

CONFIGS = {          # options of `mzcache run`; None: without mzCache
    "mmap": None,
    "mmap+zram": None,
    "15 points": ("--step", "15%"),
    "25 points": ("--step", "25%"),
    "own": (),
}
ANSWER_TOKENS = 8
HOG_BYTES_PER_S = 400 << 20
USE_S = 2            # that the hog is in use before the server is asked


def killer():
    """The program, or None."""
    own = house.CACHE / "earlyoom" / "usr" / "bin" / "earlyoom"
    return str(own) if own.exists() else shutil.which("earlyoom")


def why_not(config):
    """What is missing here; None: nothing."""
    if not killer():
        return "there is no earlyoom (scripts/bootstrap.sh tests)"
    return small_machine.why_not() or (small_machine.why_no_swap("zram") if "zram" in config else None)


def own_copy(model, folder):
    """A copy of the model file, none of it in memory: pages of it that somebody else reads would be charged to them."""
    own = pathlib.Path(folder, "model.gguf")
    shutil.copyfile(model, own)
    with open(own, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return own


def question(server, n):
    """A question of n tokens."""
    tokens = server.tokenize((house.ROOT / "tests" / "data" / "lighthouse.txt").read_text())
    return (tokens * (1 + n // len(tokens)))[:n]


class Killer:
    """earlyoom with its own rules: at 10 % of memory and of swap left it ends, at 5 % it kills. It can see what was started on this
    machine only, and of that it would rather have the server, as Android would: the hog is what its user looks at."""

    def __init__(self, machine):
        self.machine, self.kills = machine, []
        command = [killer(), "-r", "0", "-p", "--prefer", "^llama-server$", "--avoid", "^(earlyoom|mzcache|python3?|sh)$"]
        self.process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            print(f"earlyoom: {line}", end="", file=sys.stderr)
            if line.startswith("sending SIG") and " to process " in line:
                who = line.split('"')[1]
                self.kills.append(who)
                self.machine.note(event="kill", who=who)

    def stop(self):
        """Fails when there was none any more: what lived then survived nothing."""
        ended = self.process.poll()
        self.process.terminate()
        self.process.wait()
        self.thread.join()
        if ended is not None:
            raise RuntimeError(f"earlyoom ended by itself with {ended}")


class Hog:
    """What its user looks at, in the small machine."""

    def __init__(self, machine):
        command = machine.command([sys.executable, house.ROOT / "scripts" / "hog.py"])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        machine.watched["hog"] = self.process.pid

    def say(self, line):
        """Whether it lives to see it done."""
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return False
        return self.process.stdout.readline() == "done\n"

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        self.process.kill()
        self.process.wait()


class Play:
    """One configuration, played for some rounds."""

    def __init__(self, args, machine):
        self.args, self.machine = args, machine
        self.killer = Killer(machine)
        self.hog, self.server, self.first = None, None, None
        self.figures = dict(config=args.config, rounds=args.rounds, survived=0, answers_same=0, cache_kept=0, server_killed=0,
                            hog_killed=0, ttft_ms=[])

    def start_server(self):
        """A server that has answered the question, and again with it in its cache, as in the rounds. Returns the second answer: the
        first one computes all tokens together, rounds differently for that, and may differ where two words are about as likely."""
        options = CONFIGS[self.args.config]
        self.server = house.Server(self.args.model, "--cache-ram", "0", plugin=options is not None, run_options=options or (),
                                   env={"MZ_PRESSURE": "on", "MZ_CONTROL": "on"}, context=self.args.context)
        self.server.command = self.machine.command(self.server.command)
        self.server.start()
        self.machine.watched["server"] = self.server.pid
        if not self.first:
            self.prompt = question(self.server, self.args.tokens)
        return self.ask() and self.ask()

    def ask(self):
        """The answer, or None when the server did not live to give it."""
        with contextlib.suppress(OSError, RuntimeError, ValueError, KeyError, EOFError):
            self.machine.note(event="ask")
            answer = self.server.stream(self.prompt, ANSWER_TOKENS, ignore_eos=True)
            self.machine.note(event="answer", ttft_ms=answer["ttft_ms"])
            return answer if len(answer["tokens"]) == ANSWER_TOKENS else None
        return None

    def server_alive(self):
        return self.server.process.poll() is None

    def note_evictions(self):
        """The evictions of the round, as marks of the trace."""
        if not self.server.plugin or not self.server_alive():
            return
        now, wall = time.monotonic() - self.machine.begin, time.time()
        for event in self.server.events():
            if event["what"] == "evict" and event["number"] > self.seen:
                self.seen = event["number"]
                self.machine.note(event="evict", at=now - (wall - event["time_s"]), bytes=event["bytes"], why=event["why"])

    def round(self):
        self.machine.note(event="round")
        alive = self.hog.say(f"take {self.args.hog_mib << 20} {HOG_BYTES_PER_S}")
        time.sleep(USE_S)
        answer = self.ask() if self.server_alive() else None
        self.note_evictions()
        alive = self.hog.say("drop") and alive and self.hog.alive()
        self.count(answer, alive)
        time.sleep(self.args.pause_s)

    def count(self, answer, hog_alive):
        f = self.figures
        f["survived"] += hog_alive and answer is not None and self.server_alive()
        if answer:
            f["ttft_ms"].append(round(answer["ttft_ms"], 1))
            f["answers_same"] += answer["tokens"] == self.first["tokens"]
            f["cache_kept"] += answer["timings"]["cache_n"] == answer["tokens_evaluated"] - 1
        if not hog_alive:
            f["hog_killed"] += 1
            self.hog.stop()
            self.hog = Hog(self.machine)
        if not self.server_alive():
            f["server_killed"] += 1
            self.server.stop()
            self.seen = 0
            self.start_server()

    def run(self):
        begin = time.monotonic()
        self.machine.note(event="begin", size=self.machine.size, config=self.args.config)
        self.seen = 0
        self.hog = Hog(self.machine)
        try:
            self.first = self.start_server()
            if not self.first:
                raise RuntimeError("the server did not answer before the first round")
            self.figures["first_ms"] = round((time.monotonic() - begin) * 1000)
            for _ in range(self.args.rounds):
                self.round()
        finally:
            self.server.stop()
            self.hog.stop()
            self.killer.stop()
        return self.figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=CONFIGS, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory-mib", type=int, required=True, help="of the small machine")
    parser.add_argument("--hog-mib", type=int, required=True)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=2048, help="of the question")
    parser.add_argument("--pause-s", type=float, default=1, help="after each round")
    parser.add_argument("--trace", help="memory over time, JSON lines")
    args = parser.parse_args()
    reason = why_not(args.config)
    if reason:
        print(json.dumps({"config": args.config, "skipped": reason}))
        return 0
    small_machine.enter()
    with tempfile.TemporaryDirectory(prefix="mz-survival-", dir=house.CACHE) as folder:
        args.model = own_copy(args.model, folder)
        swap = "zram" if "zram" in args.config else None
        with small_machine.Machine(args.memory_mib << 20, swap, trace=args.trace) as machine:
            figures = Play(args, machine).run()
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
