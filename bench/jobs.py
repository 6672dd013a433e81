"""What the bench runs: each job with the program that it starts and the figures that this gives, and the jobs of the two tiers."""

import gzip
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import server as house  # noqa: E402

FOLDER = house.CACHE
THREADS = max(1, min(len(os.sched_getaffinity(0)), 16))
MODES = ("full", "none", "alloc-reload", "reload-prefill")
ORDERS = ("backward", "forward", "random")
RULES = ("exact", "published")
TYPES = {"f32": "F32", "f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
REAL = {"smollm2-135m": "Q4_1", "gemma3-270m": "Q4_K"}

# What is measured is what the program asks for, not what the watcher of memory pressure does beside it. The last is
# what `mzcache run` sets.
ENVIRONMENT = {"MZ_PRESSURE": "off", "MZ_CONTROL": "off", "MZ_LOG": "warn", "GOMP_SPINCOUNT": "20000"}


@dataclass
class Job:
    """Something to run. Either `words`, which gets the keys that are missing and gives the command of a program that prints
    lines, or `gather`, which gets an open log file and yields (section, key, point)."""
    name: str
    section: str
    keys: list
    words: object = None
    gather: object = None


# --- models ---

def shape_of(model):
    """("qwen3-0.6b", "F16") of "qwen3-0.6b-f16"."""
    if model in REAL:
        return model, REAL[model]
    shape, _, kind = model.rpartition("-")
    return shape, TYPES[kind]


def path_of(model):
    return str(house.MODELS / f"{model}.gguf")


def program(name):
    return str(house.BUILD / "bin" / name)


def plugin():
    return str(house.BUILD / "bin" / "libggml-mz.so")


# --- jobs of bench_restore ---

def restore_words(what, model, tokens, runs, kv, *more):
    shape, kind = shape_of(model)
    swa = ["--swa-full"] if shape.startswith("gemma3") else []
    return [program("bench_restore"), "--what", what, "--plugin", plugin(), "--model", path_of(model), "--shape", shape,
            "--type", kind, "--tokens", str(tokens), "--runs", str(runs), "--kv", kv, "--threads", str(THREADS),
            "--folder", str(FOLDER), *swa, *more]


def stem(model, tokens, kv):
    return "/".join((*shape_of(model), str(tokens), kv))


def levels_of(missing):
    """The levels among keys that end in LEVEL or LEVEL/WHAT."""
    return ",".join(sorted({key.split("/")[4] for key in missing}, key=int))


def level_job(what, section, model, tokens, levels, runs, kv, names):
    base = stem(model, tokens, kv)
    keys = [f"{base}/{level}" + (f"/{name}" if name else "") for level in levels for name in names(level)]

    def words(missing):
        return restore_words(what, model, tokens, runs, kv, "--levels", levels_of(missing))
    return Job(f"{what} {base}", section, keys, words)


def restore_job(model, tokens, levels, runs, kv="exact"):
    return level_job("restore", "restore", model, tokens, levels, runs, kv, lambda level: MODES if level < 100 else MODES[:1])


def orders_job(model, tokens, levels, runs):
    return level_job("orders", "swap.orders", model, tokens, levels, runs, "exact", lambda level: ORDERS)


def paths_job(model, tokens, levels, runs):
    return level_job("paths", "swap.paths", model, tokens, levels, runs, "q8", lambda level: [""])


def rules_job(model, tokens, levels, runs, read_gbps=0):
    """Both rules of the plan, each by a profile of its own making: in a cache folder beside the real one. With read_gbps, what
    they would do with storage of that speed."""
    base = stem(model, tokens, "q8")
    keys = [f"{base}/{level}/{rule}/{read_gbps:g}" for level in levels for rule in RULES]

    def words(missing):
        simulated = ["--read-gbps", f"{read_gbps:g}"] if read_gbps else []
        return ["env", f"XDG_CACHE_HOME={FOLDER / 'bench'}",
                *restore_words("rules", model, tokens, runs, "q8", "--levels", levels_of(missing), *simulated)]
    return Job(f"rules {base} {read_gbps:g}", "swap.rules", keys, words)


def single_job(what, section, model, tokens, runs, kv, ends, *more):
    base = stem(model, tokens, kv)
    return Job(f"{what} {base}", section, [f"{base}/{end}" for end in ends],
               lambda missing: restore_words(what, model, tokens, runs, kv, *more))


def evict_job(model, tokens, runs, kv):
    return single_job("evict", "evict", model, tokens, runs, kv, ["weights", "kv", "half of kv", "all again"])


def stream_job(model, tokens, runs, limit=40):
    return single_job("stream", "stream", model, tokens, runs, "exact", [str(limit)], "--limit", str(limit))


def longctx_job(model, tokens, runs):
    return single_job("longctx", "longctx", model, tokens, runs, "exact", ["longctx"])


def slot_job(model, tokens, runs):
    return single_job("slot-restore", "baselines", model, tokens, runs, "exact", ["slot-restore"])


def cold_job(model, tokens, runs):
    return single_job("cold", "baselines", model, tokens, runs, "exact", ["cold-start"])


# --- the other jobs ---

def limits_job(runs):
    words = [program("bench_limits"), "--folder", str(FOLDER), "--threads", str(THREADS), "--runs", str(runs)]
    return Job("limits", "limits", ["limits"], lambda missing: words)


def capture(words, env, log):
    """What a program printed. Its other output goes to the log."""
    done = subprocess.run(words, env=dict(os.environ) | ENVIRONMENT | env, stdout=subprocess.PIPE, stderr=log, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)} ended with {done.returncode}")
    return done.stdout


