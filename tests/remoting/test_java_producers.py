"""Real Java producers, 4.9 and 5.5: one program against this node and a real broker says the same, and what they
stored is the same."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from peers import rocketmq
from peers.jars import JavaMissing, class_path
from peers.plan import Setup
from peers.server import HOST, Missing
from tests.interop.releases import POM
from tests.requirements import need
from towline.errors import MalformedRecord
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, decode

from .conftest import RemotingNode
from .reading import bodies

VERSIONS: Final = ("4.9.8", "5.5.0")
SOURCES: Final = sorted((Path(__file__).parent / "java").glob("*.java"))
RUN_S: Final = 180.0
LATE: Final = (b"delayed", b"timed", b"COMMIT_MESSAGE", b"UNKNOW")  # what comes to the topic behind the others
# Each store has a value of its own, or what is left of the way to a delivery is each broker's own (docs/rocketmq.md).
OWN: Final = ("UNIQ_KEY", "CLUSTER", "TIMER_OUT_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS")
LEFT_OVER: Final = ("TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID", "__transactionId__", "TRANSACTION_CHECK_TIMES")
VARYING: Final = frozenset((*OWN, *LEFT_OVER, "TRAN_PREPARED_QUEUE_OFFSET"))
CHECKS: Final = "recallMessageEnable=true\ntransactionTimeOut=500\ntransactionCheckInterval=500\ntimerMaxDelaySec=60\n"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    """A name server and a broker of RocketMQ 5.5."""
    try:
        made = rocketmq.RocketmqNode(tmp_path_factory.mktemp("real"), Setup(), CHECKS)
    except (JavaMissing, Missing) as error:
        need({getattr(error, "name", "java"): str(error)})
        raise
    yield made
    made.end()


def produce(version: str, address: str, topic: str, cache: Path) -> list[str]:
    """What the program prints."""
    try:
        choices = ["-Drocketmq.module=rocketmq-client", f"-Drocketmq.version={version}"]
        classes = class_path(POM, choices, SOURCES, cache)
    except JavaMissing as error:
        need({error.name: str(error)})
        raise
    words = ["java", "-Drocketmq.client.logLevel=ERROR", "-cp", classes, "towline.remoting.Produce", address, topic]
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def records_of(store: Path) -> Iterator[Record]:
    """The records of a log, which is one segment."""
    (segment,) = sorted((store / "commitlog").glob("0*"))[:1]
    data, at = segment.read_bytes(), 0
    while int.from_bytes(data[at : at + 4], "big"):
        try:
            record = decode(data, at)
        except MalformedRecord:
            return
        yield record
        at += int.from_bytes(data[at : at + 4], "big")


def stored(store: Path, topic: str) -> dict[bytes, tuple[int, int, dict[str, str]]]:
    """Flag, SYSFLAG and properties of each message of a topic, by its body."""
    found = {}
    for record in records_of(store):
        if record.topic == topic.encode():
            pairs = decode_properties(record.properties)
            found[record.body] = (
                record.flag,
                record.sys_flag,
                {name: value for name, value in pairs.items() if name not in VARYING},
            )
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_producer_finds_no_difference_to_a_real_broker(
    version: str, node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    cache = request.config.cache.mkdir("remoting")
    topic = f"java-{version.replace('.', '-')}"
    theirs = produce(version, f"{HOST}:{real.address.rpartition(':')[2]}", topic, cache)
    ours = produce(version, f"{HOST}:{node.port}", topic, cache)
    assert ours == theirs
    seen = bodies(node, topic, len(ours))
    assert seen
    of_ours, of_theirs = stored(node.store.root, topic), stored(real.store, topic)
    assert set(LATE) <= of_ours.keys()
    assert of_ours == of_theirs
