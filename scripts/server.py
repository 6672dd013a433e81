"""An unmodified llama-server with mzCache in it, as the demo, the end-to-end tests and the bench use it.

    with Server(model) as server:
        server.complete("Once upon a time", n_predict=16)
        server.mzcache("evict", "100%")

Only the standard library is needed. Where things are comes from the environment, with these defaults:
    MZ_CACHE   ~/.cache/mzcache
    MZ_BUILD   build/release of this tree
    MZ_LLAMA   what scripts/llama.sh prints
    MZ_MODELS  $MZ_CACHE/models
"""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("MZ_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mzcache")
BUILD = pathlib.Path(os.environ.get("MZ_BUILD") or ROOT / "build" / "release")
MODELS = pathlib.Path(os.environ.get("MZ_MODELS") or CACHE / "models")
MIB = 1 << 20
READY_S = 300   # generous: a machine that is busy with other things is slow, not broken
ANSWER_S = 600


def llama():
    """The folder of the llama.cpp build."""
    folder = os.environ.get("MZ_LLAMA")
    if not folder:
        folder = subprocess.check_output([ROOT / "scripts" / "llama.sh"], text=True).strip()
        os.environ["MZ_LLAMA"] = folder
    return pathlib.Path(folder)


def program(name):
    return llama() / "bin" / name


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def process_memory(pid):
    """Anonymous memory of a process in bytes, as the kernel counts it: what it holds and what was swapped out."""
    fields = {}
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in ("RssAnon", "VmSwap", "RssFile", "VmRSS"):
            fields[key] = int(value.split()[0]) << 10
    return fields


def wait_for(condition, seconds, what):
    """Polls until the condition holds and returns what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Server:
    """One llama-server. `plugin` false: stock, without mzCache. `run_options`: options of `mzcache run`."""

    def __init__(self, model, *args, plugin=True, env=None, run_options=(), threads=2, context=4096, log=None,
                 stock_args=("-ngl", "99")):
        self.port = free_port()
        self.plugin = plugin
        self.runtime = tempfile.mkdtemp(prefix="mz-run-")
        self.log_path = log or os.path.join(self.runtime, "server.log")
        # What is measured is what a test asks for, not what the watcher of memory pressure does beside it.
        self.env = dict(os.environ, MZ_RUNTIME_DIR=self.runtime, MZ_PRESSURE="off", OMP_WAIT_POLICY="passive")
        self.env.update(env or {})
        command = [program("llama-server"), "-m", model, "--host", "127.0.0.1", "--port", str(self.port), "--no-webui",
                   "-t", str(threads), "-c", str(context), "-np", "1", *stock_args, *args]
        if plugin:
            command = [BUILD / "bin" / "mzcache", "run", *run_options, "--", *command]
        else:
            command += ["-dev", "none"]
        self.command = [str(word) for word in command]
        self.process = None

    # --- life ---

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.started = time.monotonic()
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT)
        try:
            wait_for(self._ready, READY_S, "llama-server is ready")
        except BaseException:
            self.stop()
            raise
        self.ready = time.monotonic()

    def _ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(self.command)}\nended with {self.process.returncode}:\n{self.log()[-4000:]}")
        try:
            return self.get("/health", timeout=5)[0] == 200
        except OSError:
            return False

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    # --- HTTP ---

    def request(self, method, path, body=None, timeout=ANSWER_S):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def get(self, path, timeout=60):
        return self.request("GET", path, timeout=timeout)

    def post(self, path, **body):
        status, answer = self.request("POST", path, body)
        if status != 200:
            raise RuntimeError(f"POST {path}: {status} {answer}\n{self.log()[-2000:]}")
        return answer

    def tokenize(self, text):
        return self.post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def complete(self, prompt, n_predict=32, **options):
        """A whole answer at temperature 0. Adds `tokens` (ids) and `timings` with `cache_n` and `prompt_n`."""
        return self.post("/completion", **self._question(prompt, n_predict, options))

    @staticmethod
    def _question(prompt, n_predict, options):
        return dict(prompt=prompt, n_predict=n_predict, temperature=0, return_tokens=True, cache_prompt=True) | options

    def stream(self, prompt, n_predict=32, **options):
        """Like complete(), with `ttft_ms`: from sending the request until the first token arrived."""
        body = self._question(prompt, n_predict, options) | {"stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        tokens, text, ttft_ms = [], "", None
        begin = time.monotonic()
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"/completion: {response.status} {response.read()[:500]}")
        event = {}
        for line in response:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                if line.startswith(b"error"):
                    raise RuntimeError(line.decode())
                continue
            event = json.loads(line[6:])
            if ttft_ms is None:
                ttft_ms = (time.monotonic() - begin) * 1000
            if not event.get("stop"):
                tokens += event.get("tokens", [])
                text += event.get("content", "")
        connection.close()
        return event | {"tokens": tokens, "content": text, "ttft_ms": ttft_ms}

    # --- mzCache ---

    def mzcache(self, *words, check=True):
        """Runs the command on this server. With --json among the words: what it printed, parsed."""
        command = [str(BUILD / "bin" / "mzcache"), *map(str, words)]
        done = subprocess.run(command, env=self.env, text=True, capture_output=True, timeout=ANSWER_S)
        if check and done.returncode:
            said = done.stdout + done.stderr + self.log()[-2000:]
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{said}")
        return json.loads(done.stdout) if check and "--json" in words else done

    def evict(self, amount="100%"):
        return self.mzcache("evict", amount, "--json")

    def status(self):
        return self.mzcache("status", "--json")

    def events(self):
        """What happened, the oldest first."""
        return [json.loads(line) for line in self.mzcache("log", "-j").stdout.splitlines()]

    def anonymous(self):
        """RssAnon + VmSwap in bytes."""
        memory = process_memory(self.pid)
        return memory["RssAnon"] + memory["VmSwap"]
