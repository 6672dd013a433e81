"""Runs the programs of the bench and gathers their figures; bench/run starts it.

Every figure is a line of bench/out/points.jsonl as soon as it is known: {"tier", "section", "key", "point"}. A job says which keys
it will give, and runs for those only that are missing. bench/out/summary.json is made of the lines at the end, and whenever
a run is broken off. Figures of a full run replace those of a quick one.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import jobs as of_models
import small
from jobs import ENVIRONMENT
from summary import OUT, POINTS, SUMMARY, read_points, summarise


def mend():
    """Ends a last line that was cut off, so that the next one begins on its own."""
    if POINTS.exists() and not POINTS.read_bytes().endswith(b"\n"):
        with open(POINTS, "a") as points:
            print(file=points)


def lines_of(words, log):
    """(section, key, point) of each line that the program prints."""
    with subprocess.Popen(words, env=dict(os.environ) | ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            for line in process.stdout:
                entry = json.loads(line)
                yield entry["section"], entry["key"], entry["point"]
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise RuntimeError(f"{shlex.join(words)} ended with {process.returncode}")


def run_job(job, tier, missing):
    log_path = OUT / "log" / f"{job.name.replace('/', '-').replace(' ', '-')}.log"
    mend()
    with open(log_path, "w") as log, open(POINTS, "a") as out:
        for section, key, point in job.gather(log) if job.gather else lines_of(job.words(missing), log):
            print(json.dumps({"tier": tier, "section": section, "key": key, "point": point}), file=out, flush=True)


def run_jobs(jobs, tier):
    """Names of the jobs that failed."""
    failed = []
    begin = datetime.datetime.now()
    for number, job in enumerate(jobs, 1):
        points = read_points()
        missing = [key for key in job.keys if (tier, job.section, key) not in points]
        if not missing:
            continue
        seconds = (datetime.datetime.now() - begin).seconds
        print(f"{seconds // 60:4d}:{seconds % 60:02d}  [{number}/{len(jobs)}] {job.name}", file=sys.stderr, flush=True)
        try:
            run_job(job, tier, missing)
        except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            print(f"{job.name}: {error}; its log is in {OUT / 'log'}", file=sys.stderr)
            failed.append(job.name)
    return failed


def main():
    parser = argparse.ArgumentParser(description="Measures mzCache on this machine.")
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--quick", action="store_true", help="a few points of each, about 10 minutes (the default)")
    tier.add_argument("--full", action="store_true", help="everything: hours")
    parser.add_argument("--only", metavar="SECTION", action="append", help="jobs whose name begins so")
    parser.add_argument("--fresh", action="store_true", help="measure again what has been measured")
    parser.add_argument("--list", action="store_true", help="name the jobs and end")
    args = parser.parse_args()
    name = "full" if args.full else "quick"
    jobs = [job for of in (of_models, small) for job in (of.full_jobs() if args.full else of.quick_jobs())]
    if args.only:
        jobs = [job for job in jobs if job.name.startswith(tuple(args.only))]
    if args.list:
        print("\n".join(job.name for job in jobs))
        return 0
    (OUT / "log").mkdir(parents=True, exist_ok=True)
    if args.fresh and POINTS.exists():
        POINTS.replace(POINTS.with_suffix(".old.jsonl"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = []
    try:
        failed = run_jobs(jobs, name)
    finally:
        summarise(name, failed)
    subprocess.run([sys.executable, pathlib.Path(__file__).with_name("plot.py"), SUMMARY], check=False)
    print(SUMMARY)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
