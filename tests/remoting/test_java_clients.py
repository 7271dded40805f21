"""Real Java clients, 4.9 and 5.5: one program against this node and a real broker says the same, and what its producers
stored is the same."""

from collections.abc import Iterator
from typing import Final

import pytest

from peers import rocketmq

from .conftest import RemotingNode
from .java_clients import VERSIONS, run, start_broker
from .stores import stored

LATE: Final = (b"delayed", b"timed", b"COMMIT_MESSAGE", b"UNKNOW")  # what comes to the topic behind the others


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


@pytest.mark.alone  # a real broker beside a node wants the CPUs
@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.slow), VERSIONS[-1]])
def test_a_real_producer_finds_no_difference_to_a_real_broker(
    version: str, node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    topic = f"producers-{version.replace('.', '-')}"
    theirs = run("Produce", version, real.address, topic, request.config)
    ours = run("Produce", version, f"127.0.0.1:{node.port}", topic, request.config)
    assert ours == theirs
    of_ours, of_theirs = stored(node.store.root, topic), stored(real.store, topic)
    assert set(LATE) <= of_ours.keys()
    assert of_ours == of_theirs


@pytest.mark.alone  # a real broker beside a node wants the CPUs
@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.slow), VERSIONS[-1]])
def test_real_consumers_find_no_difference_to_a_real_broker(
    version: str, node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    topic = f"consumers-{version.replace('.', '-')}"
    theirs = run("Consume", version, real.address, topic, request.config)
    ours = run("Consume", version, f"127.0.0.1:{node.port}", topic, request.config)
    assert not [line for line in ours if "false" in line]
    assert ours == theirs
