"""A small machine inside this one, for what happens when memory runs out, with nothing at risk but what was started in it.

Memory is a memory cgroup with a limit. Programs believe it, since /proc is their own: /proc/meminfo is a file that is written
anew every 10 ms from what the cgroup says, as lxcfs does for containers, so a killer that reads it acts as on a machine of that
size. With cgroups of version 2, /proc/pressure/memory tells of the stalls inside only. Process numbers are their own, too: a killer
inside sees no process outside.

    small_machine.enter()                 starts this program once more, inside; needs root
    with Machine(2 << 30) as machine:
        server.command = machine.command(server.command)

Swap of half its size, in a zram device or a file of its own, lives as long as the machine. What compressed pages take is taken from
the memory.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

INSIDE = "MZ_SMALL_MACHINE"
MIB = 1 << 20
TICK_S = 0.01
TICKS_PER_RECORD = 10
SQUEEZED = 16 << 20

# Files of the memory controller in both versions of cgroups, what memory.stat calls page cache and anonymous memory, and the file in
# which 0 keeps a group out of swap, which is everybody's.
UNIFIED = "/sys/fs/cgroup"
VERSIONS = {
    "/sys/fs/cgroup/memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"), "total_rss", "memory.swappiness"),
    UNIFIED: ("memory.max", "memory.current", ("inactive_file", "active_file"), "anon", "memory.swap.max"),
}


def hierarchy():
    """The folder in which groups with a memory limit can be made, or None."""
    for root, (limit, *_) in VERSIONS.items():
        name = pathlib.Path(root, f"mz-probe-{os.getpid()}")
        try:
            name.mkdir()
        except OSError:
            continue
        has_limit = (name / limit).exists()
        name.rmdir()
        if has_limit:
            return root
    return None


def why_not():
    """What is missing here to make a small machine; None: nothing."""
    if os.geteuid() != 0:
        return "needs root, for a memory cgroup and a /proc of its own"
    if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        return "this system allows no own process numbers and mounts (unshare)"
    if not hierarchy():
        return "no memory cgroup can be made here"
    return None


def why_no_swap(kind):
    """What is missing here for swap in "zram" or in a "file"; None: nothing."""
    if kind == "zram" and not pathlib.Path("/sys/class/zram-control/hot_add").exists():
        return "this kernel has no zram"
    if not shutil.which("mkswap") or not shutil.which("swapon"):
        return "mkswap and swapon are not installed"
    return None


UNSHARE = ("unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=SIGTERM")


def enter():
    """Starts this program again inside; returns when it is. It ends in order, and takes back what it made, when whoever started it
    goes away."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.environ.get(INSIDE) != "1":
        os.environ[INSIDE] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv])


def inside(group, words):
    """The command that starts these words in a cgroup."""
    return ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh", *map(str, words)]


def remove_group(group):
    """Waits for the last process, which may still be leaving."""
    for _ in range(500):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(TICK_S)


class Zram:
    """Swap in a zram device of its own."""

    def __init__(self, size):
        number = pathlib.Path("/sys/class/zram-control/hot_add").read_text().strip()
        self.number, self.device, self.folder = number, f"/dev/zram{number}", pathlib.Path(f"/sys/block/zram{number}")
        try:
            with contextlib.suppress(OSError):
                (self.folder / "comp_algorithm").write_text("zstd")      # else the kernel's first choice
            (self.folder / "disksize").write_text(str(size))
            if not os.path.exists(self.device):
                major, minor = (self.folder / "dev").read_text().split(":")
                os.mknod(self.device, 0o600 | 0o060000, os.makedev(int(major), int(minor)))
            subprocess.run(["mkswap", self.device], check=True, capture_output=True)
            subprocess.run(["swapon", "-p", "100", self.device], check=True, capture_output=True)
        except BaseException:
            self.remove()
            raise

    def algorithm(self):
        return (self.folder / "comp_algorithm").read_text().split("[")[1].split("]")[0]

    def used(self):
        """(bytes swapped out, bytes that they take compressed)"""
        plain, _, taken, *_ = map(int, (self.folder / "mm_stat").read_text().split())
        return plain, taken

    def remove(self):
        subprocess.run(["swapoff", self.device], capture_output=True)
        with contextlib.suppress(OSError):
            (self.folder / "reset").write_text("1")
        with contextlib.suppress(OSError):
            pathlib.Path("/sys/class/zram-control/hot_remove").write_text(self.number)


