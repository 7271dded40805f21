"""Real Java clients, 4.9 and 5.5: one program against this node and a real broker says the same, and what its producers
stored is the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from peers import rocketmq
from towline.errors import MalformedRecord
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, decode

from .conftest import RemotingNode
from .java_clients import VERSIONS, run, start_broker

LATE: Final = (b"delayed", b"timed", b"COMMIT_MESSAGE", b"UNKNOW")  # what comes to the topic behind the others
# Each store has a value of its own, or what is left of the way to a delivery is each broker's own (docs/rocketmq.md).
OWN: Final = ("UNIQ_KEY", "CLUSTER", "TIMER_OUT_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS")
LEFT_OVER: Final = ("TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID", "__transactionId__", "TRANSACTION_CHECK_TIMES")
VARYING: Final = frozenset((*OWN, *LEFT_OVER, "TRAN_PREPARED_QUEUE_OFFSET"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


def records_of(store: Path) -> Iterator[Record]:
    """The records of a log, which is one segment."""
    (segment,) = sorted((store / "commitlog").glob("0*"))[:1]
    data, at = segment.read_bytes(), 0
    while size := int.from_bytes(data[at : at + 4], "big"):
        try:
            yield decode(data[at : at + size])
        except MalformedRecord:
            return
        at += size


def stored(store: Path, topic: str) -> dict[bytes, tuple[int, int, dict[str, str]]]:
    """Flag, SYSFLAG and properties of each message of a topic, by its body."""
    found = {}
    for record in records_of(store):
        if record.topic == topic.encode():
            pairs = decode_properties(record.properties)
            kept = {name: value for name, value in pairs.items() if name not in VARYING}
            found[record.body] = record.flag, record.sys_flag, kept
    return found


@pytest.mark.parametrize("version", VERSIONS)
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


@pytest.mark.parametrize("version", VERSIONS)
def test_real_consumers_find_no_difference_to_a_real_broker(
    version: str, node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    topic = f"consumers-{version.replace('.', '-')}"
    theirs = run("Consume", version, real.address, topic, request.config)
    ours = run("Consume", version, f"127.0.0.1:{node.port}", topic, request.config)
    assert not [line for line in ours if "false" in line]
    assert ours == theirs
