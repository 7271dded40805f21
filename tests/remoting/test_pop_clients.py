"""Real push consumers of 5.5 that pop, their queues divided by the broker: as from a real broker."""

import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from peers import rocketmq

from .conftest import RemotingNode
from .java_clients import classes_of, start_broker
from .other_clients import make_topic

SOURCES: Final = sorted((Path(__file__).parent / "java" / "pop").glob("*.java"))
RUN_S: Final = 300.0
STEPS: Final = ("all", "tagged", "shared", "failing", "forgotten")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


def transcript(classes: str, address: str, topic: str, steps: Sequence[str]) -> list[str]:
    with TemporaryDirectory() as home:
        words = ["java", "-Drocketmq.client.logLevel=ERROR", "-Drocketmq.client.rebalance.waitInterval=1000"]
        words += [f"-Duser.home={home}", "-cp", classes, "towline.remoting.Pop", address, topic, *steps]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.timeout(2 * RUN_S)
@pytest.mark.parametrize("steps", [("all", "failing"), pytest.param(STEPS, marks=pytest.mark.slow)])
def test_push_consumers_that_pop_find_no_difference_to_a_real_broker(
    steps: Sequence[str], node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    topic = f"popped-{len(steps)}"
    addresses = [real.address, f"127.0.0.1:{node.port}"]
    for address in addresses:
        make_topic(address, topic)
    classes = classes_of("rocketmq-tools", "5.5.0", SOURCES, request.config)
    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.map(lambda address: transcript(classes, address, topic, steps), addresses)
    assert not [line for line in ours if "false" in line]
    assert ours == theirs
