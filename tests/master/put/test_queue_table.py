"""The table of next queue offsets after a restart of put alone: queues' ends and what is not dispatched yet (H11)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.stores import NOON, SEGMENT, StoreMaker
from towline.errors import CorruptLog
from towline.format.record import record, skipped
from towline.format.record.forms import Form
from towline.kernels.jit.rows import Sender
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.master.put.queue_table import QueueTable
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


def load(queues: QueueTable, ends: QueueEnds, log: CommitLogReader, dispatched: int, appended: int) -> None:
    queues.load(ends, DispatchScan(log, queues.directory), dispatched, appended)


def table(queues: QueueTable) -> dict[tuple[str, int], int]:
    return {(topic, queue_id): queues.next_of(topic.encode(), queue_id) for topic, queue_id in QUEUES}


@pytest.mark.parametrize("dispatched", [0, 1, 3, 128, 129, 130, 199, 200])
def test_it_equals_the_log_wherever_reput_stands(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path, dispatched: int
) -> None:
    at = maker.records[dispatched].at if dispatched < 200 else maker.end
    queues = QueueTable()
    load(queues, ends_at(maker, tmp_path, at), log, at, maker.end)
    assert table(queues) == dict.fromkeys(QUEUES, 50)


def test_ends_that_are_ahead_of_the_dispatched_end_are_believed(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path
) -> None:
    """Reput moves a queue's end before DISPATCHED, so put may read an older DISPATCHED with newer ends."""
    queues = QueueTable()
    load(queues, ends_at(maker, tmp_path, maker.records[150].at), log, maker.records[100].at, maker.end)
    assert table(queues) == dict.fromkeys(QUEUES, 50)


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
    queues = QueueTable()
    load(queues, ends_at(maker, tmp_path, 0), log, 0, maker.end + len(half))
    assert table(queues) == dict.fromkeys(QUEUES, 50)


def test_the_number_of_a_message_that_was_stepped_over_is_not_given_again(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path
) -> None:
    stored = maker.records[-1]
    lost = skipped.Lost(stored.topic.encode(), stored.queue_id, stored.queue_offset, 1)
    maker.write(stored.at, skipped.encode(len(stored.data), stored.at, lost, NOON, with_crc=False))
    queues = QueueTable()
    load(queues, ends_at(maker, tmp_path, 0), log, 0, maker.end)
    assert table(queues) == dict.fromkeys(QUEUES, 50)


def test_a_record_that_cannot_be_read_is_refused_by_place_and_rule(
    maker: StoreMaker, log: CommitLogReader, tmp_path: Path
) -> None:
    stored = maker.records[150]
    maker.write(stored.at + 4, b"\0")
    with pytest.raises(CorruptLog, match=f"{stored.at}.*MAGIC"):
        load(QueueTable(), ends_at(maker, tmp_path, 0), log, 0, maker.end)


def test_what_a_sender_was_allowed_is_taken_back_and_the_numbers_stay() -> None:
    queues = QueueTable()
    queues.raise_to({(b"TopicA", 1): 7})
    queues.allow(b"TopicA", 1, Form.DELAYED, Sender.CLIENT)
    queues.allow(b"TopicA", 1, Form.DELAYED, Sender.NODE)
    _, rows, _, _ = queues.arguments
    assert rows[0][["next_offset", "form", "access"]].item() == (7, Form.DELAYED, Sender.CLIENT | Sender.NODE)
    queues.forbid_all()
    assert rows[0][["next_offset", "access"]].item() == (7, 0)


def test_it_grows_and_keeps_what_it_holds() -> None:
    queues = QueueTable()
    for number in range(1000):
        queues.raise_to({(b"T%d" % (number % 7), number): number})
    assert queues.ends() == [(b"T%d" % (number % 7), number, number) for number in range(1000)]
    assert queues.next_offsets_of(b"T3") == {number: number for number in range(3, 1000, 7)}
    assert [queues.next_of(b"T0", number) for number in (0, 7, 8)] == [0, 7, 0]
    directory, rows, touched, _ = queues.arguments
    assert rows.size == touched.size == directory[1].size >= 1000


def test_floors_raise_a_number_and_never_lower_it() -> None:
    queues = QueueTable()
    queues.raise_to({(b"T", 0): 9, (b"U", 0): 1})
    queues.raise_to({(b"T", 0): 3, (b"U", 0): 4})
    assert queues.ends() == [(b"T", 0, 9), (b"U", 0, 4)]
