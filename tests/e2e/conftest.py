"""Shared by the end-to-end tests: the real programs with the plugin, started by scripts/server.py.

Servers are started once per set of options and module, since loading is most of a test's time. A test gets one whose memory is
all back and that has no limit; what its cache holds is whatever the tests before have asked."""

import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import groups  # noqa: E402
import server as house  # noqa: E402

MODEL_OPTIONS = {
    "smollm2-135m": [],
    "gemma3-270m": ["--swa-full"],   # a sliding window keeps no prefix otherwise
}


def model_path(name):
    path = house.MODELS / f"{name}.gguf"
    assert path.exists(), f"{path} is missing: scripts/bootstrap.sh all makes it"
    return path


@pytest.fixture(scope="module")
def start():
    """start(model, *args, **options) -> a running Server, shared by the tests of a module that ask for the same."""
    running = {}

    def get(model, *args, **options):
        key = (model, args, repr(sorted(options.items())))
        if key in running and running[key].process.poll() is not None:
            running.pop(key).stop()      # it died in an earlier test, which has failed for that
        if key not in running:
            server = house.Server(model_path(model), *MODEL_OPTIONS.get(model, []), *args, **options)
            server.start()
            running[key] = server
        elif running[key].plugin:
            running[key].mzcache("limit", "off")
            running[key].mzcache("restore", "--wait")
        return running[key]

    yield get
    for server in running.values():
        server.stop()


@pytest.fixture
def disk_path():
    """A folder on a disk: pytest's own lies in /tmp, which may be in memory, where a swap file is refused and every file is page
    cache."""
    folder = tempfile.mkdtemp(prefix="test-", dir=house.CACHE)
    yield pathlib.Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def group():
    """A memory cgroup of our own: .limit(bytes), .usage(), .taken(), .kills()."""
    group = groups.make()
    if not group:
        pytest.skip("no memory cgroup can be made here")
    yield group
    group.remove()


@pytest.fixture(scope="session")
def document():
    return (house.ROOT / "tests" / "data" / "lighthouse.txt").read_text()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """A failed test shows the end of its servers' logs."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, house.Server):
                report.sections.append(("server log", value.log()[-3000:]))
