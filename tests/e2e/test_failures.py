"""When storage, files or the process fail: a clear message, nothing plausible but wrong, and the process lives where stock would."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
import server as house
import talk
from conftest import model_path

MODEL = "smollm2-135m"
LIBRARIES = house.llama() / "bin"


@pytest.fixture
def memory_disk(tmp_path):
    """mount(bytes) -> a folder in memory of that size."""
    mounted = []

    def mount(size, options=""):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=False)


# --- the swap folder ---

def evict_without_store(document, folder, *options, forced=False):
    """Evicts all and asks again, with a swap folder that cannot be used: weights go, the conversation stays. Returns the log."""
    run_options = ("--swap-folder", folder, *(("--swap-force", "on") if forced else ()))
    with house.Server(model_path(MODEL), *options, run_options=run_options, context=1024) as server:
        warm = talk.warm_up(server, document[:600])
        server.mzcache("evict", "100%", check=False)
        status = server.status()
        assert status["kinds"]["weights"]["dropped_bytes"] > 0.9 * status["kinds"]["weights"]["total_bytes"]
        assert status["kinds"]["kv"]["resident_bytes"] == status["kinds"]["kv"]["total_bytes"] > 0
        talk.assert_same(talk.ask(server, document[:600]), warm)
        return server.log()


def test_the_swap_folder_cannot_be_made(document):
    log = evict_without_store(document, "/proc/self/nowhere")
    assert "/proc/self/nowhere" in log


def test_the_swap_folder_is_read_only(document, memory_disk):
    folder = memory_disk("8m", ",ro")
    assert str(folder) in evict_without_store(document, folder, forced=True)


def test_the_swap_folder_lies_in_memory(document, memory_disk):
    """Evicting into memory frees nothing, so it is refused; who insists may."""
    folder = memory_disk("300m")
    assert str(folder) in evict_without_store(document, folder)
    options = ("--swap-folder", folder, "--swap-force", "on")
    with house.Server(model_path(MODEL), run_options=options, context=1024) as server:
        warm = talk.warm_up(server, document[:600])
        server.evict("100%")
        assert server.status()["kinds"]["kv"]["store_bytes"] > 0
        talk.assert_same(talk.ask(server, document[:600]), warm)


@pytest.mark.trap
def test_the_swap_folder_is_full(document, memory_disk):
    """What fits leaves, what does not stays in memory, and nothing is lost. The weights were not mapped: all of them are spilled."""
    folder = memory_disk("110m")      # of it 64 are left to others
    options = ("--swap-folder", folder, "--swap-force", "on")
    with house.Server(model_path("tiny-moe"), "--load-mode", "none", run_options=options, context=8192) as roomy:
        roomy.evict("100%")
        assert roomy.status()["kinds"]["weights"]["store_bytes"] > 20 * house.MIB
    with house.Server(model_path(MODEL), "--load-mode", "none", "--no-repack", run_options=options, context=1024) as server:
        warm = talk.warm_up(server, document[:600])
        server.mzcache("evict", "100%", check=False)
        status = server.status()
        assert 10 * house.MIB < status["kinds"]["weights"]["store_bytes"] < 60 * house.MIB
        assert status["kinds"]["weights"]["resident_bytes"] > 30 * house.MIB
        assert status["kinds"]["weights"]["lost_bytes"] == status["kinds"]["kv"]["lost_bytes"] == 0
        talk.assert_same(talk.ask(server, document[:600]), warm)
        assert str(folder) in server.log()


# --- the model file ---

@pytest.fixture
def own_model(disk_path):
    path = disk_path / "own.gguf"
    shutil.copy(model_path(MODEL), path)
    return path


def everything_on_the_device(path, **options):
    """Nothing of the file is mapped any more, so that damage to it cannot be a signal."""
    return house.Server(path, "-ot", "token_embd=MZ", context=1024, **options)


@pytest.mark.parametrize("damage", ["truncated", "changed in place"])
def test_the_model_file_is_damaged(document, own_model, damage):
    """The answer is an error that names tensor and file, the process lives, and no later answer is a guess."""
    with everything_on_the_device(own_model) as server:
        talk.ask(server, document[:300], 4)
        server.evict("100%")
        size = own_model.stat().st_size
        with open(own_model, "r+b") as file:
            if damage == "truncated":
                file.truncate(size // 2)
            else:
                for place in range(size // 2, size - 64, 1 << 16):
                    file.seek(place)
                    file.write(b"\xa5" * 64)
        for _ in range(2):
            code, answer = server.request("POST", "/completion", dict(prompt=document[:300], n_predict=4, temperature=0))
            assert code >= 400 and "error" in answer, answer
        assert server.process.poll() is None
        status = server.status()
        assert status["kinds"]["weights"]["lost_bytes"] > 0
        lines = [line for line in server.log().splitlines() if str(own_model) in line and "blk." in line]
        assert lines, server.log()[-3000:]
        assert any(event["what"] == "lost" for event in server.events())


def test_the_model_file_is_replaced(document, own_model):
    """The old file lives on until the process ends: an update does no harm."""
    with house.Server(own_model, context=1024) as server:
        warm = talk.warm_up(server, document[:600])
        other = own_model.with_suffix(".new")
        other.write_bytes(b"not a model")
        os.rename(other, own_model)
        server.evict("100%")
        talk.assert_same(talk.ask(server, document[:600]), warm)


# --- the process ---

def test_killed_in_the_middle(document, disk_path):
    """Nothing is left in the swap folder, not even while the process lives; the next one starts clean, in the same folders."""
    swap = disk_path / "swap"
    swap.mkdir()
    runtime = disk_path / "run"
    runtime.mkdir(mode=0o700)
    options = dict(run_options=("--swap-folder", swap), context=1024)
    answers = []
    for _ in range(2):
        server = house.Server(model_path(MODEL), **options)
        server.env["MZ_RUNTIME_DIR"] = str(runtime)
        try:
            server.start()
            answers.append(talk.ask(server, document[:600])["tokens"])
            server.evict("100%")
            assert server.status()["store_file_bytes"] > 0
            assert list(swap.iterdir()) == []
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(60)
            assert list(swap.iterdir()) == []
            assert server.mzcache("status", check=False).returncode == 3
        finally:
            server.stop()
    assert answers[0] == answers[1]


FORK = """
    import ctypes, os, sys
    ggml = ctypes.CDLL(sys.argv[1] + "/libggml.so", ctypes.RTLD_GLOBAL)
    base = ctypes.CDLL(sys.argv[1] + "/libggml-base.so", ctypes.RTLD_GLOBAL)
    for name in ("ggml_backend_load", "ggml_backend_dev_by_name"):
        getattr(ggml, name).restype = ctypes.c_void_p
    for name in ("ggml_backend_dev_buffer_type", "ggml_backend_buft_alloc_buffer"):
        getattr(base, name).restype = ctypes.c_void_p
    assert ggml.ggml_backend_load(sys.argv[2].encode())
    device = ctypes.c_void_p(ggml.ggml_backend_dev_by_name(b"MZ0"))
    kind = ctypes.c_void_p(base.ggml_backend_dev_buffer_type(device))
    assert base.ggml_backend_buft_alloc_buffer(kind, ctypes.c_size_t(1 << 20))
    mz = ctypes.CDLL(sys.argv[2])
    state = ctypes.create_string_buffer(4096)
    assert mz.mz_status(state) == 0
    child = os.fork()
    if child == 0:
        ok = mz.mz_status(state) == -10 and mz.mz_evict(ctypes.c_uint64(1), None) == -10     # ECHILD
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mz.mz_status(state) == 0
    print(os.getpid(), flush=True)
    sys.stdin.readline()
