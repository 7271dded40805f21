"""The steps of docs/kafka-exchange.md with a real broker: it makes topics, stops, gets messages, and serves them.

Its own DumpLogSegments finds nothing wrong in what was exported.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.samples import Row, rows_in
from tests.kafka.test_broker import Broker, started
from tests.kafka.test_dump import FOLLOWED, RECORD, WRONG, dump, of
from tests.spark.stores import NOON, MadeStore
from towline.cli.main import run
from towline.format.record import skipped
from towline.kafka.exchange import names
from towline.kafka.format.batch import Compression
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.limits import MIB

from .exports import QUEUES, command, exported, sample, wanted
from .holes import absent
from .many import body_of, many

KEPT: Final = {"retention.ms": "-1"}  # what a broker would clean away at once otherwise: the times are of 2023
CROSSED, LARGE, UNKNOWN = "crossed", "large", "unknown"
MILLION: Final = 1_000_000
LARGE_SIZE: Final = 3 * MIB  # more than max.message.bytes
LEFT: Final = "orders-0.00000000towline-delete"  # as a killed export leaves it
READ_S: Final = 30.0
KINDS: Final = [kind.name.lower() for kind in Compression]
TOPICS: Final = {kind: kind for kind in KINDS} | {"none": "orders"}  # the page exports that one
PAGE: Final = Path(__file__).parents[3] / "docs" / "kafka-exchange.md"


def typed(store: Path, data: Path) -> list[str]:
    """The words of the page, behind what the broker's own scripts do there."""
    block = PAGE.read_text().partition("\n### Into a broker\n")[2].partition("```sh\n")[2].partition("```")[0]
    create, stop, command, start = block.splitlines()
    assert create.endswith("--partitions 4 --replication-factor 1 --config retention.ms=-1")
    assert (stop, start) == ("kafka-server-stop.sh", "kafka-server-start.sh config/server.properties")
    places = {"/var/lib/towline": str(store), "/var/lib/kafka/data": str(data)}
    return [places.get(word, word) for word in command.split()[1:]]


