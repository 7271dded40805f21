"""Real push consumers of 5.5 that pop, their queues divided by the broker: as from a real broker."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from peers import rocketmq

from .conftest import RemotingNode
from .java_clients import start_broker
from .mqadmin import program
from .other_clients import make_topic

RUN_S: Final = 300.0
TOPIC: Final = "popped"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


def transcript(address: str, config: pytest.Config) -> list[str]:
    with TemporaryDirectory() as home:
        words = ["java", "-Drocketmq.client.logLevel=ERROR", "-Drocketmq.client.rebalance.waitInterval=1000"]
        words += [f"-Duser.home={home}", *program("Pop", config), address, TOPIC]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def test_push_consumers_that_pop_find_no_difference_to_a_real_broker(
    node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    addresses = [real.address, f"127.0.0.1:{node.port}"]
    for address in addresses:
        make_topic(address, TOPIC)
    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.map(lambda address: transcript(address, request.config), addresses)
    assert not [line for line in ours if "false" in line]
    assert ours == theirs
