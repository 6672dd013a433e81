"""Paging by the system: a stock server whose memory is squeezed out as far as it goes, and the time to its next first token.

    scripts/paging.py --model FILE --tokens N --swap zram|file [--runs N]

Weights are pages of the file, dropped and read again as they are touched; the conversation is anonymous memory that goes to swap.
Prints one line of JSON: ttft_ms, warm_ms, swapped_bytes, and compressed_bytes, what they took in zram; or `skipped` with a reason.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import server as house
import small_machine
import survival

MACHINE_MIB = 6144


def measure(args, machine):
    warm, cold, swapped, compressed = [], [], 0, 0
    server = house.Server(args.model, "--cache-ram", "0", plugin=False, context=args.tokens + 256, threads=args.threads)
    server.command = machine.command(server.command)
    with server:
        prompt = survival.question(server, args.tokens)
        server.stream(prompt, 1)
        for _ in range(args.runs):
            warm.append(server.stream(prompt, 1)["ttft_ms"])
            machine.squeeze()
            swapped, compressed = machine.swap.used()
            cold.append(server.stream(prompt, 1)["ttft_ms"])
    return {"ttft_ms": statistics.median(cold), "warm_ms": statistics.median(warm), "n": args.runs,
            "spread": max(cold) / min(cold), "swapped_bytes": swapped, "compressed_bytes": compressed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=2048, help="of the question")
    parser.add_argument("--swap", choices=("zram", "file"), required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    reason = small_machine.why_not() or small_machine.why_no_swap(args.swap)
    if reason:
        print(json.dumps({"skipped": reason}))
        return 0
    small_machine.enter()
    with tempfile.TemporaryDirectory(prefix="mz-paging-", dir=house.CACHE) as folder:
        args.model = survival.own_copy(args.model, folder)
        with small_machine.Machine(MACHINE_MIB << 20, args.swap, folder=folder) as machine:
            print(json.dumps(measure(args, machine)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
