"""Servers as systemd starts them."""

import os
import pathlib
import pwd
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / name) for name in ("scripts", "tests/e2e")]
import server as house  # noqa: E402

USER = pwd.getpwnam("tester")
RUNTIME = f"/run/user/{USER.pw_uid}"
MODEL = house.MODELS / "tiny-moe-q4_0.gguf"       # quantised: what it computes is mostly whole numbers, which can be emulated well enough


class Unit(house.Server):
    """One llama-server that is a unit of the system, or of the user `tester`."""

    def __init__(self, name, user=False):
        super().__init__(MODEL, plugin=False)
        self.name, self.user = name, user
        self.env = dict(os.environ, MZ_RUNTIME_DIR=f"{RUNTIME}/mzcache" if user else "/run/mzcache-llama")

    def systemctl(self, *words):
        as_user = ["runuser", "-u", USER.pw_name, "--", "env", f"XDG_RUNTIME_DIR={RUNTIME}"] if self.user else []
        command = [*as_user, "systemctl", *(["--user"] if self.user else []), *words]
        return subprocess.check_output(command, text=True).strip()

    def set_property(self, assignment):
        """Until the machine ends: also for units of that name that are started later."""
        self.systemctl("set-property", "--runtime", self.name, assignment)

    def show(self, what):
        return self.systemctl("show", "--value", "-p", what, self.name)

    def start(self):
        self.systemctl("daemon-reload")
        self.systemctl("start", self.name)
        try:
            house.wait_for(self._ready, house.READY_S, f"{self.name} is ready")
        except TimeoutError as error:
            raise RuntimeError(f"{error}:\n{self.log()}") from None

    def _ready(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    @property
    def pid(self):
        return int(self.show("MainPID"))

    @property
    def group(self):
        """The folder of its cgroup."""
        return pathlib.Path("/sys/fs/cgroup", self.show("ControlGroup").lstrip("/"))

    def stop(self):
        self.systemctl("stop", self.name)

    def log(self):
        match = f"_SYSTEMD_{'USER_' if self.user else ''}UNIT={self.name}"
        return subprocess.check_output(["journalctl", "--no-pager", "-o", "cat", "-n", "50", match], text=True)

    def sources(self):
        """{name: figures} of the sources of memory pressure that are live."""
        return {source["name"]: source for source in self.status()["pressure"]["sources"] if source["live"]}


def write(path, text, owner=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    subprocess.check_call(["chown", "-R", str(owner), path.parent])


def user_unit(lines=""):
    """The packaged unit, changed by the lines of a drop-in."""
    unit = Unit("mzcache-llama@tiny.service", user=True)
    config = pathlib.Path(USER.pw_dir, ".config")
    write(config / "mzcache" / "tiny.env", f"MODEL={MODEL}\nPORT={unit.port}\nARGS=-t 1 -c 2048 -np 1\nMZ_HOLD=0s\n", USER.pw_uid)
    write(config / "systemd" / "user" / "mzcache-llama@.service.d" / "test.conf", f"[Service]\n{lines}\n", USER.pw_uid)
    return unit


def system_unit():
    """A llama-server that was a service of the system before mzCache came, with the packaged drop-in."""
    unit = Unit("llama-server.service")
    file = pathlib.Path("/run/systemd/system", unit.name)
    write(file, f"[Service]\nEnvironment=MZ_HOLD=0s\n"
                f"ExecStart=/usr/local/bin/llama-server -m {MODEL} --port {unit.port} -t 1 -c 2048 -np 1 -ngl 99 --no-webui\n")
    write(pathlib.Path(f"{file}.d", "mzcache.conf"), pathlib.Path("/usr/share/doc/mzcache/examples/mzcache.conf").read_text())
    return unit
