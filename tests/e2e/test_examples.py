"""Every example of the README, the guide and the man pages, run as it is written; the example program; a packed model.

A reader's shell stands in a folder with a model.gguf and has mzcache and llama.cpp's programs in its PATH. Lines that start a server
have it started; the lines after it find that one. What a reader would replace is replaced, nothing else."""

import fcntl
import os
import pathlib
import pty
import re
import shlex
import subprocess
import sys
import tarfile
import termios
import textwrap

import pytest
import server as house
import talk
from conftest import model_path

MODEL = "smollm2-135m"
DOCS = house.ROOT / "docs"
GUIDE = (DOCS / "guide.md").read_text()

# Lines that cannot run here, and what is tested in their place.
ELSEWHERE = {
    "./demo": "a stage of ./check",
    "./check": "what runs this",
    "mkdir -p DIR/include": "scripts/llama.sh",
    "(cd /path/to/llama.cpp": "the same",
    "cmake -S . -B build": "scripts/release.sh, and test_another_project_finds_it",
    "cmake --build build": "the same",
    "systemctl --user enable": "test_the_unit_starts_a_server",
    "mzcache run -- python3 program.py": "test_python_example",
}


# --- the examples ---

def blocks(language, text=GUIDE):
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def unroff(line):
    for roff, plain in (("\\-", "-"), ("\\(aq", "'"), ("\\e", "\\")):
        line = line.replace(roff, plain)
    return line


def man_blocks(page):
    """What stands between .nf and .fi."""
    text = (DOCS / "man" / page).read_text()
    return ["\n".join(map(unroff, block.splitlines())) for block in re.findall(r"^\.nf\n(.*?)^\.fi", text, re.S | re.M)]


def readme_lines():
    return [line[4:] for line in (house.ROOT / "README.md").read_text().splitlines() if line.startswith("    ")]


DOCUMENTS = {
    "README": readme_lines(),
    "guide": "".join(blocks("sh")).splitlines(),
    "mzcache.1": man_blocks("mzcache.1")[-1].splitlines(),
    "mzcache-control.7": man_blocks("mzcache-control.7")[-1].splitlines(),
}


def test_nothing_has_no_example():
    """Every subcommand that --help lists is used in some example."""
    text = subprocess.run([house.BUILD / "bin" / "mzcache", "--help"], text=True, capture_output=True, check=True).stdout
    commands = set(re.findall(r"^  ([a-z]+) ", text, re.M))
    used = {words[1] for lines in DOCUMENTS.values() for words in map(str.split, lines) if words[:1] == ["mzcache"]}
    assert len(commands) > 10 and commands - {"option"} <= used, commands - used


# --- the reader ---

