"""What an idle server pays for being watched: processor time and wake-ups of the plugin's threads, as the kernel counts them."""

import pathlib
import time


def threads(pid):
    """{thread number: (name, seconds on a processor, times it went to sleep)} of the plugin's threads."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith("mz-"):
            status = (task / "status").read_text()
            switches = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
            found[task.name] = (name, int((task / "schedstat").read_text().split()[0]) / 1e9, switches)
    return found


def watch(server, seconds):
    """Leaves the server alone for so long. {"seconds", "cpu_percent" (of one core), "wakeups_per_s", "threads"}"""
    before, begin = threads(server.pid), time.monotonic()
    time.sleep(seconds)
    after, took = threads(server.pid), time.monotonic() - begin
    assert before and before.keys() == after.keys(), (before, after)
    cpu = sum(after[t][1] - before[t][1] for t in after)
    switches = sum(after[t][2] - before[t][2] for t in after)
    return {"seconds": took, "cpu_percent": 100 * cpu / took, "wakeups_per_s": switches / took, "threads": len(after)}
