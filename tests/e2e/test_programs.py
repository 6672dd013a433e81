"""The other programs of llama.cpp, unmodified, compute on MZ0."""

import json
import os
import subprocess

import pytest
import server as house
from conftest import model_path

TINY = ["tiny-llama", "tiny-llama-q4_0", "tiny-moe", "tiny-moe-q4_0", "tiny-mla", "tiny-hybrid"]


def run(name, *args, env=None, timeout=600):
    command = [house.BUILD / "bin" / "mzcache", "run", "--quiet", "--", house.program(name), *map(str, args)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True, errors="replace", capture_output=True,
                          timeout=timeout, env=dict(os.environ, OMP_WAIT_POLICY="passive", **(env or {})))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def complete(model, *args):
    """The text. llama.cpp prints from a thread that it does not wait for (common/log.cpp leaks its logger), so the end of
    the output may be missing: it is whole when it ends with the two empty lines that come last."""
    for _ in range(20):
        text = run("llama-completion", "-m", model_path(model), "-p", "Once upon a time", "-n", 16, "--temp", 0,
                   "-no-cnv", "--ignore-eos", "-t", 2, "-c", 1024, *args).stdout
        if text.endswith("\n\n"):
            return text
    raise AssertionError("never whole: " + text)


@pytest.mark.quick
def test_completion_places_the_model_on_the_device():
    done = run("llama-completion", "-m", model_path("smollm2-135m"), "-p", "Hello", "-n", 4, "--temp", 0, "-no-cnv",
               "-t", 2, "-lv", 4)
    assert "MZ0" in done.stderr + done.stdout


def test_bench():
    done = run("llama-bench", "-m", model_path("tiny-llama"), "-dev", "MZ0", "-p", 32, "-n", 4, "-r", 1, "-t", 2, "-o", "json")
    tests = json.loads(done.stdout)
    assert len(tests) == 2 and all(test["avg_ts"] > 0 for test in tests)


def test_perplexity():
    text = house.ROOT / "tests" / "data" / "lighthouse.txt"
    done = run("llama-perplexity", "-m", model_path("smollm2-135m"), "-f", text, "-c", 256, "-t", 2)
    assert "Final estimate: PPL" in done.stdout + done.stderr


@pytest.mark.trap
@pytest.mark.parametrize("model", TINY)
def test_every_kind_of_model(model):
    assert complete(model) == complete(model)


@pytest.mark.parametrize("option", [("--lora", "tiny-llama-lora"), ("--control-vector", "tiny-llama-cvec")],
                         ids=lambda option: option[0])
def test_adapters_have_an_effect(option):
    plain, adapted = complete("tiny-llama"), complete("tiny-llama", option[0], model_path(option[1]))
    assert plain != adapted
