"""Every kind of model, cache and graph that the real programs make: evicted and restored, the same to the last bit."""

import subprocess

import gguf
import pytest
import server as house
import talk
from conftest import model_path

SMALL, REAL = "tiny-llama", "smollm2-135m"
KINDS = {
    "transposed values": (REAL, "-fa", "off"),
    "transposed values, MLA": ("tiny-mla", "-fa", "off"),
    "quantised cache": (REAL, "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
    "cache outside": (REAL, "-ngl", "99", "-nkvo"),
    "half the layers": (REAL, "-ngl", "15"),
    "one layer, cache outside": (SMALL, "-ngl", "1", "-nkvo"),
    "everything on the device": (REAL, "-ot", "token_embd=MZ"),
    "read, not mapped": (REAL, "--load-mode", "none"),
    "direct I/O": (REAL, "--load-mode", "dio"),
    "not repacked": ("tiny-llama-q4_0", "--no-repack"),
    "adapter": (SMALL, "--lora", model_path("tiny-llama-lora")),
    "control vector": (SMALL, "--control-vector", model_path("tiny-llama-cvec")),
    "experts": ("tiny-moe",),
    "experts, packed": ("tiny-moe-q4_0",),
    "experts outside": ("tiny-moe", "--cpu-moe"),
    "MLA": ("tiny-mla",),
    "hybrid": ("tiny-hybrid",),
    "packed weights": ("tiny-llama-q4_0",),
    "packed weights, not mapped": ("tiny-llama-q4_0", "--load-mode", "none"),
    "sliding window": ("gemma3-270m",),
    "two threads more": (SMALL, "-t", "4"),
}
TRAP = {"transposed values", "transposed values, MLA", "quantised cache", "half the layers", "adapter", "experts", "experts, packed",
        "MLA", "hybrid", "packed weights", "read, not mapped"}


def conversation(document):
    """One prompt, asked again with everything gone, continued, and another one."""
    def script(server, disturb):
        seen = [talk.see(server, document[:700])]
        disturb(server)
        seen.append(talk.see(server, document[:700]))
        disturb(server)
        seen.append(talk.see(server, document[:900]))
        disturb(server)
        seen.append(talk.see(server, document[2000:2300]))
        return seen
    return script


def case(name):
    return pytest.param(name, marks=[pytest.mark.trap] if name in TRAP else [], id=name.replace(" ", "-").replace(",", ""))


@pytest.mark.parametrize("kind", [case(name) for name in KINDS])
def test_kind(document, kind):
    model, *args = KINDS[kind]
    offload = () if "-ngl" in args else ("-ngl", "99")
    seen = talk.assert_undisturbed(conversation(document), model, *args, levels=(0, 40, 0), stock_args=offload, context=1024)
    if model != "tiny-hybrid":       # recurrent state goes back to checkpoints only
        assert seen[1]["cached"] > 100


def test_a_draft_model(document):
    """Two models in one process: one ledger, and both are evicted."""
    draft = ("--spec-type", "draft-simple", "-md", model_path(REAL), "-devd", "MZ0", "-ngld", "99", "--spec-draft-n-max", "3")

    def script(server, disturb):
        seen = []
        for _ in range(2):
            seen.append(talk.ask(server, document[:250], 12)["tokens"])
            disturb(server)
        return seen

    with house.Server(model_path(REAL), *draft, context=1024) as server:
        assert server.status()["kinds"]["weights"]["total_bytes"] > 150 * house.MIB
        script(server, talk.leave_alone)
        report = server.evict("100%")
        assert report["freed_bytes"] > 150 * house.MIB
    talk.assert_undisturbed(script, REAL, *draft, context=1024)


def test_embeddings(document):
    def script(server, disturb):
        vectors = []
        for text in (document[:300], document[300:700], document[:300]):
            vectors.append(server.post("/embedding", content=text)[0]["embedding"])
            disturb(server)
        return vectors

    vectors = talk.assert_undisturbed(script, REAL, "--embedding", "--pooling", "mean", context=1024)
    assert vectors[0] == vectors[2] != vectors[1]


@pytest.mark.trap
def test_a_model_in_several_files(document, tmp_path):
    path = split(model_path(SMALL), tmp_path, 15)
    assert len(list(tmp_path.iterdir())) > 2

    def run(disturb):
        with house.Server(path, context=1024) as server:
            return conversation(document)(server, disturb)

    disturb = talk.Levels(0, 40, 0)
    assert run(disturb) == run(talk.leave_alone)
    assert all(freed > 0 for freed in disturb.freed)


def split(path, folder, tensors):
    """Writes the model again in files of so many tensors each; returns the first one's path."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(folder / "split.gguf", "llama", split_max_tensors=tensors)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.iterdir())[0]


def test_importance_matrix(tmp_path):
    """llama-imatrix looks at tensors between nodes: evictions there change nothing."""
    def run(name, storm):
        out, runtime = tmp_path / name, tmp_path / f"run-{name}"
        runtime.mkdir(mode=0o700)
        server = house.Server(model_path(REAL), env={"MZ_RUNTIME_DIR": str(runtime)})      # for its mzcache() only: never started
        command = [house.BUILD / "bin" / "mzcache", "run", "--quiet", "--", house.program("llama-imatrix"), "-m", model_path(REAL),
                   "-f", house.ROOT / "tests" / "data" / "lighthouse.txt", "-c", "128", "--chunks", "3", "-t", "2", "-o", out]
        process = subprocess.Popen(command, env=server.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        evictions = 0
        while storm and process.poll() is None and evictions < 100:
            evictions += server.mzcache("evict", "100%", "--json", check=False).returncode == 0
        _, log = process.communicate(timeout=600)
        assert process.returncode == 0, log[-2000:]
        return evictions, out.read_bytes()

    calm, disturbed = run("calm.gguf", False)[1], run("evicted.gguf", True)
    assert disturbed[0] > 0
    assert disturbed[1] == calm


@pytest.mark.trap
def test_two_servers_on_one_model(document):
    """Each has its own memory: one is evicted, the other does not notice."""
    with house.Server(model_path(REAL), context=1024) as first:
        with house.Server(model_path(REAL), context=1024, env={"MZ_RUNTIME_DIR": first.runtime}) as second:
            calm = [talk.see_warm(server, document[:600]) for server in (first, second)]
            rows = first.mzcache("ps").stdout
            assert str(first.pid) in rows and str(second.pid) in rows
            held = talk.held(second.pid)
            first.mzcache("evict", "100%", "--pid", first.pid)
            assert talk.held(first.pid) < 8 * house.MIB
            assert talk.held(second.pid) == held
            assert [talk.see(server, document[:600]) for server in (first, second)] == calm
            # Without a process named: all that is asked for, the longest idle one first.
            report = first.mzcache("evict", "10MiB").stdout
            assert str(first.pid) in report and talk.held(second.pid) == held


def test_lora_is_set_while_running(document):
    """An adapter loaded on the device is counted as other memory, and goes and comes with the rest."""
    with house.Server(model_path(REAL), "--lora", model_path("smollm2-135m-lora"), context=1024) as server:
        assert server.status()["kinds"]["other"]["total_bytes"] > 0
        with_it = talk.see_warm(server, document[:300])
        server.evict("100%")
        server.request("POST", "/lora-adapters", [{"id": 0, "scale": 0.0}])
        without = talk.see(server, document[:300])
        server.evict("100%")
        server.request("POST", "/lora-adapters", [{"id": 0, "scale": 1.0}])
        again = talk.see(server, document[:300])
    assert again == with_it and without["probabilities"] != with_it["probabilities"]
