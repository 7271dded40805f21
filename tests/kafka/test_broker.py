"""A real broker and its Java producer: we read what they wrote, and they read what we wrote in its place."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.brokers import Broker, started
from tests.kafka.samples import SMALL, T0, plain, rows_in, rows_of
from tests.processes.waiting import await_
from towline.kafka.errors import LogInUse
from towline.kafka.format.batch import DELETE_HORIZON, Compression
from towline.kafka.format.building import Form, end_transaction
from towline.kafka.format.checkpoints import HIGH_WATERMARKS
from towline.kafka.format.control import ControlType
from towline.kafka.log.checking import check
from towline.kafka.log.log_directory import LogDirectory
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter

PRODUCE_S: Final = 240.0
pytestmark = pytest.mark.timeout(600)  # a broker's start and a producer's, on a machine that has other work
PLAIN, TRANSACTIONS = "plain", "transactions"
COUNT: Final = 400  # of Produce.java
CONFIG: Final = {"index.interval.bytes": "500", "retention.ms": "-1"}  # records are years old, and it looks after 30 s
COMPACTED: Final = "compacted"
CLEANED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "index.interval.bytes": "100",
}


def produced(number: int) -> tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Time, key, value, headers of a record of Produce.java."""
    key = None if number % 7 == 0 else b"key %d" % number
    value = None if number % 11 == 0 else b"value %d " % number * (number % 50)
    headers: list[tuple[str, bytes | None]] = [("source", b"test"), ("null", None)] if number % 5 == 0 else []
    return T0 + number, key, value, headers


@pytest.fixture(scope="module")
def broker(classes, tmp_path_factory) -> Iterator[Broker]:
    """It has stopped after Produce.java had written to it."""
    made = started(tmp_path_factory.mktemp("broker"))
    try:
        admin = AdminClient({"bootstrap.servers": made.address})
        topics = [NewTopic(name, 1, 1, config=CONFIG) for name in (PLAIN, TRANSACTIONS)]
        for future in admin.create_topics(topics).values():
            future.result()
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, "towline.kafka.Produce"]
        words = [made.address, PLAIN, TRANSACTIONS]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=PRODUCE_S, check=False)
        assert done.returncode == 0, done.stderr
        with pytest.raises(LogInUse):
            LogDirectory(made.data)
        made.stop()
        yield made
    finally:
        made.end()


def test_we_read_what_the_java_producer_wrote(broker):
    root = LogDirectory(broker.data)
    assert root.stopped_cleanly
    known = {each.topic: each for each in root.partitions()}
    (columns,) = known[PLAIN].read()
    assert rows_of(columns.records) == [(number, *produced(number)) for number in range(COUNT)]
    assert set((columns.of_batch("attributes") & 7).tolist()) == {0, 1, 2, 3, 4}
    assert root.offsets(HIGH_WATERMARKS)[PLAIN, 0] == known[PLAIN].end == COUNT
    idempotent = columns.of_batch("producer_id") >= 0
    assert idempotent.sum() == COUNT / 2
    assert columns.sequences()[idempotent].tolist() == list(range(40)) * 5


def test_we_read_what_is_committed_as_a_consumer_does(broker):
    partition = Partition(broker.data / f"{TRANSACTIONS}-0")
    assert len(partition.segments) > 1, "what ends a transaction is years younger than its records: a roll by time"
    found = partition.transactions()
    rows = [row for each in partition.read() for row in rows_of(each.taken(found.are_committed(each)).records)]
    numbers = [10 * turn + i for turn in (0, 2, 3) for i in range(3)]  # a transaction is open from turn 4 on
    assert [row[1:] for row in rows] == [produced(number) for number in numbers]
    assert len(found.aborted) == 2
    assert found.last_stable_offset < partition.end


def test_nothing_is_wrong_with_the_files_of_a_broker(broker):
    for partition in LogDirectory(broker.data).partitions(internal=True):
        assert check(partition.directory) == []


