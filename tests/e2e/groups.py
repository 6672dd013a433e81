"""Memory cgroups that tests make, and who lives in them."""

import os
import pathlib
import subprocess
import sys

import server as house

PARENTS = (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup"))      # of version 1 and 2


def make():
    """A group of our own, or None where none can be made."""
    for parent in PARENTS:
        group = Group(parent / f"mzcache-test-{os.getpid()}")
        try:
            group.folder.mkdir()
        except OSError:
            continue
        if group.has_limit():
            return group
        group.folder.rmdir()
    return None


class Group:
    def __init__(self, folder):
        self.folder = folder
        self.v1 = folder.is_relative_to(PARENTS[0])
        self.limit_file = "memory.limit_in_bytes" if self.v1 else "memory.max"

    def has_limit(self):
        return (self.folder / self.limit_file).exists()

    def limit(self, amount):
        (self.folder / self.limit_file).write_text(str(amount))

    def never_swap(self):
        """In version 2: what is in memory stays there, also on a machine with swap."""
        if (self.folder / "memory.swap.max").exists():      # a kernel may have none
            (self.folder / "memory.swap.max").write_text("0")

    def figures(self, file):
        return dict(line.split() for line in (self.folder / file).read_text().splitlines())

    def usage(self):
        """Without page cache, which the kernel takes back by itself."""
        return int(self.figures("memory.stat")["total_rss" if self.v1 else "anon"])

    def taken(self):
        """What the kernel takes back last, if at all, as mzCache counts it: everything but page cache."""
        taken = int((self.folder / ("memory.usage_in_bytes" if self.v1 else "memory.current")).read_text())
        stat = self.figures("memory.stat")
        return taken - sum(int(stat["total_" * self.v1 + key]) for key in ("inactive_file", "active_file"))

    def kills(self):
        return int(self.figures("memory.oom_control" if self.v1 else "memory.events").get("oom_kill", 0))

    def child(self, name):
        """A group in this one, which must have no process itself (version 2)."""
        (self.folder / "cgroup.subtree_control").write_text("+memory")
        child = Group(self.folder / name)
        child.folder.mkdir()
        return child

    def remove(self):
        house.wait_for(lambda: not (self.folder / "cgroup.procs").read_text(), 60, "the group's processes end")
        self.folder.rmdir()


def enter(group):
    """What a shell does to be in the group."""
    return f"echo $$ > {group.folder}/cgroup.procs && exec"


def start_in(group, server):
    """Starts the server inside the group."""
    script = server.runtime + "/enter"
    pathlib.Path(script).write_text(f"#!/bin/sh\n{enter(group)} \"$@\"\n")
    os.chmod(script, 0o755)
    server.command = [script, *server.command]
    server.start()


HOG = """
import sys
held = []
for line in sys.stdin:                       # a number of MiB to hold from now on, in all
    want = int(line)
    while len(held) < want:
        held.append(bytearray(b"x" * (1 << 20)))
    del held[want:]
    print(len(held), flush=True)
"""


class Hog:
    def __init__(self, group):
        self.process = subprocess.Popen(["/bin/sh", "-c", f"{enter(group)} {sys.executable} -c '{HOG}'"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=dict(os.environ, MALLOC_MMAP_THRESHOLD_="65536"))

    def want(self, mib):
        """Without waiting until it has it."""
        print(mib, file=self.process.stdin, flush=True)

    def hold(self, mib):
        self.want(mib)
        assert self.process.stdout.readline().strip() == str(mib), "the hog was killed"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(60)
