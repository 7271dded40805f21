"""RocketMQ's Spring Boot starter: one application against this node and a real broker says the same, and what it stored
is the same."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from peers import rocketmq
from peers.jars import JavaMissing, class_path
from tests.requirements import need

from .conftest import RemotingNode
from .java_clients import start_broker
from .other_clients import make_topic
from .stores import Stored, stored

HERE: Final = Path(__file__).parent / "spring"
NEWEST: Final = ("2.3.5", "5.5.0")  # the starter, and the client: that of its own, 5.3.2, takes no synchronous request
OLD: Final = ("2.2.2", "4.9.3")  # the last one with a client of 4.9, its own
RUN_S: Final = 240.0
FLAGS: Final = ("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.logLevel=ERROR",
                "-Drocketmq.client.rebalance.waitInterval=1000")  # fmt: skip
OF_SPRING: Final = ("id", "timestamp")  # headers that Spring makes for each message
OF_A_REQUEST: Final = ("CORRELATION_ID", "REPLY_TO_CLIENT")
HEARD: Final = (
    "again heard [again 0, again 1]",
    "sql heard [number 1, number 2, number 3]",
    "transaction heard [transaction COMMIT, transaction UNKNOWN]",
    "all ran",
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


def classes(starter: str, client: str, config: pytest.Config) -> str:
    sources = sorted((HERE / "java").glob("*.java"))
    choices = [f"-Dstarter.version={starter}", f"-Dclient.version={client}"]
    try:
        return class_path(HERE / "pom.xml", choices, sources, config.cache.mkdir("remoting"))
    except JavaMissing as error:
        need({error.name: str(error)})
        raise


def run(class_path: str, address: str, topic: str) -> list[str]:
    """What the application prints."""
    make_topic(address, topic)
    with TemporaryDirectory() as home:
        words = ["java", *FLAGS, f"-Duser.home={home}", "-cp", class_path, "towline.remoting.Application"]
        done = subprocess.run([*words, address, topic], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def kept(store: Path, topic: str) -> Stored:
    """What a log holds of a topic, without what each run and each message has for itself."""
    left_out = {*OF_SPRING, *OF_A_REQUEST}
    return {
        body: (flag, sys_flag, {name: value for name, value in pairs.items() if name not in left_out})
        for body, (flag, sys_flag, pairs) in stored(store, topic).items()
    }


def check(starter: str, client: str, node: RemotingNode, real: rocketmq.RocketmqNode, config: pytest.Config) -> None:
    topic = f"spring-{starter.replace('.', '-')}"
    needed = classes(starter, client, config)
    with ThreadPoolExecutor() as pool:
        ours, theirs = pool.map(lambda address: run(needed, address, topic), (f"127.0.0.1:{node.names}", real.address))
    assert set(HEARD) <= set(ours)
    assert ours == theirs
    of_ours, of_theirs = kept(node.store.root, topic), kept(real.store, topic)
    assert b"whole" in of_ours
    assert of_ours == of_theirs


def test_an_application_finds_no_difference_to_a_real_broker(
    node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    check(*NEWEST, node, real, request.config)


@pytest.mark.slow
def test_an_application_of_the_old_line_finds_no_difference_to_a_real_broker(
    node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    check(*OLD, node, real, request.config)
