"""The table of next queue offsets after a restart of put alone: queues' ends and what is not dispatched yet (H11)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from master.put.offsets import QueueOffsets
from tests.log.stores import NOON, SEGMENT, StoreMaker
from towline.errors import CorruptLog
from towline.format.record import record, skipped
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.runtime.queue_ends import QueueEnds

QUEUES = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicB", 1)]


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    maker = StoreMaker(tmp_path / "store")
    maker.fill(200)
    return maker


@pytest.fixture
def log(maker: StoreMaker) -> Iterator[CommitLogReader]:
    reader = CommitLogReader(maker.store.commitlog, SEGMENT)
    reader.load()
    yield reader
    reader.close()


def ends_at(maker: StoreMaker, tmp_path: Path, upto: int) -> QueueEnds:
    """The table as reput published it when it had dispatched every record before `upto`."""
    ends = QueueEnds.create(tmp_path / "queue_ends")
    for topic, queue_id in QUEUES:
        count = sum((one.topic, one.queue_id) == (topic, queue_id) for one in maker.records if one.at < upto)
        if count:
            ends.add(topic.encode(), queue_id, 0, count, upto)
    return ends


def load(offsets: QueueOffsets, ends: QueueEnds, log: CommitLogReader, dispatched: int, appended: int) -> None:
    directory = QueueDirectory()
    offsets.load(ends, DispatchScan(log, directory), directory, dispatched, appended)


def table(offsets: QueueOffsets) -> dict[tuple[str, int], int]:
    return {(topic, queue_id): offsets.next_of(topic.encode(), queue_id) for topic, queue_id in QUEUES}


@pytest.mark.parametrize("dispatched", [0, 1, 3, 128, 129, 130, 199, 200])
def test_it_equals_the_log_wherever_reput_stands(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path, dispatched: int
) -> None:
    at = maker.records[dispatched].at if dispatched < 200 else maker.end
    offsets = QueueOffsets()
    load(offsets, ends_at(maker, tmp_path, at), log, at, maker.end)
    assert table(offsets) == dict.fromkeys(QUEUES, 50)


def test_ends_that_are_ahead_of_the_dispatched_end_are_believed(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path
) -> None:
    """Reput moves a queue's end before DISPATCHED, so put may read an older DISPATCHED with newer ends."""
    offsets = QueueOffsets()
    load(offsets, ends_at(maker, tmp_path, maker.records[150].at), log, maker.records[100].at, maker.end)
    assert table(offsets) == dict.fromkeys(QUEUES, 50)


@pytest.mark.parametrize("transaction", [record.TRANSACTION_PREPARED, record.TRANSACTION_ROLLBACK])
def test_messages_of_open_and_rolled_back_transactions_take_no_number(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path, transaction: int
) -> None:
    half = record.encode(
        record.Record(
            topic=b"TopicA", sys_flag=transaction, queue_offset=77, physical_offset=maker.end, store_timestamp=NOON
        )
    )
    maker.write(maker.end, half)
    offsets = QueueOffsets()
    load(offsets, ends_at(maker, tmp_path, 0), log, 0, maker.end + len(half))
    assert table(offsets) == dict.fromkeys(QUEUES, 50)


def test_the_number_of_a_message_that_was_stepped_over_is_not_given_again(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path
) -> None:
    stored = maker.records[-1]
    lost = skipped.Lost(stored.topic.encode(), stored.queue_id, stored.queue_offset, 1)
    maker.write(stored.at, skipped.encode(len(stored.data), stored.at, lost, NOON, with_crc=False))
    offsets = QueueOffsets()
    load(offsets, ends_at(maker, tmp_path, 0), log, 0, maker.end)
    assert table(offsets) == dict.fromkeys(QUEUES, 50)


def test_a_record_that_cannot_be_read_is_refused_by_place_and_rule(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path
) -> None:
    stored = maker.records[150]
    maker.write(stored.at + 4, b"\0")
    with pytest.raises(CorruptLog, match=f"{stored.at}.*MAGIC"):
        load(QueueOffsets(), ends_at(maker, tmp_path, 0), log, 0, maker.end)