class Reader:
    def __init__(self, folder):
        self.folder, self.port = folder, house.free_port()
        self.server = self.follower = None
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        self.env = dict(
            os.environ, HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache"), XDG_RUNTIME_DIR=str(runtime),
            MZ_RUNTIME_DIR=str(runtime / "mzcache"), OMP_WAIT_POLICY="passive", LLAMA_ARG_PORT=str(self.port),
            LLAMA_ARG_CTX_SIZE="2048", LLAMA_ARG_THREADS="2", LLAMA_ARG_N_PREDICT="8",
            PATH=f"{house.BUILD / 'bin'}:{house.llama() / 'bin'}:{os.environ['PATH']}")
        self.place(MODEL)
        (folder / "chat").symlink_to(house.BUILD / "bin" / "chat")

    def place(self, model):
        link = self.folder / "model.gguf"
        link.unlink(missing_ok=True)
        link.symlink_to(model_path(model))

    def fill_in(self, line):
        """What the reader replaces: paths, and the number of a process."""
        line = line.replace("/path/to/model.gguf", str(self.folder / "model.gguf"))
        line = line.replace("/path/to/libggml-mz.so", str(house.BUILD / "bin" / "libggml-mz.so"))
        return line.replace("4711", str(self.server.pid)) if self.server else line

    def read(self, line):
        """Does what a line says."""
        if not shlex.split(line, comments=True) or any(line.startswith(start) for start in ELSEWHERE):
            return
        line = self.fill_in(line)
        if re.search(r"(run .*|MZ0 )llama-server", line) and "--dry-run" not in line:
            self.serve(line)
        elif "--follow" in line:
            self.follower = subprocess.Popen(["stdbuf", "-oL", "sh", "-c", line], cwd=self.folder, env=self.env, text=True,
                                             stdout=subprocess.PIPE)
            assert self.follower.stdout.readline() == "{\n"        # it follows before the server ends
        elif line.split("#")[0].strip() == "mzcache top":
            self.watch(line)
        else:
            self.run(line)

    def run(self, line):
        if "llama-bench" in line:
            self.place("tiny-llama")     # as written it takes minutes with a larger one
        leave = {"llama-cli": "/exit\n", "./chat": "Hello\n/quit\n"}
        words = next((words for program, words in leave.items() if program in line), "")
        done = subprocess.run(["sh", "-c", line], cwd=self.folder, env=self.env, input=words, text=True, errors="replace",
                              capture_output=True, timeout=house.ANSWER_S)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        self.place(MODEL)
        return done.stdout

    def serve(self, line):
        self.close()
        self.server = house.Server(self.folder / "model.gguf")
        self.server.port = self.port
        self.server.env = self.env
        # A bash that is given one simple command becomes it: the server's number is the one that was started.
        self.server.command = ["env", f"--chdir={self.folder}", "bash", "-c", line]
        self.server.start()
        assert self.server.complete("Once upon a time", n_predict=4)["content"]
        assert re.search(rf"^ *{self.server.pid} ", self.run("mzcache ps"), re.M), "started without mzCache"

    def watch(self, line):
        """On a terminal, until q is pressed."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("sh", ["sh", "-c", "exec " + line], dict(self.env, TERM="xterm"))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, b"\x28\0\x78\0\0\0\0\0")       # 40 lines of 120
        assert os.read(terminal, 1)
        os.write(terminal, b"q")
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:
            pass        # the other end is closed
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def close(self):
        if self.server:
            self.server.stop()
            self.server = None


@pytest.fixture
def reader(disk_path):
    reader = Reader(disk_path)
    yield reader
    reader.close()
    if reader.follower and reader.follower.poll() is None:
        reader.follower.kill()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_shell_examples(reader, document):
    if not any("llama-server" in line for line in DOCUMENTS[document]):
        reader.serve("mzcache run -- llama-server -m model.gguf")
    for line in DOCUMENTS[document]:
        reader.read(line)
    reader.close()
    if reader.follower:
        assert '"what": "evict"' in reader.follower.stdout.read()
        assert reader.follower.wait() == 0


def test_the_unit_starts_a_server(reader):
    """What systemd would do with the unit of a model, by hand."""
    unit = (house.ROOT / "packaging" / "systemd" / "mzcache-llama@.service").read_text()
    settings = " ".join(re.findall(r"^Environment=(.*)", unit, re.M)).replace("%%", "%")
    command = re.search(r"^ExecStart=(.*)", unit, re.M)[1]
    model = f"MODEL={reader.folder / 'model.gguf'} PORT={reader.port}"
    reader.serve(f"export {settings} {model}; exec {command}")
    assert reader.run("mzcache option idle").strip() == "600s:50%"


# --- Python ---

@pytest.fixture
def python(reader):
    """The reader's environment for Python: llama-cpp-python of the same source as llama.cpp, on its libraries."""
    archives = sorted((house.CACHE / "download").glob("llama_cpp_python-*.tar.gz"))
    if not archives:
        pytest.skip("the source package of llama-cpp-python is not there: llama.cpp was not built by scripts/llama.sh")
    with tarfile.open(archives[-1]) as archive:
        members = [member for member in archive if re.match(r"[^/]+/llama_cpp/", member.name)]
        archive.extractall(reader.folder, members=members)
    reader.env.update(PYTHONPATH=str(reader.folder / archives[-1].name.removesuffix(".tar.gz")),
                      LLAMA_CPP_LIB_PATH=str(house.llama() / "bin"),
                      PATH=f"{pathlib.Path(sys.executable).parent}:{reader.env['PATH']}")
    return reader


def test_python_example(python):
    example, = blocks("python")
    program = example + textwrap.dedent("""
        import subprocess
        def answer():
            return llm("Once upon a time", max_tokens=12, temperature=0)["choices"][0]["text"]
        answer()
        warm = answer()      # the prompt is kept from here on
        done = subprocess.run(["mzcache", "evict", "--json", "100%"], text=True, capture_output=True)
        print(done.stdout, done.stderr, flush=True)
        assert answer() == warm and warm
        """)
    (python.folder / "program.py").write_text(program)
    said = python.run("mzcache run -- python3 program.py")
    freed = re.search(r'"freed_bytes":(\d+)', said)
    assert freed and int(freed[1]) > 50 * house.MIB, said


