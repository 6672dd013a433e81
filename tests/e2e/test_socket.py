"""The control socket of a living server against strangers, rubbish and crowds."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import pytest
import server as house
import talk

MODEL = "tiny-llama"
LIMIT_BYTES = 64 << 10


class Client:
    """A connection by hand."""

    def __init__(self, server, patience=60):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(patience)
        self.socket.connect(path_of(server))
        self.file = self.socket.makefile("rb")

    def line(self):
        return json.loads(self.file.readline())

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

    def ask(self, **request):
        self.send(request)
        return self.line()

    def close(self):
        self.file.close()
        self.socket.close()


def path_of(server):
    return os.path.join(server.runtime, f"{server.pid}.sock")


@pytest.fixture
def server(start):
    server = start(MODEL)
    yield server
    assert server.process.poll() is None
    assert server.status()["program"] == "llama-server"      # whatever came, the next client is served


@pytest.mark.quick
def test_greeting_and_requests(server):
    client = Client(server)
    greeting = client.line()
    assert greeting["protocol"] >= 1 and greeting["pid"] == server.pid and greeting["mzcache"]
    assert client.ask(cmd="status")["ok"]
    assert not client.ask(cmd="no such command")["ok"]
    assert not client.ask(cmd="evict")["ok"]
    assert not client.ask(cmd="evict", bytes=-1)["ok"]
    assert not client.ask(cmd="evict", percent=101)["ok"]
    assert client.ask(cmd="status")["ok"]
    client.close()


@pytest.mark.parametrize("rubbish", [b"\n", b"}{\n", b"\x00\xff\xfe\n", b"[1,2]\n", b"null\n", b'{"cmd":5}\n', b"[" * 5000 + b"\n",
                                     b'{"cmd":"evict","bytes":1e999}\n', b'{"cmd":"status"\n'])
def test_rubbish_is_answered_or_dropped(server, rubbish):
    client = Client(server)
    client.line()
    client.send(rubbish)
    answer = client.file.readline()
    assert answer == b"" or not json.loads(answer)["ok"]
    client.close()


def test_a_line_without_an_end(server):
    """64 KiB are the most; whoever sends more is told so and dropped."""
    client = Client(server)
    client.line()
    try:
        client.send(b"x" * (2 * LIMIT_BYTES))
    except OSError:
        pass                             # it was dropped while we still wrote
    else:
        answer = client.file.readline()
        assert answer == b"" or not json.loads(answer)["ok"]
    client.close()


def test_half_messages(server):
    """A request in pieces is answered; one that never ends hurts nobody."""
    silent = Client(server)
    silent.line()
    silent.send(b'{"cmd":"sta')
    client = Client(server)
    client.line()
    for byte in b'{"cmd":"status"}\n':
        client.send(bytes([byte]))
    assert client.line()["ok"]
    assert server.status()["pid"] == server.pid
    silent.close()
    client.close()


def test_two_requests_in_one_piece(server):
    client = Client(server)
    client.line()
    client.send(b'{"cmd":"brief"}\n{"cmd":"status"}\n')
    assert client.line()["ok"] and client.line()["ok"]
    client.close()


def test_who_asks_and_leaves(server):
    for _ in range(20):
        client = Client(server)
        client.send({"cmd": "status"})
        client.close()


def test_a_slow_reader(server):
    """Someone who asks much and reads nothing does not keep others waiting."""
    slow = Client(server)
    slow.socket.settimeout(2)
    try:
        for _ in range(2000):
            slow.send({"cmd": "status"})
    except OSError:
        pass                             # our own end is full
    assert server.status()["pid"] == server.pid
    slow.close()


def test_a_thousand_clients(server):
    """In turn and at once: those beyond the table wait in the queue, and all that ask are answered."""
    idle, refused = [], 0
    for _ in range(100):
        try:
            idle.append(Client(server, patience=10))
        except OSError:
            refused += 1
    assert server.status()["pid"] == server.pid
    for client in idle:
        client.close()
    for _ in range(900):
        client = Client(server)
        client.line()
        client.close()
    assert len(idle) > 50
    house.wait_for(lambda: sum("socket" in os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in descriptors(server)) < 20, 60,
                   "the connections are closed")


def descriptors(server):
    for fd in os.listdir(f"/proc/{server.pid}/fd"):
        if os.path.lexists(f"/proc/{server.pid}/fd/{fd}"):
            yield fd


STRANGER = """
    import os, socket, sys
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(sys.argv[1])
    try:
        s.sendall(b'{"cmd":"evict","percent":100}\\n')
        data = s.recv(4096)
    except (BrokenPipeError, ConnectionResetError):
        data = b""
    sys.exit(0 if data == b"" else 1)
"""


def test_another_user_is_refused(server, document):
    """The folder keeps strangers out; where it did not, the peer's identity would."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    assert os.stat(server.runtime).st_mode & 0o077 == 0
    command = [sys.executable, "-c", textwrap.dedent(STRANGER), path_of(server)]
    talk.ask(server, document[:200], 4)
    shut = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "PermissionError" in shut.stderr
    before = server.status()["evictions"]
    try:
        os.chmod(server.runtime, 0o755)
        os.chmod(path_of(server), 0o666)
        opened = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        os.chmod(server.runtime, 0o700)
    assert opened.returncode == 0, opened.stderr
    assert server.status()["evictions"] == before


def test_the_log_shows_what_happened(server, document):
    talk.ask(server, document[:200], 4)
    server.evict("100%")
    server.mzcache("restore", "--wait")
    events = server.events()
    kinds = [event["what"] for event in events]
    assert "evict" in kinds and "restore" in kinds
    evict = [event for event in events if event["what"] == "evict" and event["bytes"] > 0][-1]  # earlier tests evict too
    assert evict["why"] == "mzcache evict" and evict["ms"] > 0 and evict["time_s"] > 1.6e9
    assert [event["number"] for event in events] == sorted(event["number"] for event in events)
