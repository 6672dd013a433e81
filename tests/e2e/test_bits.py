"""Bit-exact: logits of a program on libllama whose memory is evicted in every way, against the same program left alone.

One test for each model and scenario of mz-harness (tests/harness), also with its memory evicted by another thread at random. ctest
runs the harness as well; these tests run it in the build in which evicted memory is inaccessible, and with the sanitizers."""

import os
import re
import subprocess

import pytest
import server as house
from conftest import model_path

HARNESS = house.BUILD / "tests" / "mz-harness"
SCENARIOS = re.findall(r'\{\.name = "([\w-]+)"', (house.ROOT / "tests" / "harness" / "scenarios.c").read_text())
TINY = ["tiny-llama", "tiny-llama-q4_0", "tiny-moe", "tiny-moe-q4_0", "tiny-mla", "tiny-hybrid"]
REAL = ["smollm2-135m", "gemma3-270m"]

pytestmark = [pytest.mark.bits, pytest.mark.trap]


def harness(model, scenario, *options):
    command = [HARNESS, house.BUILD / "bin" / "libggml-mz.so", model_path(model), "--second", model_path("tiny-llama-q4_0"),
               *options, scenario]
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=1800,
                          env=dict(os.environ, OMP_WAIT_POLICY="passive", MZ_PRESSURE="off", MZ_CONTROL="off",
                                   ASAN_OPTIONS="detect_leaks=0"))   # ggml frees what it keeps for good at no time
    reason = re.search(rf"^skip {scenario}: (.*)$", done.stdout, re.M)
    if reason:
        pytest.skip(f"{model}: {reason[1]}")
    assert done.returncode == 0 and f"ok {scenario}\n" in done.stdout, (done.stdout + done.stderr)[-6000:]


@pytest.mark.parametrize("model, scenario", [(model, scenario) for model in TINY for scenario in SCENARIOS
                                             if scenario != "lora" or model == "tiny-llama"])   # one has an adapter
def test_small_models(model, scenario):
    harness(model, scenario, "--brief")


@pytest.mark.parametrize("model", REAL)
def test_real_models(model):
    harness(model, "chat")


@pytest.mark.long
@pytest.mark.parametrize("model, scenario", [(model, scenario) for model in REAL for scenario in SCENARIOS
                                             if scenario != "lora" or model == "smollm2-135m"])
def test_real_models_in_every_scenario(model, scenario):
    harness(model, scenario)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
@pytest.mark.parametrize("model", TINY)
def test_small_models_with_other_seeds(model, seed):
    harness(model, "turns", "--seed", seed)
