"""A broker and we on the same files, in turn: what one writes the other reads, after a clean stop and after kill -9.

The broker makes its topics and stops. We read what it has, put our own partitions in the place of its, and it starts
again on them.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.brokers import Broker, started
from tests.kafka.samples import SMALL, T0, Row, plain, rows_in, rows_of
from tests.kafka.test_dump import WRONG, dump, of
from tests.processes.waiting import await_
from towline.kafka.errors import TornLog
from towline.kafka.format import checkpoints
from towline.kafka.format.batch import Compression
from towline.kafka.format.building import Form, build
from towline.kafka.format.records import Records
from towline.kafka.log import retention
from towline.kafka.log.checking import check
from towline.kafka.log.log_directory import LogDirectory
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter

pytestmark = pytest.mark.timeout(900)  # two starts of a broker, three of a writer, on a machine that has other work
QUICK, SOAKED = 20_000, 1_000_000
SETTINGS: Final = {"index.interval.bytes": "500", "retention.ms": "-1"}
APPENDED: Final = {"message.timestamp.type": "LogAppendTime"}
PRODUCED, STAMPED, OURS, TIMED, RETAINED = "produced", "stamped", "ours", "timed", "retained"
# Our writer is killed on these; one is recovered by us, one by the broker alone, one goes on after a clean stop first.
RECOVERED, LEFT, RESUMED = "recovered", "left", "resumed"
TOPICS: Final = (PRODUCED, STAMPED, OURS, TIMED, RETAINED, RECOVERED, LEFT, RESUMED)
KINDS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
WRITING_S: Final = 240.0
WRITER: Final = """
import sys
from itertools import count
from pathlib import Path
from tests.kafka.samples import SMALL, plain
from towline.kafka.format.batch import Compression
from towline.kafka.format.building import Form
from towline.kafka.log.partition import Partition
from towline.kafka.log.writer import PartitionWriter

