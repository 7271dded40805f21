"""Clients of the gRPC protocol, by way of Apache's own proxy: the same from this node and a real broker."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from peers import rocketmq
from towline.format.remoting.codes import RequestCode

from .conftest import RemotingNode
from .java_clients import classes_of, start_broker
from .other_clients import make_topic, with_broker
from .proxies import Proxy, classes_of_proxy

RUN_S: Final = 400.0
CLIENT: Final = "5.0.8"
SOURCES: Final = sorted((Path(__file__).parent / "java" / "grpc").glob("*.java"))
TOPICS: Final = ("grpc", "grpc-fifo", "grpc-delay", "grpc-trans")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


def transcript(classes: str, endpoints: str) -> list[str]:
    with TemporaryDirectory() as home:
        words = ["java", f"-Duser.home={home}", f"-Drocketmq.log.root={home}", "-cp", classes, "towline.remoting.Grpc"]
        done = subprocess.run(
            [*words, endpoints, TOPICS[0]], capture_output=True, text=True, timeout=RUN_S, check=False
        )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def prepare(address: str) -> None:
    """Makes the topics, and the group that gets its messages in order."""
    for topic in TOPICS:
        make_topic(address, topic)
    body = json.dumps({"groupName": "GROUP-fifo", "consumeMessageOrderly": True}).encode()
    with with_broker(address) as broker:
        assert broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0


@pytest.mark.slow
@pytest.mark.timeout(3 * RUN_S)
def test_clients_of_grpc_find_no_difference_to_a_real_broker(
    node: RemotingNode, real: rocketmq.RocketmqNode, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    addresses = {"theirs": real.address, "ours": f"127.0.0.1:{node.port}"}

    classes = classes_of("rocketmq-client-java", CLIENT, SOURCES, request.config)
    proxies = classes_of_proxy(request.config)

    def run(side: str) -> list[str]:
        prepare(addresses[side])
        proxy = Proxy(tmp_path / side, addresses[side], proxies)
        try:
            return transcript(classes, proxy.endpoints)
        finally:
            proxy.end()

    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.map(run, addresses)
    assert ours == theirs
