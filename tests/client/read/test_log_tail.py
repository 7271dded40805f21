"""The end of a node's log, read by a client: which records it finds, how far it sees, and when it reads nothing."""

from pathlib import Path

import pytest

from tests.client.read.logs import APPENDED, ENDPOINT, GENERATION, REPLICATED, SEGMENT, LogOfNode
from towline.client.read.log_tail import LogTail, TailRecord, records_of
from towline.errors import MalformedRecord
from towline.format.record import blank
from towline.format.record.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Host,
    Record,
    encode,
)
from towline.limits import RETRY_TOPIC_SIZE_MAX

IPV6 = Host(bytes(range(16)), 10911)


@pytest.fixture
def log(tmp_path: Path) -> LogOfNode:
    return LogOfNode(tmp_path)


def record(topic: bytes = b"t", at: int = 0, **more) -> bytes:
    return encode(Record(topic=topic, physical_offset=at, **more))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_records_of_one_topic_with_their_places():
    first = record(queue_id=2, queue_offset=7, body=b"x" * 40)
    other = record(b"tt", len(first))
    last = record(at=len(first + other), queue_offset=1 << 40)
    found, size = records_of(first + other + last, 0, b"t")
    assert found == [TailRecord(2, 7, 0, len(first)), TailRecord(0, 1 << 40, len(first + other), len(last))]
    assert size == len(first + other + last)


@pytest.mark.parametrize(
    "hosts", [{}, {"born_host": IPV6}, {"store_host": IPV6}, {"born_host": IPV6, "store_host": IPV6}]
)
@pytest.mark.parametrize("topic", [b"t", b"t" * 127, b"t" * RETRY_TOPIC_SIZE_MAX])
def test_addresses_and_long_topics(hosts, topic):
    data = record(topic, body=b"body", **hosts)
    found, _ = records_of(data, 0, topic)
    assert [each.size for each in found] == [len(data)]
    assert records_of(data, 0, topic[:-1])[0] == []


@pytest.mark.parametrize(
    ("state", "seen"),
    [(0, True), (TRANSACTION_COMMIT, True), (TRANSACTION_PREPARED, False), (TRANSACTION_ROLLBACK, False)],
)
def test_what_no_queue_names_is_passed_over(state, seen):
    data = record(sys_flag=state)
    found, size = records_of(data, 0, b"t")
    assert (bool(found), size) == (seen, len(data))


def test_a_record_that_is_not_whole_yet_is_waited_for():
    whole = record(body=b"1")
    part = record(at=len(whole), body=b"2" * 50)
    for size in range(len(part)):
        assert records_of(whole + part[:size], 0, b"t")[1] == len(whole)


def test_the_blank_ends_the_segment():
    whole = record()
    for room in (blank.SIZE, blank.SIZE + 1, 200):
        ending = blank.encode(room) + bytes(room - blank.SIZE)
        found, size = records_of(whole + ending, 0, b"t")
        assert (len(found), size) == (1, -1)


@pytest.mark.parametrize(
    ("at", "written", "rule"),
    [
        (4, b"\0\0\0\0", "MAGIC"),
        (0, (90).to_bytes(4, "big"), "SIZE_TOO_SMALL"),
        (28, (1).to_bytes(8, "big"), "PHYSICAL_OFFSET"),
        (84, (-1).to_bytes(4, "big", signed=True), "ENDS_INSIDE"),
        (84, (500).to_bytes(4, "big"), "ENDS_INSIDE"),
    ],
)
def test_bytes_that_are_no_record_are_refused(at, written, rule):
    data = bytearray(record(body=b"x" * 60))
    data[at : at + len(written)] = written
    with pytest.raises(MalformedRecord) as caught:
        records_of(bytes(data), 0, b"t")
    assert caught.value.rule == rule


def test_it_reads_up_to_the_least_of_the_confirming_positions(log):
    log.append()
    tail = log.tail()
    assert tail.confirmed == log.end
    log.words[APPENDED] = 10_000
    assert tail.confirmed == log.end == log.words[REPLICATED]


def test_a_read_ends_with_its_segment(log):
    while log.end <= SEGMENT:
        log.append(size=200)
    tail = log.tail()
    assert len(tail.read(SEGMENT - 100, log.end)) == 100
    assert tail.behind(SEGMENT - 100) == SEGMENT
    assert len(tail.read(SEGMENT, log.end)) == log.end - SEGMENT


def test_one_segment_is_open_and_none_after_a_release(log):
    while log.end <= SEGMENT:
        log.append(size=200)
    before = descriptors()
    tail = log.tail()
    tail.read(0, 100)
    opened = descriptors()
    tail.read(SEGMENT, log.end)
    assert descriptors() == opened
    tail.release()
    assert descriptors() == opened - 1
    tail.close()
    assert descriptors() == before


def test_a_segment_that_is_missing_or_too_short(log):
    log.append()
    tail = log.tail()
    with pytest.raises(OSError, match="No such file"):
        tail.read(SEGMENT, SEGMENT + 8)
    (log.directory / f"{0:020d}").write_bytes(b"short")
    with pytest.raises(OSError, match="5 of 100 bytes"):
        tail.read(0, 100)


def test_another_start_of_the_node_is_noticed(log):
    tail = log.tail()
    assert tail.is_current
    log.words[GENERATION] = 78
    assert not tail.is_current


def test_files_that_are_not_the_nodes_are_not_read(log, tmp_path):
    for endpoint in ("tcp://10.0.0.1:10913", "tcp://example.org:1"):
        assert LogTail.of(endpoint, log.welcome) is None
    for endpoint in ("tcp://127.0.0.1:10913", "tcp://[::1]:10913", ENDPOINT):
        assert LogTail.of(endpoint, log.welcome) is not None
    assert LogTail.of(ENDPOINT, {}) is None
    for name in ("file", "directory"):
        welcome = log.welcome
        welcome["tail"][name][1] += 1
        assert LogTail.of(ENDPOINT, welcome) is None
    welcome = log.welcome
    log.positions.rename(tmp_path / "kept")
    assert LogTail.of(ENDPOINT, welcome) is None