writer = PartitionWriter(Path(sys.argv[1]), sys.argv[2], 0, SMALL, topic_id=Partition(Path(sys.argv[3])).topic_id)
for number in count(writer.end // 50):
    writer.append(plain(50, 50 * number), Form(Compression(number % 5), batch_size=700))
"""


def value(number: int) -> bytes | None:
    return None if number % 11 == 0 else b"value %d" % number * (number % 4)


def produce(address: str, topic: str, count: int) -> None:
    """Through a producer of each compression in turn, every other one idempotent."""
    producers = [
        confluent_kafka.Producer(
            {"bootstrap.servers": address, "compression.type": kind, "linger.ms": 5, "enable.idempotence": row % 2 == 0}
        )
        for row, kind in enumerate(KINDS)
    ]
    part = count // len(producers)
    for row, producer in enumerate(producers):
        for number in range(row * part, row * part + part):
            key = None if number % 7 == 0 else b"key %d" % number
            headers = [("source", b"test"), ("null", None)] if number % 5 == 0 else None
            producer.produce(topic, value(number), key, 0, timestamp=T0 + number, headers=headers)
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()


def produced(count: int) -> list[Row]:
    """What `produce` makes."""
    headers: list[tuple[str, bytes | None]] = [("source", b"test"), ("null", None)]
    keys = [None if number % 7 == 0 else b"key %d" % number for number in range(count)]
    return [(n, T0 + n, keys[n], value(n), headers if n % 5 == 0 else []) for n in range(count)]


def write_ours(broker: Broker, topic: str, count: int, config: LogConfig) -> Path:
    """The records of every compression, in the place of the broker's partition."""
    part = count // len(Compression)
    with replaced(broker, topic, config) as writer:
        for kind in Compression:
            writer.append(plain(part, part * kind), Form(kind))
    return writer.directory


def replaced(broker: Broker, topic: str, config: LogConfig = SMALL) -> PartitionWriter:
    directory = broker.data / f"{topic}-0"
    topic_id = Partition(directory).topic_id
    shutil.rmtree(directory)
    return PartitionWriter(broker.data, topic, 0, config, topic_id=topic_id)


def write_times(broker: Broker) -> None:
    """Times rise, fall, stand still and are none."""
    times = [T0 + [0, 40, -30, 40, 500, 7, -1 - T0][number % 7] + 10 * number for number in range(400)]
    with replaced(broker, TIMED, LogConfig(segment_bytes=3_000, index_interval_bytes=100)) as writer:
        for at in range(0, 400, 5):
            part = range(at, at + 5)
            records = Records.of(part, [max(times[n], -1) for n in part], [None] * 5, [b"v%d" % n for n in part])
            writer.append(records, Form(Compression(at % 5), batch_size=200))


def write_retained(broker: Broker) -> int:
    """Two leader epochs, and the oldest segments gone; the offset at which it begins then."""
    with replaced(broker, RETAINED) as writer:
        writer.append(plain(200), Form(batch_size=600, leader_epoch=0))
        writer.append(plain(200, 200), Form(batch_size=600, leader_epoch=1))
    config = LogConfig(retention_bytes=9_000, retention_ms=-1)
    root = LogDirectory(broker.data)
    start = retention.apply(writer.directory, config, T0, high_watermark=400)
    starts = root.offsets(checkpoints.LOG_STARTS)
    root.keep(checkpoints.LOG_STARTS, starts | {(RETAINED, 0): start})
    return start


def kill_writer(broker: Broker, topic: str, beside: Path) -> None:
    """Kills it amid its appends, some segments later, and leaves the beginning of one more batch."""
    directory = broker.data / f"{topic}-0"
    before = len(list(directory.glob("*.log")))
    words = [sys.executable, "-c", WRITER, str(broker.data), topic, str(beside)]
    with subprocess.Popen(words) as process:
        try:
            await_(lambda: len(list(directory.glob("*.log"))) > before + 2, WRITING_S, "segments are written")
        finally:
            process.kill()
    last = max(directory.glob("*.log"))
    if last.with_suffix(".index").exists():  # killed between two segments: what it wrote next began another one
        last = directory / f"{Partition(directory).end:020}.log"
    with last.open("ab") as file:
        file.write(build(plain(3, 10**6)).tobytes()[:50])


@dataclass
class Turns:
    """A broker that filled topics and was stopped, ran once more on what we had put there, and was stopped again."""

    broker: Broker
    wanted: dict[str, list[Row]] = field(default_factory=dict)  # by our own reading, before the broker had them
    found: dict[str, list[Row]] = field(default_factory=dict)  # by a consumer
    offsets: dict[int, int | None] = field(default_factory=dict)  # by time, of TIMED
    ours: dict[int, int | None] = field(default_factory=dict)
    retained_from: int = 0
    bounds: tuple[int, int] = (0, 0)  # of RETAINED

    def directory(self, topic: str) -> Path:
        return self.broker.data / f"{topic}-0"


@pytest.fixture(scope="module")
def turns(tmp_path_factory) -> Iterator[Turns]:
    node = started(tmp_path_factory.mktemp("both"))
    try:
        create(node, TOPICS)
        produce(node.address, PRODUCED, QUICK)
        produce(node.address, STAMPED, 500)
        made = Turns(node)
        made.found[STAMPED] = node.committed(STAMPED)
        node.stop()
        put_ours(made, tmp_path_factory.mktemp("copies"))
        node.start_again()
        made.found |= {topic: node.committed(topic) for topic in made.wanted}
        made.offsets = {time: node.offset_at(TIMED, time) for time in made.ours}
        made.bounds = node.bounds(RETAINED)
        node.stop()
        yield made
    finally:
        node.end()


def create(node: Broker, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    wanted = [NewTopic(name, 1, 1, config=SETTINGS | (APPENDED if name == STAMPED else {})) for name in topics]
    for future in admin.create_topics(wanted).values():
        future.result()


def put_ours(turns: Turns, copies: Path) -> None:
    """The broker was stopped cleanly, and its mark of that stays: it would believe whatever files look sound."""
    node = turns.broker
    assert LogDirectory(node.data).stopped_cleanly
    write_ours(node, OURS, QUICK, LogConfig(segment_bytes=200_000, index_interval_bytes=500))
    write_times(node)
    turns.retained_from = write_retained(node)
    write_ours(node, RESUMED, 400, SMALL)
    for topic in (RECOVERED, LEFT):
        beside = copies / f"{topic}-9"
        shutil.copytree(turns.directory(topic), beside)
        shutil.rmtree(turns.directory(topic))
        kill_writer(node, topic, beside)
    kill_writer(node, RESUMED, turns.directory(RESUMED))
    for topic in (RECOVERED, LEFT, RESUMED):
        with pytest.raises(TornLog):
            rows_in(turns.directory(topic))
    recover(turns.directory(RECOVERED), SMALL)
    for topic in (OURS, TIMED, RETAINED, RECOVERED):
        turns.wanted[topic] = rows_in(turns.directory(topic))
    for topic in (LEFT, RESUMED):
        copy = copies / f"{topic}-0"
        shutil.copytree(turns.directory(topic), copy)
        recover(copy, SMALL)
        turns.wanted[topic] = rows_in(copy)
    partition = Partition(turns.directory(TIMED))
    turns.ours = {T0 + step: partition.offset_at(T0 + step) for step in range(-50, 5_000, 155)}


def test_we_read_what_producers_of_every_compression_wrote(turns):
    rows = rows_in(turns.directory(PRODUCED))
    assert rows == produced(QUICK)
    found = [batches["attributes"] & 7 for _, _, batches in Partition(turns.directory(PRODUCED)).scans()]
    assert set(np.concatenate(found).tolist()) == set(Compression)


def test_we_read_the_times_of_the_append_as_a_consumer_does(turns):
    rows = rows_in(turns.directory(STAMPED))
    assert rows == turns.found[STAMPED]
    assert [(row[0], *row[2:]) for row in rows] == [(row[0], *row[2:]) for row in produced(500)]
    assert all(row[1] > T0 + 10**9 for row in rows)


def test_a_consumer_reads_what_we_wrote_in_every_compression(turns):
    assert turns.wanted[OURS] == rows_of(plain(QUICK))
    assert turns.found[OURS] == turns.wanted[OURS]


@pytest.mark.parametrize("topic", [RECOVERED, LEFT, RESUMED])
def test_a_broker_opens_what_a_killed_writer_left(turns, topic):
    """What `recover` made whole; what nobody did, new and behind a clean stop: the broker then recovers it itself."""
    rows = turns.wanted[topic]
    assert len(rows) > (600 if topic == RESUMED else 150)
    assert [row[1:] for row in rows[-100:]] == [row[1:] for row in rows_of(plain(len(rows)))[-100:]]
    assert turns.found[topic] == rows


def test_the_broker_finds_the_same_offsets_by_times(turns):
    assert turns.offsets == turns.ours
    assert len(set(turns.ours.values())) > 20
    assert None in turns.ours.values()


def test_the_broker_begins_where_retention_did_and_keeps_our_epochs(turns):
    assert turns.bounds == (turns.retained_from, 400)
    assert 0 < turns.retained_from < 200
    assert turns.found[RETAINED] == rows_of(plain(400))[turns.retained_from :]
    known = Partition(turns.directory(RETAINED)).epochs
    assert [(epoch.number, epoch.start) for epoch in known[:2]] == [(0, turns.retained_from), (1, 200)]


def test_what_the_broker_has_left_of_ours_is_whole_and_the_same(turns):
    for topic, rows in turns.wanted.items():
        assert check(turns.directory(topic)) == [], topic
        assert rows_in(turns.directory(topic)) == rows, topic


def test_the_tool_finds_nothing_wrong_with_what_was_recovered_or_retained(turns, classes):
    for topic in (RECOVERED, RETAINED):
        directory = turns.directory(topic)
        said = dump(classes, of(directory, "*.log"), "--deep-iteration")
        assert [word for word in WRONG if word in said] == [], topic
        verified = dump(classes, of(directory, "*.index", "*.timeindex"), "--verify-index-only")
        assert [word for word in WRONG if word in verified] == [], topic
        checked = dump(classes, of(directory, "*.index"), "--index-sanity-check")
        sound = checked.count("passed sanity check") + checked.count(".index is empty")
        assert sound == len(of(directory, "*.index")), topic


@pytest.mark.slow
def test_a_million_records_each_way(tmp_path):
    node = started(tmp_path)
    try:
        create(node, (PRODUCED, OURS))
        produce(node.address, PRODUCED, SOAKED)
        node.stop()
        directory = write_ours(node, OURS, SOAKED, LogConfig(segment_bytes=20_000_000))
        assert rows_in(node.data / f"{PRODUCED}-0") == produced(SOAKED)
        rows = rows_in(directory)
        assert rows == rows_of(plain(SOAKED))
        node.start_again()
        assert node.committed(OURS) == rows
        assert node.committed(PRODUCED) == produced(SOAKED)
        node.stop()
        assert check(directory) == []
        assert check(node.data / f"{PRODUCED}-0") == []
    finally:
        node.end()