"""


def test_a_forked_child_is_left_alone(tmp_path):
    """The library is off in the child; the parent, its memory and its socket go on."""
    tmp_path.chmod(0o700)
    env = dict(os.environ, MZ_RUNTIME_DIR=str(tmp_path), LD_LIBRARY_PATH=str(LIBRARIES))
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(FORK), LIBRARIES, house.BUILD / "bin" / "libggml-mz.so"], env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        pid = process.stdout.readline().strip()
        assert pid, process.stderr.read()
        done = subprocess.run([house.BUILD / "bin" / "mzcache", "ps", "--all"], env=env, capture_output=True, text=True, timeout=60)
        assert pid in done.stdout, done.stdout + done.stderr
    finally:
        _, errors = process.communicate("\n", timeout=60)
    assert process.returncode == 0, errors


# --- every system call fails, one at a time ---

HARNESS = house.BUILD / "tests" / "mz-harness"
CALLS = ["read", "write", "mmap", "madvise", "populate", "open", "stat", "uring", "alloc", "thread"]


def run_with_fault(fault):
    """Exit status and output of a conversation with evictions, in which one system call of the library fails."""
    env = dict(os.environ, MZ_FAULT=fault, OMP_WAIT_POLICY="passive", LD_LIBRARY_PATH=str(LIBRARIES))
    done = subprocess.run([HARNESS, house.BUILD / "bin" / "libggml-mz.so", model_path("tiny-llama"), "--brief", "chat"], env=env,
                          capture_output=True, text=True, errors="replace", timeout=300)
    return done.returncode, done.stdout + done.stderr


def check_fault(fault):
    """It may fail, with a message; it may not crash, and what it computed is never different."""
    code, output = run_with_fault(fault)
    assert code >= 0, f"{fault}: signal {-code}\n{output[-3000:]}"
    assert "difference in" not in output, f"{fault}\n{output[-3000:]}"
    assert code == 0 or output.strip(), f"{fault}: failed without a word"


@pytest.mark.skipif(not HARNESS.exists(), reason="mz-harness was not built")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_fails(call):
    for nth in (1, 7, 60):
        check_fault(f"{call}:{nth}")


@pytest.mark.long
@pytest.mark.skipif(not HARNESS.exists(), reason="mz-harness was not built")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sticky", ["", ":sticky"], ids=["once", "from-then-on"])
def test_calls_fail_in_turn(call, sticky):
    error = {"read": "EIO", "write": "ENOSPC", "mmap": "ENOMEM", "madvise": "ENOMEM", "populate": "ENOMEM", "open": "EACCES",
             "stat": "EIO", "uring": "ENOSYS", "alloc": "ENOMEM", "thread": "EAGAIN"}[call]
    for nth in [*range(1, 40), *range(40, 400, 23)]:
        check_fault(f"{call}:{nth}:{error}{sticky}")
