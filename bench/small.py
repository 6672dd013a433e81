"""Jobs on a small machine inside this one: survival beside a killer, and paging by the system. And what idle watching costs."""

import json
import subprocess
import sys

from jobs import ENVIRONMENT, Job, THREADS, capture, path_of, restore_words, shape_of, stem
from summary import OUT

import idle
import server as house

# Memory of the machine and of the hog in MiB, context and question in tokens. Beside the hog, the server with all that it holds
# leaves less than the 10 % where earlyoom acts, with mzCache (which has no memory for conversation that was never written) as
# without (whose weights are pages of the file, and can go). Of 3 GiB, the hog and the stock server leave 200 MiB.
SURVIVAL = {"qwen3-0.6b-f16": (3072, 1900, 8192, 512), "smollm2-135m": (1024, 770, 8192, 768)}
CONFIGS = ("mmap", "mmap+zram", "15 points", "25 points", "own")


def trace_of(config):
    return OUT / f"survival-{config.replace(' ', '-').replace('+', '-')}.jsonl"


def script(name, *words):
    return [sys.executable, str(house.ROOT / "scripts" / name), *map(str, words)]


def survival_words(model, config, rounds, trace):
    memory, hog, context, tokens = SURVIVAL[model]
    return script("survival.py", "--config", config, "--model", path_of(model), "--rounds", rounds, "--memory-mib", memory,
                  "--hog-mib", hog, "--context", context, "--tokens", tokens, "--trace", trace)


def say_skipped(point, what):
    if "skipped" in point:
        print(f"{what}: skipped, {point['skipped']}", file=sys.stderr)


def survival_job(model, config, rounds):
    shape, kind = shape_of(model)

    def gather(log):
        point = json.loads(capture(survival_words(model, config, rounds, trace_of(config)), {}, log))
        say_skipped(point, f"survival {config}")
        yield "survival", config, {"shape": shape, "type": kind} | point
    return Job(f"survival {config}", "survival", [config], gather=gather)


def paging_job(model, tokens, swap):
    """The system's own way: weights in a mapping of the file, the conversation in anonymous memory that is swapped out."""
    shape, kind = shape_of(model)
    base = stem(model, tokens, "exact")

    def gather(log):
        words = script("paging.py", "--model", path_of(model), "--tokens", tokens, "--swap", swap, "--threads", THREADS)
        point = json.loads(capture(words, {}, log))
        say_skipped(point, f"os-paging-{swap}")
        if "skipped" in point:
            return
        yield "baselines", f"{base}/os-paging-{swap}", {"shape": shape, "type": kind, "ctx": tokens, "remaining": 0,
                                                        "baseline": f"os-paging-{swap}"} | point
    return Job(f"os-paging-{swap} {base}", "baselines", [f"{base}/os-paging-{swap}"], gather=gather)


def partial_offload_job(model, tokens, levels, runs):
    """What the paper compares with: layers of weights and conversation leave and come back from storage, one thread allocates
    and reads them all, and only then the prompt is computed, by ggml's attention."""
    shape, kind = shape_of(model)
    base = stem(model, tokens, "exact")
    keys = [f"{base}/{level}/partial-offload" for level in levels]

    def gather(log):
        words = restore_words("restore", model, tokens, runs, "exact", "--levels", ",".join(map(str, levels)))
        for line in capture(words, {"MZ_WORKERS": "1", "MZ_ATTN": "ggml"}, log).splitlines():
            p = json.loads(line)["point"]
            if p.get("mode") == "none":
                yield "baselines", f"{base}/{p['remaining']}/partial-offload", {
                    "shape": shape, "type": kind, "ctx": tokens, "remaining": p["remaining"], "baseline": "partial-offload",
                    "ttft_ms": p["ttft_ms"], "n": p["n"], "spread": p["spread"]}
    return Job(f"partial-offload {base}", "baselines", keys, gather=gather)


def idle_job(seconds):
    def gather(log):
        with house.Server(path_of("smollm2-135m"), env=ENVIRONMENT | {"MZ_PRESSURE": "on", "MZ_CONTROL": "on"}) as server:
            server.complete("Once upon a time", 8)
            yield "idle", "smollm2-135m", {"shape": "smollm2-135m", "type": "Q4_1"} | idle.watch(server, seconds)
    return Job("idle", "idle", ["smollm2-135m"], gather=gather)


def quick_jobs():
    return [idle_job(60), survival_job("qwen3-0.6b-f16", "mmap", 3), survival_job("qwen3-0.6b-f16", "own", 3),
            partial_offload_job("qwen3-0.6b-f16", 2048, (0, 25, 50, 75), 2), paging_job("qwen3-0.6b-f16", 2048, "zram"),
            paging_job("qwen3-0.6b-f16", 2048, "file")]


def full_jobs():
    jobs = [idle_job(600)] + [survival_job("qwen3-0.6b-f16", config, 10) for config in CONFIGS]
    for tokens in (2048, 8192):
        jobs += [partial_offload_job("qwen3-0.6b-f16", tokens, (0, 25, 50, 75), 5)]
        jobs += [paging_job("qwen3-0.6b-f16", tokens, swap) for swap in ("zram", "file")]
    return jobs
