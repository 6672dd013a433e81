"""Draws bench/out/*.png from a summary.json: plot.py [FILE]."""

import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "out"


def groups(points, *keys):
    """{values of the keys: points with these}, in the order in which they appear."""
    out = {}
    for point in points:
        out.setdefault(tuple(point[key] for key in keys), []).append(point)
    return out


def figure(n):
    plots, axes = plt.subplots(1, n, figsize=(5 * n, 4), squeeze=False)
    return plots, axes[0]


def save(plots, name):
    plots.tight_layout()
    plots.savefig(OUT / f"{name}.png", dpi=120)
    plt.close(plots)


def draw_restore(points, kv):
    """Time to first token against what remains, one curve a mode, and the limit."""
    points = [p for p in points if p["mode"] != "cold" and p["kv"] == kv]
    panels = groups(points, "shape", "type", "ctx")
    if not panels:
        return
    plots, axes = figure(len(panels))
    for ax, ((shape, kind, ctx), panel) in zip(axes, panels.items()):
        for (mode,), curve in groups(panel, "mode").items():
            curve.sort(key=lambda p: p["remaining"])
            ax.plot([p["remaining"] for p in curve], [p["ttft_ms"] for p in curve], marker="o", label=mode)
        full = sorted((p for p in panel if p["mode"] == "full"), key=lambda p: p["remaining"])
        ax.plot([p["remaining"] for p in full], [p["limit_ms"] for p in full], "k--", label="limit")
        ax.set(title=f"{shape} {kind}, {ctx} tokens", xlabel="remaining, %", ylabel="time to first token, ms", ylim=(0, None))
        ax.legend()
    save(plots, f"restore-{kv}")


def draw_paths(points):
    panels = groups(points, "shape", "type", "ctx")
    if not panels:
        return
    plots, axes = figure(len(panels))
    for ax, ((shape, kind, ctx), panel) in zip(axes, panels.items()):
        panel.sort(key=lambda p: p["remaining"])
        for name in ("stack_ms", "store_ms", "parallel_ms", "sequential_ms"):
            ax.plot([p["remaining"] for p in panel], [p[name] for p in panel], marker="o", label=name[:-3])
        ax.set(title=f"{shape} {kind}, {ctx} tokens", xlabel="remaining, %", ylabel="restoring, ms", ylim=(0, None))
        ax.legend()
    save(plots, "paths")


def bars(name, labels, series, ylabel):
    """Groups of bars: one group a label, one bar a series."""
    if not labels:
        return
    plots, (ax,) = figure(1)
    plots.set_size_inches(max(5, 0.9 * len(labels) * len(series)), 4.5)
    width = 0.8 / len(series)
    for i, (title, values) in enumerate(series.items()):
        ax.bar([at + (i - (len(series) - 1) / 2) * width for at in range(len(labels))], values, width, label=title)
    ax.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
    ax.set_ylabel(ylabel)
    ax.legend()
    save(plots, name)


def draw_orders(points):
    levels = groups(points, "ctx", "remaining")
    series = {order: [next((p["ttft_ms"] for p in level if p["order"] == order), 0) for level in levels.values()]
              for order in ("backward", "forward", "random")}
    bars("orders", [f"{remaining} % of {ctx}" for ctx, remaining in levels], series, "time to first token, ms")


def draw_overhead(points):
    labels = [f"{p['shape']} {p['type']} {p['test']}" for p in points]
    bars("overhead", labels, {"plugin / stock": [p["ratio"] for p in points], "lowest pair": [p["ratio_low"] for p in points]}, "ratio")


def draw_attention(points):
    labels = [f"{p['rows']} x {p['kv']}, {p['heads']}/{p['kv_heads']} d{p['head_dim']}" for p in points]
    bars("attention", labels, {"speedup": [p["speedup"] for p in points]}, "ggml-cpu's time / ours")


def draw_longctx(points):
    labels = [f"{p['shape']} {p['type']} {p['ctx']}" for p in points]
    bars("longctx", labels, {"stock": [p["stock_ttft_ms"] for p in points], "plugin": [p["mz_ttft_ms"] for p in points]},
         "time to first token, ms")


def draw_baselines(points):
    points = [p for p in points if "mz_ttft_ms" in p and p["baseline"] != "never-evicted"]
    labels = [f"{p['baseline']}, {p['shape']} {p['type']} {p['ctx']}" for p in points]
    bars("baselines", labels, {"baseline": [p["ttft_ms"] for p in points], "mzCache": [p["mz_ttft_ms"] for p in points]},
         "time to first token, ms")


def read_trace(path):
    """(figures, events) of a survival trace."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [r for r in records if "event" not in r], [r for r in records if "event" in r]


MARKS = {"kill": ("killed", "rx"), "evict": ("eviction", "bv"), "answer": ("answer", "g^")}


def draw_survival(path, title):
    """Memory over time: the server's and the hog's on each other, and all that is not available; above the dotted line somebody is
    killed."""
    figures, events = read_trace(path)
    if not figures:
        return
    gib = 1 << 30
    size = events[0]["size"] / gib
    plots, (ax,) = figure(1)
    plots.set_size_inches(11, 3.6)
    seconds = [f["s"] for f in figures]
    server, hog = ([f.get(who, 0) / gib for f in figures] for who in ("server", "hog"))
    swapped = [f["swapped"] / gib for f in figures]
    ax.stackplot(seconds, server, hog, labels=["server, anonymous", "hog"], colors=["tab:blue", "tab:orange"], alpha=0.7)
    ax.plot(seconds, [size - f["available"] / gib for f in figures], "k-", lw=0.8, label="not available")
    if any(swapped):
        ax.plot(seconds, swapped, "m--", lw=0.8, label="in swap")
    ax.axhline(0.9 * size, color="r", lw=0.8, ls=":", label="the killer's line")
    for what, (label, mark) in MARKS.items():
        at = [e.get("at", e["s"]) for e in events if e["event"] == what]
        if at:
            ax.plot(at, [1.03 * size] * len(at), mark, label=label)
    ax.set(title=title, xlabel="seconds", ylabel="GiB", xlim=(0, None), ylim=(0, 1.1 * size))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    save(plots, path.stem)


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUT / "summary.json"
    summary = json.loads(path.read_text())
    OUT.mkdir(parents=True, exist_ok=True)
    for kv in ("exact", "q8"):
        draw_restore(summary["restore"], kv)
    draw_paths(summary["swap"]["paths"])
    draw_orders(summary["swap"]["orders"])
    draw_overhead(summary["overhead"])
    draw_attention(summary["attn"])
    draw_longctx(summary["longctx"])
    draw_baselines(summary["baselines"])
    for point in summary["survival"]:
        path = OUT / f"survival-{point['config'].replace(' ', '-').replace('+', '-')}.jsonl"
        if "skipped" not in point and path.exists():
            draw_survival(path, f"{point['config']}: {point['survived']} of {point['rounds']} rounds survived, "
                                f"{point['answers_same']} answers as the first")
    return 0


if __name__ == "__main__":
    sys.exit(main())
