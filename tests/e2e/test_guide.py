"""Every command of docs/guide.md, run as it is written; the example program; a packed model."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
import server as house
from conftest import model_path

MODEL = "smollm2-135m"
GUIDE = (house.ROOT / "docs" / "guide.md").read_text()


def commands():
    """The lines that begin with mzcache in the guide's shell blocks, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.S):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "mzcache":
                yield words[1:]


def replace(words, folder):
    """Names as a reader would replace them by their own."""
    names = {"llama-server": house.program("llama-server"), "model.gguf": model_path(MODEL),
             "model-packed.gguf": folder / "packed.gguf"}
    return [str(names.get(word, word)) for word in words]


def adapt(words):
    """What would not end by itself, or start another server, or take long, is shortened by an option of the same command."""
    extra = {"run": ["--dry-run"], "top": ["--count", "1"], "profile": ["--quick"]}.get(words[0], [])
    return words[:1] + extra + words[1:]


@pytest.fixture
def folder(tmp_path_factory):
    # Not in /tmp, which may lie in memory: the profile is measured there.
    path = house.CACHE / f"guide-{os.getpid()}"
    path.mkdir(parents=True, exist_ok=True)
    yield path
    shutil.rmtree(path)


def test_the_guide_has_commands():
    seen = {words[0] for words in commands()}
    assert seen >= {"doctor", "profile", "run", "ps", "evict", "status", "restore", "limit", "log", "top", "pack"}


def test_every_command_of_the_guide(start, folder):
    server = start(MODEL, env={"XDG_CACHE_HOME": str(folder), "MZ_PLUGIN": str(house.BUILD / "bin" / "libggml-mz.so")})
    server.complete("Once upon a time", n_predict=4)
    for words in commands():
        server.mzcache(*adapt(replace(words, folder)))
    assert server.complete("Once upon a time", n_predict=4)["content"]


def chat(questions, folder):
    command = [house.BUILD / "bin" / "mzcache", "run", "--quiet", "--", house.BUILD / "bin" / "chat", model_path(MODEL), "16"]
    env = dict(os.environ, MZ_RUNTIME_DIR=str(folder / "run"), MZ_PRESSURE="off", OMP_WAIT_POLICY="passive")
    done = subprocess.run(command, input="\n".join(questions) + "\n", env=env, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_chat_hides_and_comes_back(folder):
    first, second = "What is the capital of France?", "And of Italy?"
    plain = chat([first, second, "/quit"], folder)
    hidden = chat([first, "/hide", "/status", "/show", second, "/quit"], folder)
    assert "MiB back" in hidden
    answers = [line for line in hidden.splitlines() if not line.startswith("> [")]
    assert answers == plain.splitlines()


def test_packed_model_answers_the_same(start, folder):
    packed = folder / "packed.gguf"
    plain = start(MODEL)
    plain.mzcache("pack", model_path(MODEL), packed)
    expected = plain.complete("Once upon a time", n_predict=16, temperature=0)["tokens"]
    with house.Server(packed) as server:
        assert server.complete("Once upon a time", n_predict=16, temperature=0)["tokens"] == expected
        server.evict("100%")
        assert server.complete("Once upon a time", n_predict=16, temperature=0)["tokens"] == expected
