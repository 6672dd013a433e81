"""The figures of the bench: bench/out/points.jsonl, a line for each, and bench/out/summary.json, made of them."""

import datetime
import json
import math
import os
import pathlib
import platform
import subprocess

from jobs import FOLDER, THREADS, house

OUT = house.ROOT / "bench" / "out"
POINTS = OUT / "points.jsonl"
SUMMARY = OUT / "summary.json"


def read_points():
    """{(tier, section, key): point}; a line that was cut off is left out."""
    points = {}
    if POINTS.exists():
        for line in POINTS.read_text().splitlines():
            try:
                entry = json.loads(line)
                points[entry["tier"], entry["section"], entry["key"]] = entry["point"]
            except (ValueError, KeyError):
                continue
    return points


def first_line(words):
    try:
        return subprocess.check_output(words, text=True, stderr=subprocess.DEVNULL).splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def cpu_info(key):
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def meta(tier, failed):
    flags = [f for f in cpu_info("flags").split() if f.startswith(("avx", "amx", "fma", "f16c"))]
    changed = subprocess.call(["git", "-C", house.ROOT, "diff", "--quiet", "HEAD", "--", "src", "bench", "include"]) != 0
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": first_line(["git", "-C", str(house.ROOT), "rev-parse", "--short", "HEAD"]) + ("+" if changed else ""),
        "cpu": cpu_info("model name"), "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
        "disk": first_line(["findmnt", "-no", "SOURCE,FSTYPE", "-T", str(FOLDER)]),
        "llama_cpp": house.llama().name, "flags": " ".join(flags), "tier": tier, "threads": THREADS, "failed": failed,
    }


def merge_tiers(points):
    """{section: {key: point}}, with the full run's figures where there are any."""
    sections = {}
    for tier in ("quick", "full"):
        for (of, section, key), point in points.items():
            if of == tier:
                sections.setdefault(section, {})[key] = point
    return sections


def restored(sections):
    """{(shape, type, ctx, remaining): time to first token in the usual mode}, bit-exact."""
    return {(p["shape"], p["type"], p["ctx"], p["remaining"]): p for p in sections.get("restore", {}).values()
            if p["mode"] == "full" and p["kv"] == "exact"}


# Who ends a program to have some of its memory gives up all of it: the same figure stands beside every level.
WHOLE = ("cold-start", "slot-restore")


def levels_beside(point, managed):
    """What the point is compared with: {remaining: point in the usual mode, or None}."""
    of = (point["shape"], point["type"], point["ctx"])
    if point["baseline"] in WHOLE:
        found = {key[3]: p for key, p in managed.items() if key[:3] == of and key[3] < 100}
        if found:
            return found
    return {point["remaining"]: managed.get((*of, point["remaining"]))}


def baselines(sections):
    managed, out = restored(sections), []
    for point in sections.get("baselines", {}).values():
        for remaining, mz in levels_beside(point, managed).items():
            beside = {"mz_ttft_ms": mz["ttft_ms"], "speedup": point["ttft_ms"] / mz["ttft_ms"]} if mz else {}
            out.append({k: v for k, v in point.items() if k != "kv"} | {"remaining": remaining} | beside)
    for (shape, kind, ctx, remaining), p in managed.items():
        out.append({"shape": shape, "type": kind, "ctx": ctx, "remaining": remaining, "baseline": "never-evicted",
                    "ttft_ms": p["warm_ms"], "mz_ttft_ms": p["ttft_ms"], "speedup": p["warm_ms"] / p["ttft_ms"], "n": p["n"]})
    return out


def quality(sections):
    """One point for each model and variant, of all windows of the text that were scored."""
    saved = {p["codec"]: p["saved"] for p in sections.get("swap.codecs", {}).values()}
    windows, out = {}, []
    for point in sections.get("quality", {}).values():
        windows.setdefault((point["model"], point["codec"], point["cycles"]), []).append(point)
    for (model, codec, cycles), points in windows.items():
        def total(key, points=points):
            return sum(p[key] for p in points)
        tokens = total("tokens")
        out.append({"model": model, "codec": codec, "preset": None, "cycles": cycles, "ppl": math.exp(total("nll") / tokens),
                    "ppl_ref": math.exp(total("nll_ref") / tokens), "kld": total("kld") / tokens,
                    "greedy_agree": total("agree") / tokens, "lossy_share": total("lossy_share") / len(points),
                    "f1": None, "f1_ref": None, "saved": saved.get(codec, 0.0), "tokens": tokens, "n": len(points)})
    return out


def summarise(tier, failed):
    sections = merge_tiers(read_points())
    table = sections.get("attn", {}).get("table", {"points": [], "limits": {}})
    listed = {name: list(sections.get(name, {}).values())
              for name in ("overhead", "longctx", "restore", "evict", "stream", "perplexity", "survival", "idle")}
    summary = {
        "meta": meta(tier, failed),
        "limits": sections.get("limits", {}).get("limits", {}),
        "overhead": listed["overhead"],
        "attn": table["points"], "attn_limits": table["limits"],
        "longctx": listed["longctx"],
        "swap": {name: list(sections.get(f"swap.{name}", {}).values())
                 for name in ("paths", "orders", "codecs", "rules")},
        "restore": listed["restore"], "evict": listed["evict"], "stream": listed["stream"],
        "baselines": baselines(sections), "survival": listed["survival"], "idle": listed["idle"],
        "quality": quality(sections), "perplexity": listed["perplexity"],
    }
    part = SUMMARY.with_suffix(".part")
    part.write_text(json.dumps(summary, indent=1) + "\n")
    part.replace(SUMMARY)