# --- C, and CMake ---

OWN_C = """
#include <stdio.h>
#include <mzcache-llama.h>

static void hide_and_show(void)
{{
{hide}
}}

static void by_registry(void)
{{
{registry}
    struct mz_report report;
    if (evict(1 << 20, &report) == 0)
        printf("freed %llu\\n", (unsigned long long)report.freed_bytes);
}}

int main(int argc, char **argv)
{{
{load}
    struct llama_model *model = llama_model_load_from_file(argv[argc - 1], params);
    struct llama_context *ctx = llama_init_from_model(model, llama_context_default_params());
    llama_token token = 1;
    mz_status_fn status = (mz_status_fn)mz_llama_find("mz_status");
    struct mz_state state;

    if (llama_decode(ctx, llama_batch_get_one(&token, 1)) != 0)
        return 1;
    by_registry();
    hide_and_show();
    if (llama_decode(ctx, llama_batch_get_one(&token, 1)) != 0 || status(&state) < 0)
        return 2;
    printf("total %llu\\n", (unsigned long long)state.total_bytes);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}}
"""

OWN_CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(own C)
find_package(mzcache REQUIRED)
file(WRITE "${CMAKE_BINARY_DIR}/plugin" "${mzcache_PLUGIN}")
add_executable(own own.c)
target_include_directories(own PRIVATE "${LLAMA}/include")
target_link_directories(own PRIVATE "${LLAMA}/bin")
target_link_libraries(own PRIVATE mzcache::headers llama ggml ggml-base)
set_target_properties(own PROPERTIES BUILD_RPATH "${LLAMA}/bin")
"""


def test_another_project_finds_it(reader):
    """The guide's and the man page's C, built by a project that finds what was installed."""
    load, hide = blocks("c")
    own = reader.folder / "own"
    own.mkdir()
    (own / "own.c").write_text(OWN_C.format(load=load, hide=hide, registry=man_blocks("mzcache.h.3")[1]))
    (own / "CMakeLists.txt").write_text(OWN_CMAKE)
    reader.run(f"cmake --install {house.BUILD} --prefix {own}/installed")
    reader.run(f"cmake -S own -B own/build -DLLAMA={house.llama()} -DCMAKE_PREFIX_PATH={own}/installed "
               "-DCMAKE_C_FLAGS='-std=c11 -Wall -Wextra -Werror'")
    reader.run("cmake --build own/build")
    plugin = (own / "build" / "plugin").read_text()
    assert plugin.startswith(str(own / "installed")) and pathlib.Path(plugin).exists()
    said = reader.run(f"GGML_BACKEND_PATH={plugin} own/build/own model.gguf")
    assert int(re.search(r"freed (\d+)", said)[1]) >= house.MIB
    assert int(re.search(r"total (\d+)", said)[1]) > 50 * house.MIB


# --- the example program, a packed model ---

def chat(questions, folder):
    command = [house.BUILD / "bin" / "mzcache", "run", "--quiet", "--", house.BUILD / "bin" / "chat", model_path(MODEL), "16"]
    env = dict(os.environ, MZ_RUNTIME_DIR=str(folder / "run"), MZ_PRESSURE="off", OMP_WAIT_POLICY="passive")
    done = subprocess.run(command, input="\n".join(questions) + "\n", env=env, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_chat_hides_and_comes_back(disk_path):
    first, second = "What is the capital of France?", "And of Italy?"
    plain = chat([first, second, "/quit"], disk_path)
    hidden = chat([first, "/hide", "/status", "/show", second, "/quit"], disk_path)
    assert "MiB back" in hidden
    answers = [line for line in hidden.splitlines() if not line.startswith("> [")]
    assert answers == plain.splitlines()


def test_packed_model_answers_the_same(disk_path):
    packed = disk_path / "packed.gguf"
    prompt = "Once upon a time"
    with house.Server(model_path(MODEL)) as plain:
        plain.mzcache("pack", model_path(MODEL), packed)
        cold, warm = talk.see(plain, prompt), talk.see(plain, prompt)
    with house.Server(packed) as server:
        assert talk.see(server, prompt) == cold
        server.evict("100%")
        assert talk.see(server, prompt) == warm