def codec_job(*more):
    def gather(log):
        for point in json.loads(capture([program("bench_codec"), *more], {}, log)):
            yield "swap.codecs", f"{point['codec']}/{point['isa']}", point
    return Job("codecs", "swap.codecs", ["q8/portable"], gather=gather)


def attn_job(*more):
    def gather(log):
        result = json.loads(capture([program("bench_attn"), "--threads", str(THREADS), *more], {}, log))
        yield "attn", "table", {"points": result["attn"], "limits": result["limits"]}
    return Job("attention", "attn", ["table"], gather=gather)


def bench_once(model, prompt, generate, managed, log):
    """{"pp512": tokens a second, ...} of one start of llama-bench."""
    device = ["-dev", "MZ0", "-ngl", "99"] if managed else ["-dev", "none"]
    spinning = [] if managed else ["env", "-u", "GOMP_SPINCOUNT"]  # stock is as it comes
    words = [*spinning, str(house.program("llama-bench")), "-m", path_of(model), *device, "-p", str(prompt), "-n", str(generate),
             "-r", "1", "-t", str(THREADS), "-o", "json"]
    env = {"GGML_BACKEND_PATH": plugin()} if managed else {}
    tests = json.loads(capture(words, env, log))
    return {f"pp{t['n_prompt']}" if t["n_prompt"] else f"tg{t['n_gen']}": t["avg_ts"] for t in tests}


def overhead_job(model, pairs, prompt=512, generate=128):
    """Stock and plugin in turn; who begins changes with every pair. The ratio is the median of the pairs' ratios."""
    shape, kind = shape_of(model)
    tests = [f"pp{prompt}", f"tg{generate}"]

    def gather(log):
        seen = []
        for pair in range(pairs):
            both = {}
            for managed in (False, True) if pair % 2 == 0 else (True, False):
                both[managed] = bench_once(model, prompt, generate, managed, log)
            seen.append(both)
        for test in tests:
            stock, mz = [b[False][test] for b in seen], [b[True][test] for b in seen]
            ratios = [m / s for s, m in zip(stock, mz)]
            yield "overhead", f"{shape}/{kind}/{test}", {
                "shape": shape, "type": kind, "test": test, "stock_tps": statistics.median(stock),
                "mz_tps": statistics.median(mz), "ratio": statistics.median(ratios), "ratio_low": min(ratios),
                "n": pairs, "spread": max(ratios) / min(ratios)}
    return Job(f"overhead {shape} {kind}", "overhead", [f"{shape}/{kind}/{test}" for test in tests], gather=gather)