def test_what_we_derive_is_what_the_broker_wrote(broker, tmp_path):
    for name in (PLAIN, TRANSACTIONS):
        copy = tmp_path / f"{name}-0"
        shutil.copytree(broker.data / copy.name, copy)
        recover(copy, LogConfig(index_interval_bytes=500))
        before = {path.name: path.read_bytes() for path in (broker.data / copy.name).iterdir()}
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_the_broker_serves_what_we_wrote_in_place_of_it(broker, tmp_path):
    """Other segments, other batches, our indexes; with more behind it, and transactions of ours."""
    partition = Partition(broker.data / f"{PLAIN}-0")
    (columns,) = partition.read()
    topic_id = partition.topic_id
    shutil.rmtree(partition.directory)
    with PartitionWriter(broker.data, PLAIN, 0, SMALL, topic_id=topic_id) as writer:
        for kind in Compression:
            part = columns.records.taken(slice(80 * kind, 80 * kind + 80))
            writer.append(part, Form(kind, batch_size=1_000))
        form = Form(producer_id=4_000, producer_epoch=0, base_sequence=0, transactional=True)
        for first, end in ((COUNT + 100, ControlType.ABORT), (COUNT + 200, ControlType.COMMIT)):
            writer.append(plain(2, first), form)
            writer.append_batches(end_transaction(end, first + 2, T0, 4_000, 0))
    assert check(partition.directory) == []
    rows = rows_in(partition.directory)
    wanted = [row for row in rows if row[0] < COUNT or row[0] in (COUNT + 200, COUNT + 201)]
    assert len(wanted) == COUNT + 2
    broker.start_again()
    assert broker.committed(PLAIN) == wanted
    assert len(broker.committed(TRANSACTIONS)) == 9
    broker.stop()
    assert rows_in(partition.directory) == rows
    assert check(partition.directory) == []


@pytest.mark.slow
def test_we_read_what_a_broker_has_compacted(classes, tmp_path):
    """Holes, heads without records, times that count from a delete horizon. Its cleaner looks every 15 s."""
    made = started(tmp_path)
    try:
        admin = AdminClient({"bootstrap.servers": made.address})
        admin.create_topics([NewTopic(COMPACTED, 1, 1, config=CLEANED)])[COMPACTED].result()
        settings = {"bootstrap.servers": made.address, "linger.ms": 20, "enable.idempotence": True}
        kinds = ("none", "gzip", "snappy", "lz4", "zstd")
        producers = [confluent_kafka.Producer(settings | {"compression.type": kind}) for kind in kinds]
        once, never = (confluent_kafka.Producer(settings) for _ in range(2))
        once.produce(COMPACTED, key=b"key 1", value=b"is overwritten")  # leaves a head alone
        never.produce(COMPACTED, key=b"gone", value=None)  # stays up to the delete horizon
        once.flush()
        never.flush()
        checkpoint, turns = made.data / "cleaner-offset-checkpoint", iter(range(10**6))

        def is_cleaned() -> bool:
            turn = next(turns)
            for number in range(30):
                key, value = b"key %d" % ((7 * turn + number) % 40), b"%d %d" % (turn, number)
                producers[turn % 5].produce(COMPACTED, key=key, value=None if number == 13 else value)
            producers[turn % 5].flush()
            return checkpoint.exists() and f"{COMPACTED} 0 " in checkpoint.read_text()

        await_(is_cleaned, PRODUCE_S, "the topic is compacted")
        wanted = made.committed(COMPACTED)
        made.stop()
        partition = Partition(made.data / f"{COMPACTED}-0")
        rows = rows_in(partition.directory)
        assert [row for row in rows if row not in wanted] == []  # it may have been compacted once more since
        assert {row[2]: row for row in rows} == {row[2]: row for row in wanted}
        assert check(partition.directory) == []
        batches = [row for _, _, rows in partition.scans() for row in rows]
        assert any(row["record_count"] == 0 for row in batches)
        assert any(row["attributes"] & DELETE_HORIZON for row in batches)
        recover(partition.directory, LogConfig(index_interval_bytes=100))
        assert rows_in(partition.directory) == rows
    finally:
        made.end()