def crossing(root: Path) -> MadeStore:
    """Everything that a record may have, over the holes of a log of Kafka, at the end too."""
    made = MadeStore(root)
    for number in range(300):
        extra = {names.TIMESTAMP_TYPE: names.LOG_APPEND_TIME} if number % 50 == 7 else {}
        extra |= {names.TOMBSTONE: names.TRUE} if number % 11 == 0 else {}
        body = b"" if number % 11 == 0 else b"value %d " % number * (number % 20)
        made.put("t", 0, body, keys=f"k{number}" if number % 3 else None, tags="red", city="Zürich", **extra)
        if number == 150:
            absent(made.dispatch(), skipped.HOLE_FLAG, "t", 5)
    absent(made.dispatch(), skipped.HOLE_FLAG, "t", 9)
    return made.safe()


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[MadeStore, MadeStore, MadeStore]:
    root = tmp_path_factory.mktemp("stores")
    large = MadeStore(root / "large", segment_size=8 * MIB)
    for size in (LARGE_SIZE, 10):
        large.put("t", 0, bytes(range(256)) * (size // 256) + b"end")
    return sample(root / "orders", 900), crossing(root / "crossed"), large.dispatch().safe()


@pytest.fixture(scope="module")
def broker(stores, tmp_path_factory) -> Iterator[Broker]:
    """It runs on what was exported into its directory."""
    made = started(tmp_path_factory.mktemp("broker"))
    try:
        admin = AdminClient({"bootstrap.servers": made.address})
        topics = [NewTopic(name, QUEUES, 1, config=KEPT) for name in TOPICS.values()]
        topics += [NewTopic(name, 1, 1, config=KEPT) for name in (CROSSED, LARGE)]
        for future in admin.create_topics(topics).values():
            future.result()
        del admin
        made.stop()
        assert run(typed(stores[0].root, made.data)) == 0
        for kind, name in TOPICS.items():
            if kind != "none":
                exported(stores[0], made.data, into=made.data, renames=[f"orders={name}"], compression=kind)
        exported(stores[1], made.data, into=made.data, renames=[f"t={CROSSED}"], batch_bytes=3_000)
        exported(stores[2], made.data, into=made.data, renames=[f"t={LARGE}"])
        aside = made.data.parent / "aside"
        exported(stores[2], aside, renames=[f"t={UNKNOWN}"])
        shutil.copytree(aside / f"{UNKNOWN}-0", made.data / f"{UNKNOWN}-0")
        shutil.copytree(aside / f"{UNKNOWN}-0", made.data / LEFT / "orders-0")
        made.start_again()
        yield made
    finally:
        made.end()


def consumed(node: Broker, places: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[list[Row], int]]:
    """Of each partition all that a consumer gets, and its end as the broker says it."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.address, "group.id": "judge", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING) for place in places])
    rows: dict[tuple[str, int], list[Row]] = {place: [] for place in places}
    ends: dict[tuple[str, int], int] = {}
    while len(ends) < len(places) and (message := consumer.poll(READ_S)) is not None:
        place = message.topic(), message.partition()
        if message.error():
            ends[place] = message.offset()
            continue
        headers = [(name, value) for name, value in message.headers() or []]
        rows[place].append((message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    consumer.close()
    return {place: (rows[place], ends[place]) for place in places}


@pytest.fixture(scope="module")
def found(broker) -> dict[tuple[str, int], tuple[list[Row], int]]:
    return consumed(
        broker, [(CROSSED, 0), (LARGE, 0), *((name, number) for name in TOPICS.values() for number in range(QUEUES))]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_gets_every_message_at_its_offset(stores, found, kind):
    for number in range(QUEUES):
        assert found[TOPICS[kind], number] == (wanted(stores[0], "orders", number), 300)


def test_a_consumer_gets_nulls_times_of_the_log_and_holes(stores, broker, found):
    rows, end = found[CROSSED, 0]
    assert [row[0] for row in rows] == [*range(151), *range(156, 305)]
    assert end == 314
    assert [row[3] is None for row in rows] == [number % 11 == 0 for number in range(300)]
    assert rows[:300] == rows_in(broker.data / f"{CROSSED}-0")[:300]
    assert rows[1] == (1, 1_700_000_000_997, b"k1", b"value 1 ", [("TAGS", b"red"), ("city", "Zürich".encode())])


def test_a_consumer_gets_a_message_that_a_producer_could_not_have_sent(stores, found):
    rows, end = found[LARGE, 0]
    assert end == 2
    assert rows == wanted(stores[2], "t", 0)
    assert len(rows[0][3] or b"") == LARGE_SIZE + 3


def test_a_partition_of_a_topic_that_the_broker_does_not_know_is_put_aside(broker, found):
    """As docs/kafka-exchange.md says. What a killed export left does not keep the broker from starting."""
    assert found
    assert not (broker.data / f"{UNKNOWN}-0").exists()
    assert len(list(broker.data.glob(f"{UNKNOWN}-0.*-stray"))) == 1


def test_a_producer_goes_on_behind_what_was_exported(broker, found):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    assert len(found) == 2 + QUEUES * len(KINDS)  # they were read before
    offsets: list[int] = []
    for number in range(3):
        topic = CROSSED if number else "zstd"
        producer.produce(topic, b"new", partition=0, on_delivery=lambda error, one: offsets.append(one.offset()))
        producer.flush()
    assert offsets == [300, 314, 315]


def test_kafkas_own_tool_finds_nothing_wrong(classes, stores, tmp_path):
    for number, kind in enumerate(KINDS):
        sizes = {"batch_bytes": 2_000, "segment_bytes": 20_000}
        exported(stores[0], tmp_path / kind, compression=kind, renames=[f"orders=t{number}"], **sizes)
    exported(stores[1], tmp_path / "crossed", batch_bytes=3_000, segment_bytes=8_000)
    directories = sorted(path for path in tmp_path.glob("*/t*-*"))
    assert len(directories) == 1 + QUEUES * len(KINDS)
    logs, offsets = ([path for each in directories for path in of(each, kind)] for kind in ("*.log", "*.index"))
    said = dump(classes, logs, "--deep-iteration", "--print-data-log")
    assert [word for word in WRONG if word in said] == []
    assert len(RECORD.findall(said)) == 900 * len(KINDS) + 300
    # It takes the first record of each segment to follow -1: beside these there is the hole.
    bases = [segment.base for each in directories for segment in Partition(each).segments if segment.base]
    assert set(map(int, FOLLOWED.findall(said))) <= {*bases, 156}
    times = [path for each in directories for path in of(each, "*.timeindex")]
    verified = dump(classes, [*offsets, *times], "--verify-index-only")
    assert [word for word in WRONG if word in verified] == []
    filled = [path for path in offsets if path.stat().st_size]  # of an empty one it says nothing
    checked = dump(classes, filled, "--index-sanity-check")
    assert checked.count("passed sanity check") == len(filled) > 20
    assert [found for each in directories for found in check(each)] == []


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_million_messages_through_a_broker(tmp_path, capsys):
    """Of 1 KiB, by the command, from a store of three queues; a consumer gets each in order and equal."""
    made = many(tmp_path / "store", MILLION, QUEUES)
    node = started(tmp_path)
    try:
        admin = AdminClient({"bootstrap.servers": node.address})
        admin.create_topics([NewTopic("many", QUEUES, 1, config=KEPT)])["many"].result()
        del admin
        node.stop()
        status, said = command(capsys, "--store", made.root, "--into", node.data, "--compression", "lz4")
        assert (status, said["messages"], said["verified"]) == (0, MILLION, True)
        node.start_again()
        for queue in range(QUEUES):
            rows, end = consumed(node, [("many", queue)])["many", queue]
            assert end == len(rows) == len(range(queue, MILLION, QUEUES))
            assert all(row == row_of(number) for row, number in zip(rows, range(queue, MILLION, QUEUES), strict=True))
    finally:
        node.end()


def row_of(number: int) -> Row:
    """Of a message of `many`."""
    headers: list[tuple[str, bytes | None]] = [("TAGS", b"red"), ("UNIQ_KEY", b"7F00000100002A9F4B6C00%010d" % number)]
    return number // QUEUES, NOON + number // 10, b"key-%010d" % number, body_of(number), headers
