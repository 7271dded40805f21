"""A client that nobody closed holds nothing up: not a collection, not the program's exit, not a child of a fork."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from tests.processes.dropping import KINDS, PRODUCERS, TOPIC, WAYS, WAYS_OF_PRODUCERS
from tests.processes.nodes import TestNode, check_nothing_is_left, ending, free_port
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer

LIMIT_S: Final = 150


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Endpoints of a node that is the only group of a cluster, too."""
    root = tmp_path_factory.mktemp("dropped")
    port = free_port()
    node = TestNode("master", root / "node", flush_disk_type="ASYNC_FLUSH", ha_listen_port=0, listen_port=port)
    rows = ['name = "DefaultCluster"', "[[group]]", 'name = "broker-a"', "[[group.node]]", "id = 0", 'store = "node"']
    rows += [f"listen_port = {port}", f"ha_listen_port = {free_port()}"]
    (root / "cluster.toml").write_text("\n".join(rows))
    put = serve = f"tcp://127.0.0.1:{port}"
    with ending(node):
        node.start()
        with Producer(put) as producer:
            producer.send(Message(TOPIC, b"the first"))
        files = next(each for each in node.facts["endpoints"]["serve"] if each.startswith("ipc"))
        cluster = f"cluster:{root / 'cluster.toml'}"
        yield {"put": put, "serve": serve, "ring": node.endpoint, "files": files, "cluster": cluster}
        assert node.stop()
        check_nothing_is_left(node)


def run(told: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Killed, with TimeoutExpired, where it waits."""
    program = [sys.executable, "-m", "tests.processes.dropping", json.dumps(told)]
    return subprocess.run(
        program, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=Path(__file__).parents[3]
    )


@pytest.mark.parametrize(("client", "way"), [*product(KINDS, WAYS), *product(PRODUCERS, WAYS_OF_PRODUCERS)], ids=str)
def test_a_client_that_nobody_closes_holds_nothing_up(given: dict[str, str], client: str, way: str):
    done = run(given | {"client": client, "way": way})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "ResourceWarning" not in done.stderr, done.stderr
    with Consumer(given["serve"], TOPIC) as consumer:
        assert consumer.poll(10_000), "the node serves others"