def long_text():
    """A long real text: the policy manual of Debian, from its package."""
    path = house.CACHE / "text" / "debian-policy.txt"
    if path.exists():
        return str(path)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "debian-policy"], cwd=folder, check=True, stdout=sys.stderr)
    package = max(folder.glob("debian-policy_*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, folder / "package"], check=True)
    with gzip.open(folder / "package/usr/share/doc/debian-policy/policy.txt.gz", "rt") as text:
        path.write_text(text.read())
    return str(path)


def quality_job(model, windows, variants):
    """Windows of the text that are missing are scored in one go, from the first to the last of them."""
    keys = [f"{model}/{variant.replace(':', '/')}/{window}" for window in range(windows) for variant in variants]

    def words(missing):
        numbers = [int(key.rsplit("/", 1)[1]) for key in missing]
        first, last = min(numbers), max(numbers)
        return [program("bench_quality"), "--plugin", plugin(), "--model", path_of(model), "--text", long_text(), "--name", model,
                "--first", str(first), "--windows", str(last - first + 1), "--variants", ",".join(variants),
                "--threads", str(THREADS), *(["--swa-full"] if model.startswith("gemma3") else [])]
    return Job(f"quality {model}", "quality", keys, words)


def perplexity_once(model, chunks, log, *options, **env):
    words = [str(house.program("llama-perplexity")), "-m", path_of(model), "-f", long_text(), "-c", "512", "--chunks", str(chunks),
             "-t", str(THREADS), *options]
    text = capture(["sh", "-c", '"$@" 2>&1', "sh", *words], {"GGML_BACKEND_PATH": plugin()} | env, log)
    return float(re.search(r"Final estimate: PPL = ([\d.]+)", text)[1])


def perplexity_job(model, chunks):
    """The plugin's attention and ggml-cpu's in batches of 8 tokens, beside a reference without fused attention and with a cache
    in 32 bit. Where nothing else rounds (F32), ours must agree with it; quantised weights make noise of a last bit."""
    shape, kind = shape_of(model)
    managed = ("-dev", "MZ0", "-ngl", "99", "-fa", "on", "-b", "8", "-ub", "8")
    exact = ("-dev", "none", "-fa", "off", "-ctk", "f32", "-ctv", "f32", "-b", "512", "-ub", "512")

    def gather(log):
        yield "perplexity", f"{shape}/{kind}/{chunks}", {
            "shape": shape, "type": kind, "tokens": 256 * chunks, "ref_ppl": perplexity_once(model, chunks, log, *exact),
            "mz_ppl": perplexity_once(model, chunks, log, *managed),
            "ggml_ppl": perplexity_once(model, chunks, log, *managed, MZ_ATTN="ggml")}
    return Job(f"perplexity {shape} {kind}", "perplexity", [f"{shape}/{kind}/{chunks}"], gather=gather)


# --- the two tiers ---

def quick_jobs():
    f16, q4 = "qwen3-0.6b-f16", "qwen3-0.6b-q4_0"
    return [
        limits_job(3),
        overhead_job("smollm2-135m", 3, generate=64),
        overhead_job(q4, 2, generate=32),
        attn_job("--quick"),
        codec_job("--runs", "3", "--fresh-mib", "64"),
        restore_job(f16, 2048, (0, 25, 50, 75, 100), 3),
        restore_job(q4, 2048, (0, 50), 3),
        cold_job(f16, 2048, 1),
        slot_job(f16, 2048, 2),
        orders_job(f16, 2048, (50,), 3),
        paths_job(f16, 2048, (0, 25, 50, 75), 2),
        rules_job(q4, 2048, (25, 50, 75), 2),
        rules_job(q4, 2048, (25, 50, 75), 1, 10),
        evict_job(f16, 2048, 2, "exact"),
        evict_job(f16, 2048, 2, "q8"),
        stream_job(f16, 2048, 2),
        longctx_job(q4, 8192, 2),
        quality_job("smollm2-135m", 4, ("exact:1", "q8:1", "q8:10")),
    ]


def full_jobs():
    shapes = ["qwen3-0.6b-f16", "qwen3-0.6b-q4_0", "exaone-4.0-1.2b-f16", "exaone-4.0-1.2b-q4_0"]
    levels, lengths = (0, 25, 50, 75, 100), (8192, 16384, 32768)
    jobs = [limits_job(7)]
    jobs += [overhead_job(m, 7) for m in ("smollm2-135m", "qwen3-0.6b-q4_0", "qwen3-0.6b-q8_0", "qwen3-0.6b-f16")]
    jobs += [attn_job(), codec_job()]
    jobs += [restore_job("qwen3-0.6b-f16", 2048, levels, 5)]
    jobs += [restore_job(m, n, levels, 5, kv) for kv in ("exact", "q8") for n in lengths for m in shapes]
    jobs += [cold_job("qwen3-0.6b-f16", 2048, 1)] + [cold_job(m, 8192, 1) for m in shapes]
    jobs += [slot_job(m, n, 3) for n in (2048, *lengths) for m in shapes]
    jobs += [orders_job("qwen3-0.6b-f16", 8192, (25, 50, 75), 10)]
    jobs += [paths_job(m, 8192, levels[:-1], 5) for m in shapes]
    jobs += [rules_job(m, 8192, (10, 25, 50, 75), 5) for m in shapes]
    jobs += [rules_job(m, 8192, (10, 25, 50, 75), 1, gbps) for gbps in (0.3, 10, 30) for m in shapes]
    jobs += [evict_job(m, 8192, 5, kv) for kv in ("exact", "q8") for m in shapes]
    jobs += [stream_job(m, 2048, 5) for m in ("qwen3-0.6b-f16", "exaone-4.0-1.2b-f16")]
    jobs += [longctx_job(m, n, 5) for n in lengths for m in shapes]
    jobs += [quality_job(m, 32, ("exact:1", "q8:1", "q8:50")) for m in REAL]
    jobs += [perplexity_job(m, 16) for real in REAL for m in (f"{real}-f32", real)]
    return jobs
