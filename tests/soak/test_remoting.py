"""What real consumers find at a real broker of RocketMQ, which takes them minutes."""

from collections.abc import Iterator

import pytest

from peers import rocketmq
from tests.remoting.java_clients import CONSUMERS, VERSIONS, run, start_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_words_that_are_kept_are_those_of_a_real_broker(
    version: str, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    topic = f"consumers-{version.replace('.', '-')}"
    assert run("Consume", version, real.address, topic, request.config) == CONSUMERS.read_text().splitlines()
