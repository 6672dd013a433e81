"""Draws bench/out/*.png from a summary.json: plot.py [FILE]."""

import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "out"


# --- what the drawings share ---

COLUMNS = 4


def groups(points, *keys):
    """{values of the keys: points with these}, in the order in which they appear."""
    out = {}
    for point in points:
        out.setdefault(tuple(point.get(key) for key in keys), []).append(point)
    return out


def grid(n, width=4.2, height=3.4):
    """A figure of n panels, at most four in a row, and these."""
    columns = min(n, COLUMNS)
    rows = -(-n // columns)
    plots, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    axes = axes.ravel()
    for ax in axes[n:]:
        ax.set_axis_off()
    return plots, axes[:n]


def save(plots, name):
    plots.tight_layout()
    plots.savefig(OUT / f"{name}.png", dpi=100)
    plt.close(plots)


def curve(ax, points, x, y, *style, **options):
    """Points that have the value, in the order of x."""
    points = sorted((p for p in points if p.get(y) is not None), key=lambda p: p[x])
    if points:
        ax.plot([p[x] for p in points], [p[y] for p in points], *style, **options)


def of_model(points):
    return groups(points, "shape", "type", "ctx")


def draw_panels(name, panels, draw, title, **labels):
    """One panel for each group: draw(ax, points)."""
    if not panels:
        return
    plots, axes = grid(len(panels))
    for ax, (key, points) in zip(axes, panels.items()):
        draw(ax, points)
        ax.set_title(title(*key), fontsize="medium")
        ax.set(**labels)
        ax.grid(alpha=0.3)
        ax.legend(fontsize="x-small")
    save(plots, name)


def figure(value):
    """Three digits that count, and never an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def draw_bars(name, labels, series, xlabel, line=None):
    """Groups of horizontal bars, a group for each label, so that any number of them can be read."""
    if not labels:
        return
    plots, ax = plt.subplots(figsize=(9, 1.2 + 0.22 * len(labels) * (len(series) + 0.6)))
    height = 0.8 / len(series)
    for i, (title, values) in enumerate(series.items()):
        at = [row + (i - (len(series) - 1) / 2) * height for row in range(len(labels))]
        ax.bar_label(ax.barh(at, values, height, label=title), fmt=figure, padding=2, fontsize="x-small")
    if line is not None:
        ax.axvline(line, color="k", lw=0.8, ls="--")
    ax.set_yticks(range(len(labels)), labels, fontsize="small")
    ax.set_xlabel(xlabel)
    ax.margins(x=0.12)
    ax.invert_yaxis()
    if len(series) > 1:      # above the bars, which may reach into every corner
        ax.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=len(series), frameon=False)
    save(plots, name)


def named(shape, kind, ctx):
    return f"{shape} {kind}, {ctx} tokens"


def label_of(point):
    return " ".join(str(point[key]) for key in ("shape", "type", "ctx", "kv") if key in point)


REMAINING = {"xlabel": "remaining, %", "xlim": (-5, 105), "ylim": (0, None)}


# --- the sections ---

def draw_restore(points, kv):
    """Time to first token against what remains, one curve a mode, and the limit."""
    points = [p for p in points if p["mode"] != "cold" and p["kv"] == kv]

    def draw(ax, panel):
        for (mode,), of_mode in groups(panel, "mode").items():
            curve(ax, of_mode, "remaining", "ttft_ms", marker="o", ms=3, label=mode)
        curve(ax, [p for p in panel if p["mode"] == "full"], "remaining", "limit_ms", "k--", label="limit")
    draw_panels(f"restore-{kv}", of_model(points), draw, named, ylabel="time to first token, ms", **REMAINING)


def draw_paths(points):
    def draw(ax, panel):
        for key, style in (("stack_ms", ":"), ("store_ms", ":"), ("parallel_ms", "-"), ("sequential_ms", "-")):
            curve(ax, panel, "remaining", key, style, marker="o", ms=3, label=key[:-3])
    draw_panels("paths", of_model(points), draw, named, ylabel="restoring, ms", **REMAINING)


def draw_rules(points):
    """What each rule leaves to the two ways back: how uneven, predicted and measured; then how long."""
    panels = groups([p | {"storage": f"planned for {p['read_gbps']:g} GB/s" if p["simulated"] else "this machine"} for p in points],
                    "shape", "type", "ctx", "storage")

    def title(shape, kind, ctx, storage):
        return f"{named(shape, kind, ctx)}\n{storage}"

    def drawing(predicted, measured):
        def draw(ax, panel):
            for (rule,), of_rule in groups(panel, "rule").items():
                color = "C0" if rule == "exact" else "C1"
                curve(ax, of_rule, "remaining", predicted, "--", color=color, marker="o", ms=3, label=f"{rule}, predicted")
                curve(ax, of_rule, "remaining", measured, "-", color=color, marker="s", ms=3, label=f"{rule}, measured")
        return draw
    draw_panels("rules-balance", panels, drawing("predicted_imbalance", "imbalance"), title, **REMAINING | {
        "ylabel": "time of one way that the other idles", "ylim": (0, 1.05)})
    draw_panels("rules-time", panels, drawing("predicted_restore_ms", "restore_ms"), title, ylabel="restoring, ms", **REMAINING)


def draw_orders(points):
    levels = groups(points, "shape", "type", "ctx", "remaining")
    series = {order: [next((p["ttft_ms"] for p in level if p["order"] == order), 0) for level in levels.values()]
              for order in ("backward", "forward", "random")}
    labels = [f"{named(shape, kind, ctx)}, {remaining} % remain" for shape, kind, ctx, remaining in levels]
    draw_bars("orders", labels, series, "time to first token, ms")


def draw_codecs(points, limits):
    labels = [f"{p['codec']}, {p['isa']}" for p in points]
    series = {"encode": [p["encode_gbps"] for p in points], "decode": [p["decode_gbps"] for p in points],
              "decode into fresh memory": [p.get("fresh_gbps", 0) for p in points]}
    draw_bars("codecs", labels, series, "GB/s of fp16 on one core; dashed: memory, all cores", limits.get("mem_gbps"))


def draw_overhead(points):
    labels = [f"{p['shape']} {p['type']} {p['test']}" for p in points]
    draw_bars("overhead", labels, {"plugin / stock": [p["ratio"] for p in points], "lowest pair": [p["ratio_low"] for p in points]},
              "ratio of tokens per second", 1)


def draw_attention(points):
    """Against the number of query rows: how much faster than ggml-cpu, and which part of what the machine could do."""
    points = [p | {"share": p["limit_ms"] / p["mz_ms"]} for p in points]
    panels = groups(points, "type", "heads", "kv_heads", "head_dim")

    def title(kind, heads, kv_heads, head_dim):
        return f"{kind or ''} heads {heads}/{kv_heads}, size {head_dim}".strip()

    def drawing(value, line):
        def draw(ax, panel):
            for (kv,), of_kv in groups(panel, "kv").items():
                curve(ax, of_kv, "rows", value, marker="o", ms=3, label=f"{kv} tokens")
            ax.set_xscale("log", base=2)
            ax.axhline(line, color="k", lw=0.8, ls="--")
        return draw
    draw_panels("attention", panels, drawing("speedup", 1), title, xlabel="rows", ylabel="ggml-cpu's time / ours", ylim=(0, None))
    draw_panels("attention-limit", panels, drawing("share", 0.5), title, xlabel="rows", ylabel="the machine's limit / our time",
                ylim=(0, 1.1))


def draw_longctx(points):
    """Stock llama.cpp beside the plugin, with nothing evicted."""
    def drawing(what):
        def draw(ax, panel):
            curve(ax, panel, "ctx", f"stock_{what}", marker="o", ms=3, label="stock")
            curve(ax, panel, "ctx", f"mz_{what}", marker="o", ms=3, label="plugin")
            lengths = sorted({p["ctx"] for p in panel})
            ax.set_xticks(lengths, [f"{length / 1024:g}k" for length in lengths])
        return draw
    panels = groups(points, "shape", "type")
    draw_panels("longctx-ttft", panels, drawing("ttft_ms"), "{} {}".format, xlabel="tokens of context", ylabel="time to first token, ms",
                xlim=(0, None), ylim=(0, None))
    draw_panels("longctx-tps", panels, drawing("tps"), "{} {}".format, xlabel="tokens of context", ylabel="tokens per second", xlim=(0, None),
                ylim=(0, None))


def draw_baselines(points):
    points = [p for p in points if "mz_ttft_ms" in p and p["baseline"] != "never-evicted"]
    for (baseline,), of_one in groups(points, "baseline").items():
        labels = [f"{named(p['shape'], p['type'], p['ctx'])}, {p['remaining']} % remain" for p in of_one]
        draw_bars(f"baseline-{baseline}", labels, {baseline: [p["ttft_ms"] for p in of_one],
                                                   "mzCache": [p["mz_ttft_ms"] for p in of_one]}, "time to first token, ms")


def draw_evict(points):
    labels = [f"{label_of(p)}: {p['what']}, {p['bytes'] / 1e6:.0f} MB" for p in points]
    draw_bars("evict", labels, {"time, ms": [p["ms"] for p in points]}, "evicting, ms")
    draw_bars("evict-memory", labels, {"memory beyond what it was before": [p["peak_extra_mib"] for p in points]}, "MiB")


def draw_stream(points):
    labels = [f"{label_of(p)}, limit {p['limit_percent']:.0f} %" for p in points]
    draw_bars("stream", labels, {"under the limit": [p["tps"] for p in points],
                                 "what reading allows": [p["tps_limit"] for p in points],
                                 "all in memory": [p.get("tps_warm", 0) for p in points]}, "tokens per second")


def draw_quality(points):
    labels = [f"{p['model']}, {p['codec']}, {p['cycles']} cycles" for p in points]
    draw_bars("quality", labels, {"perplexity, change in %": [100 * (p["ppl"] / p["ppl_ref"] - 1) for p in points],
                                  "greedy choices that differ, %": [100 * (1 - p["greedy_agree"]) for p in points]}, "%")


def draw_perplexity(points):
    labels = [f"{p['shape']} {p['type']}" for p in points]
    draw_bars("perplexity", labels, {who: [100 * (p[f"{who}_ppl"] / p["ref_ppl"] - 1) for p in points] for who in ("mz", "ggml")},
              "perplexity, off from exact arithmetic, %", 0)


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
    plots, ax = plt.subplots(figsize=(11, 3.6))
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
    swap = summary["swap"]
    draw_paths(swap["paths"])
    draw_rules(swap["rules"])
    draw_orders(swap["orders"])
    draw_codecs(swap["codecs"], summary["limits"])
    draw_overhead(summary["overhead"])
    draw_attention(summary["attn"])
    draw_longctx(summary["longctx"])
    draw_baselines(summary["baselines"])
    draw_evict(summary["evict"])
    draw_stream(summary["stream"])
    draw_quality(summary["quality"])
    draw_perplexity(summary["perplexity"])
    for point in summary["survival"]:
        path = OUT / f"survival-{point['config'].replace(' ', '-').replace('+', '-')}.jsonl"
        if "skipped" not in point and path.exists():
            draw_survival(path, f"{point['config']}: {point['survived']} of {point['rounds']} rounds survived, "
                                f"{point['answers_same']} answers as the first")
    return 0


if __name__ == "__main__":
    sys.exit(main())
