"""A command that names a node which is not there, or no node of Towline's, says so in a moment, once."""

import json
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.nodes import free_port
from towline.cli.endpoints import REACH_MS
from towline.cli.main import run

from .test_node_commands import TOWLINE

LIMIT_S = REACH_MS / 1000 + 6  # 3 s on a machine with nothing else to do; a client waits for 10 s, a producer for 30
COMMANDS = (
    ("put", "orders", "hello"),
    ("get", "orders"),
    ("topic", "list"),
    ("topic", "create", "orders"),
    ("group", "list"),
    ("query", "--id", "0" * 32),
    ("transaction", "list"),
    ("master", "status"),
    ("stats",),
    ("config", "get"),
    ("config", "set", "broker_permission=4"),
)
CLUSTER = """
name = "gone"
[[group]]
name = "a"
[[group.node]]
id = 0
port = {port}
store = "a-0"
"""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nobody_listens_there(words, capsys):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    assert run([*words, "--endpoint", endpoint]) == 1
    assert time.monotonic() - began < LIMIT_S
    said = capsys.readouterr().err
    assert f"no answer from {endpoint} within" in said
    assert said.count("no answer") == said.count("nobody listens there") == 1


def test_no_node_of_a_cluster_is_there(tmp_path, capsys):
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.format(port=free_port()))
    began = time.monotonic()
    assert run(["put", "orders", "hello", "--endpoint", f"cluster:{file}"]) == 1
    assert time.monotonic() - began < LIMIT_S
    assert "nobody listens there" in capsys.readouterr().err


@pytest.mark.parametrize("words", COMMANDS[-4:], ids=" ".join)
@pytest.mark.parametrize("several", ["tcp://127.0.0.1:9,tcp://127.0.0.1:10", "cluster:a.toml", "etcd:http://e:1/name"])
def test_what_is_of_one_node_is_asked_of_no_several(words, several, capsys):
    assert "several may answer there" in refusal(capsys, *words, "--endpoint", several)


class _Redis(socketserver.BaseRequestHandler):
    """Answers whatever it is sent as a Redis does that does not know the command."""

    def handle(self) -> None:
        while self.request.recv(4096):
            self.request.sendall(b"-ERR unknown command\r\n")


class _Mute(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(4096):
            pass


@contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """The port of a server of another kind."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence of a command that fails in time."""
    began = time.monotonic()
    assert run(list(words)) == 1
    assert time.monotonic() - began < LIMIT_S
    said = capsys.readouterr().err
    assert said.count("\n") == said.count("towline: ") == 1, said
    return said


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_host_that_does_not_resolve(words, capsys):
    said = refusal(capsys, *words, "--endpoint", "tcp://no-such-host.invalid:10911")
    assert "the host 'no-such-host.invalid' has no address" in said


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("handler", "what"), [(_Redis, "what listens there is no Towline node"), (_Mute, "it does not answer our greeting")]
)
def test_a_port_of_something_else(words, handler, what, capsys):
    with serving(handler) as port:
        assert what in refusal(capsys, *words, "--endpoint", f"tcp://127.0.0.1:{port}")


SMALL = ("MAPPED_FILE_SIZE_COMMIT_LOG=4194304", "MAX_HASH_SLOT_NUM=1000", "MAX_INDEX_NUM=10000")


@pytest.fixture(scope="module")
def deposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The endpoints of a node that was master, and whose slave was promoted."""
    with pytest.MonkeyPatch.context() as patch:
        runtime = tempfile.mkdtemp(prefix="tl-", dir="/dev/shm")
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        for setting in SMALL:
            patch.setenv(*f"TOWLINE_{setting}".split("="))
        home: Path = tmp_path_factory.mktemp("cluster")
        file = str(home / "cluster.toml")
        assert run(["cluster", "init", "-f", file, "--groups", "1", "--slaves", "1"]) == 0
        subprocess.run([*TOWLINE, "cluster", "up", "-f", file], check=True, timeout=200)  # its nodes outlive it
        facts = {store.name: json.loads((store / "run" / "node.json").read_text()) for store in home.glob("stores/*")}
        [slave] = (name for name, fact in facts.items() if fact["role"] == "slave")
        [master] = facts.keys() - {slave}
        assert run(["promote", "--store", str(home / "stores" / slave)]) == 0
        yield facts[master]["endpoints"]
        assert run(["cluster", "down", "-f", file]) == 0
        shutil.rmtree(runtime)


@pytest.mark.parametrize("words", [COMMANDS[0], ("topic", "create", "another")], ids=" ".join)
def test_a_master_that_was_replaced_names_the_new_one_and_that_address_works(words, deposed, capsys):
    said = refusal(capsys, *words, "--endpoint", deposed["remoting"][0])
    assert "NOT_MASTER" in said
    [address] = re.findall(r"which takes them at (tcp://\S+);", said)
    assert "give that address" in said
    assert run([*words, "--endpoint", address]) == 0


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_port_for_nodes(words, deposed, capsys):
    [port] = (endpoint for endpoint in deposed["ha"] if endpoint.startswith("tcp://"))
    said = refusal(capsys, *words, "--endpoint", port)
    assert "speaks ZeroMQ, as nodes do with each other" in said or "breaks the connection off" in said
