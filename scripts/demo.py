#!/usr/bin/env python3
"""The demo behind ./demo: one question about a document, asked cold, warm and after everything was evicted."""

import argparse
import json
import os
import sys

import server as house

QUESTION = "What must the keeper do first when the fog horn fails?"
ANSWER_TOKENS = 40


def prompt():
    document = (house.ROOT / "tests" / "data" / "lighthouse.txt").read_text()
    return (f"<|im_start|>user\nRead this handbook.\n\n{document}\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")


def mib(size):
    return size / house.MIB


def say(text=""):
    print(text, flush=True)


def ask(server, text, title):
    answer = server.stream(text, ANSWER_TOKENS)
    timings = answer["timings"]
    say(f"  {title:<34} {answer['ttft_ms']:8.0f} ms to the first token; {timings['cache_n']} of "
        f"{answer['tokens_evaluated']} prompt tokens were kept")
    return answer


def run(server, text):
    say(f"Asking about a document of {len(server.tokenize(text))} tokens: \"{QUESTION}\"")
    loading_ms = (server.ready - server.started) * 1000
    cold = ask(server, text, f"cold (loading took {loading_ms:.0f} ms)")
    warm = ask(server, text, "warm")
    before = server.anonymous()
    report = server.evict("100%")
    evicted = server.anonymous()
    say(f"  mzcache evict 100%                 {report['ms']:8.0f} ms; memory of llama-server (RssAnon + VmSwap): "
        f"{mib(before):.1f} -> {mib(evicted):.1f} MiB, reported {mib(report['freed_bytes']):.1f} MiB freed")
    restored = ask(server, text, "after evicting everything")
    say(f"\nThe answer, before and after:\n  {warm['content'].strip()!r}\n  {restored['content'].strip()!r}\n")
    return {
        "answer_same": bool(warm["tokens"]) and warm["tokens"] == restored["tokens"],
        "cache_n": restored["timings"]["cache_n"],
        "prefix_n": restored["tokens_evaluated"],
        "rss_anon_before_mib": mib(before),
        "rss_anon_evicted_mib": mib(evicted),
        "freed_reported_mib": mib(report["freed_bytes"]),
        "ttft_warm_ms": warm["ttft_ms"],
        "ttft_restored_ms": restored["ttft_ms"],
        "ttft_cold_ms": loading_ms + cold["ttft_ms"],
    }


def judge(figures):
    fell = figures["rss_anon_before_mib"] - figures["rss_anon_evicted_mib"]
    checks = [
        ("the restored answer is the warm one, token by token", figures["answer_same"]),
        ("nothing of the prompt was computed again but its last token", figures["cache_n"] == figures["prefix_n"] - 1),
        ("the kernel confirms at least 95 % of what was reported freed",
         figures["freed_reported_mib"] > 0 and fell >= 0.95 * figures["freed_reported_mib"]),
    ]
    for text, good in checks:
        say(f"  {'yes' if good else 'NO '}  {text}")
    return all(good for _, good in checks)


def main():
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--model", default=str(house.MODELS / "smollm2-135m.gguf"), help="a GGUF file with a ChatML template")
    args = parser.parse_args()
    say(f"Starting an unmodified llama-server with {os.path.basename(args.model)} on the device MZ0")
    with house.Server(args.model, context=4096) as server:
        figures = run(server, prompt())
    if args.json:
        with open(args.json, "w") as out:
            json.dump(figures, out, indent=2)
            out.write("\n")
    return 0 if judge(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
