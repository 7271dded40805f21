"""A command that names a node which is not there says so in a moment, once."""

import time

import pytest

from tests.processes.nodes import free_port
from towline.cli.endpoints import REACH_MS
from towline.cli.main import run

LIMIT_S = REACH_MS / 1000 + 6  # a client by itself waits for 10 s, a producer for 30
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