class SwapFile:
    """Swap in a file."""

    def __init__(self, size, folder):
        self.path = pathlib.Path(folder, "swap")
        with open(self.path, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            os.posix_fallocate(file.fileno(), 0, size)
        subprocess.run(["mkswap", self.path], check=True, capture_output=True)
        subprocess.run(["swapon", "-p", "100", self.path], check=True, capture_output=True)

    def used(self):
        """(bytes swapped out, memory that they take)"""
        for line in pathlib.Path("/proc/swaps").read_text().splitlines():
            if line.startswith(f"{self.path} "):
                return int(line.split()[3]) << 10, 0
        return 0, 0

    def remove(self):
        subprocess.run(["swapoff", self.path], capture_output=True)
        self.path.unlink()


class Machine:
    """A machine of `size` bytes, with swap in "zram", in a "file" in `folder`, or none. Records are appended to `trace` (JSON lines) ten times a second:
    seconds, available and taken memory, and RssAnon of the processes in `watched` ({name: pid})."""

    def __init__(self, size, swap=None, folder=None, trace=None):
        self.size, self.swap_size, self.watched = size, size // 2 if swap else 0, {}
        self.swap_kind, self.swap_folder, self.swap = swap, folder, None
        self.root = hierarchy()
        self.limit_file, self.usage_file, self.cache_keys, self.anon_key, self.no_swap_file = VERSIONS[self.root]
        self.folder = pathlib.Path(self.root, f"mz-small-{os.getpid()}-{time.monotonic_ns()}")
        self.mounted = []
        self.trace = open(trace, "w") if trace else None
        self.lock = threading.Lock()         # the trace
        self.begin = time.monotonic()
        self.done, self.squeezing = threading.Event(), False

    # --- life ---

    def __enter__(self):
        self.folder.mkdir()
        self.limit(self.size)
        try:
            self.make_swap()
            self.meminfo = tempfile.NamedTemporaryFile("r+b", buffering=0, prefix="mz-meminfo-")
            self.write_meminfo()
            self.mount(self.meminfo.name, "/proc/meminfo")
            if self.root == UNIFIED and (self.folder / "memory.pressure").exists():
                self.mount(self.folder / "memory.pressure", "/proc/pressure/memory")
        except BaseException:
            self.remove()
            raise
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.meminfo.close()
        self.remove()
        if self.trace:
            self.trace.close()

    def make_swap(self):
        if self.swap_kind:
            self.swap = Zram(self.swap_size) if self.swap_kind == "zram" else SwapFile(self.swap_size, self.swap_folder)
        elif (self.folder / self.no_swap_file).exists():
            (self.folder / self.no_swap_file).write_text("0")

    def mount(self, file, place):
        subprocess.run(["mount", "--bind", file, place], check=True)
        self.mounted.append(place)

    def remove(self):
        for place in self.mounted:
            subprocess.run(["umount", place], check=True)
        if self.swap:
            self.swap.remove()
        remove_group(self.folder)

    def command(self, words):
        """The command that starts these words inside."""
        return inside(self.folder, words)

    # --- figures ---

    def limit(self, size):
        """Version 1 refuses a limit while the rest cannot be taken back. Version 2 kills to get there, so it is not asked to."""
        if self.root == UNIFIED:
            size = max(size, int((self.folder / self.usage_file).read_text()))
        with contextlib.suppress(OSError):
            (self.folder / self.limit_file).write_text(str(size))

    def reclaim(self):
        """Takes back what can be taken just now."""
        if self.root != UNIFIED:
            self.limit(SQUEEZED)
            return
        with contextlib.suppress(OSError):       # EAGAIN: there was not that much
            (self.folder / "memory.reclaim").write_text(str(self.size))

    def squeeze(self):
        """Takes back what can be taken, as a hog would that wants everything."""
        self.squeezing = True
        for _ in range(3):       # what was touched a moment ago leaves at the second look
            self.reclaim()
        self.limit(self.size)
        self.squeezing = False

    def figures(self):
        """(bytes available, bytes taken, bytes of page cache, bytes of anonymous memory, bytes of swap used) now."""
        taken = int((self.folder / self.usage_file).read_text())
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        cache = sum(int(stat[key]) for key in self.cache_keys)
        swapped, compressed = self.swap.used() if self.swap else (0, 0)
        taken += compressed
        return max(0, self.size - max(0, taken - cache)), taken, cache, int(stat[self.anon_key]), swapped

    def available(self):
        return self.figures()[0]

    def write_meminfo(self):
        available, taken, cache, anon, swapped = self.figures()
        rows = (("MemTotal", self.size), ("MemFree", max(0, self.size - taken)), ("MemAvailable", available), ("Buffers", 0),
                ("Cached", cache), ("SwapCached", 0), ("AnonPages", anon), ("SwapTotal", self.swap_size),
                ("SwapFree", self.swap_size - swapped))
        os.pwrite(self.meminfo.fileno(), "".join(f"{name + ':':<15} {size >> 10:>11} kB\n" for name, size in rows).encode(), 0)
        return available, taken, swapped

    def run(self):
        ticks = 0
        while not self.done.wait(TICK_S):
            available, taken, swapped = self.write_meminfo()
            if self.swap and not self.squeezing:
                self.limit(self.size - self.swap.used()[1])
            if ticks % TICKS_PER_RECORD == 0:
                self.note(available=available, taken=taken, swapped=swapped,
                          **{name: anonymous(pid) for name, pid in list(self.watched.items())})
            ticks += 1

    def note(self, **what):
        """Appends a record: figures, or event="..."."""
        if self.trace:
            with self.lock:
                print(json.dumps({"s": round(time.monotonic() - self.begin, 3)} | what), file=self.trace, flush=True)


def anonymous(pid):
    """RssAnon in bytes; 0 when it is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0
