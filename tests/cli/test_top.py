"""`towline top` shows what nodes do, in a terminal, in lines, and as documents."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.processes.nodes import Pair, ending, free_port
from towline.client.message import Message
from towline.client.producer import Producer
from towline.start import home

TOWLINE = [sys.executable, "-c", "from towline.start import main; main()"]
WAIT_S = 30.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"))
    for node in made.nodes:
        node.flags += ["--set", f"listen_port={free_port()}"]
    with ending(*made.nodes):
        made.start()
        yield made


def endpoints(pair: Pair) -> list[str]:
    return [node.facts["endpoints"]["remoting"][0] for node in pair.nodes]


def test_each_look_is_a_document_with_rates_since_the_one_before(pair: Pair) -> None:
    where = endpoints(pair)
    words = [*TOWLINE, "top", "--endpoint", ",".join(where), "--interval", "0.2", "--json"]
    with subprocess.Popen(words, cwd=home(), stdout=subprocess.PIPE, text=True) as top, Producer(where[0]) as producer:
        assert top.stdout is not None
        first = json.loads(top.stdout.readline())["nodes"]
        assert [(node["node"], node["status"]["role"]) for node in first] == [(where[0], "master"), (where[1], "slave")]
        assert [node["rates"] for node in first] == [{}, {}]
        seen = 0.0
        while not seen:
            assert producer.send(Message("orders", b"x" * 1000)).acknowledged
            master, _ = json.loads(top.stdout.readline())["nodes"]
            seen = master["rates"]["put"]
        assert master["status"]["positions"]["appended"] > 0
        assert sum(master["cpu"].values()) > 0
        top.send_signal(signal.SIGINT)
        top.communicate(timeout=30)
    assert top.returncode == 0


def test_a_node_that_is_not_there_is_shown_so_beside_the_others(pair: Pair) -> None:
    master = endpoints(pair)[0]
    words = [*TOWLINE, "top", "--endpoint", f"{master},tcp://127.0.0.1:1", "--rounds", "1"]
    done = subprocess.run(words, cwd=home(), capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith(master.removeprefix("tcp://"))]
    assert "master" in rows[0]
    assert "127.0.0.1:1: no answer" in done.stdout
    assert "nobody listens there" in done.stdout
    assert "put " in done.stdout, "its processes stand below"


def test_of_a_store_on_this_machine_nobody_is_asked(pair: Pair) -> None:
    store = str(pair.nodes[0].store.root)
    words = [*TOWLINE, "top", "--store", store, "--rounds", "2", "--interval", "0.2", "--json"]
    done = subprocess.run(words, cwd=home(), capture_output=True, text=True, timeout=WAIT_S)
    first, second = (json.loads(line)["nodes"][0] for line in done.stdout.splitlines())
    assert first["node"] == store
    assert set(second["rates"]) == {"put", "get", "bytes", "refused"}


def test_in_a_terminal_it_has_the_screen_for_itself_until_ctrl_c(pair: Pair) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    words = [*TOWLINE, "top", "--endpoint", ",".join(endpoints(pair)), "--interval", "0.2"]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "40"}
    with subprocess.Popen(words, cwd=home(), stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as top:
        os.close(theirs)
        try:
            shown = until(ours, b"memory", WAIT_S) + until(ours, b"process", WAIT_S)
            assert b"\x1b[?1049h" in shown, "the alternate screen"
            assert b"master" in shown
            assert b"slave" in shown
            top.send_signal(signal.SIGINT)
            rest = until(ours, b"\x1b[?1049l", WAIT_S)
            assert b"Traceback" not in rest
            assert top.wait(30) == 0
        finally:
            top.kill()
            os.close(ours)


def until(terminal: int, wanted: bytes, seconds: float) -> bytes:
    """What the terminal shows up to these bytes."""
    found, deadline = b"", time.monotonic() + seconds
    while wanted not in found:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, found[-2000:]
        assert time.monotonic() < deadline, found[-2000:]
        found += os.read(terminal, 65_536)
    return found
