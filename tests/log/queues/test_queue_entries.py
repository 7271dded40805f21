"""Queue entries from batches of the log, and the holes of stretches that were stepped over."""

from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from tests.log.stores import QUEUE_FILE, SEGMENT, StoreMaker
from towline.errors import QueueGap
from towline.format.files import consume_queue
from towline.format.files.consume_queue import ENTRY, FILLER_RECORD_SIZE
from towline.format.record import record, skipped
from towline.format.record.skipped import Lost
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import Batch, DispatchScan
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.queue_entries import QueueEntries


def refuse(batch: Batch, row: int, number: int, due: int) -> NoReturn:
    raise QueueGap("topic", number, int(batch.rows[row]["queue_offset"]), due, int(batch.rows[row]["phy"]))


def build(maker: StoreMaker) -> ConsumeQueueFiles:
    """Queues written as reput writes them."""
    reader = CommitLogReader(maker.store.commitlog, SEGMENT)
    reader.load()
    directory = QueueDirectory()
    scan, entries = DispatchScan(reader, directory), QueueEntries(directory, refuse)
    files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
    at = maker.base
    while at < maker.end:
        batch = scan.read(at, maker.end)
        for run in entries.runs(batch):
            topic = directory.topic(run.number).decode()
            files.write(topic, directory.queue_id(run.number), run.offset, run.entries)
        at = batch.end
    return files


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    maker = StoreMaker(tmp_path)
    maker.fill(60)
    return maker


def skip(maker: StoreMaker, number: int, *, known: bool = True) -> int:
    stored = maker.records[number]
    lost = Lost(stored.topic.encode(), stored.queue_id, stored.queue_offset, 1) if known else Lost()
    maker.write(stored.at, skipped.encode(len(stored.data), stored.at, lost, stored.timestamp, with_crc=False))
    return stored.at


class TestHoles:
    def test_a_lost_message_leaves_a_hole_and_later_ones_keep_their_numbers(self, maker: StoreMaker) -> None:
        at = skip(maker, 20)
        lost = maker.records[20]
        entries = build(maker).read(lost.topic, lost.queue_id, lost.queue_offset - 1, 3)
        assert entries["record_size"][1] == FILLER_RECORD_SIZE
        assert entries.tobytes()[20:40] == consume_queue.hole(at)
        of_queue = [s.at for s in maker.records if (s.topic, s.queue_id) == (lost.topic, lost.queue_id)]
        place = of_queue.index(at)
        assert entries["physical_offset"].tolist() == [of_queue[place - 1], 0, of_queue[place + 1]]

    def test_the_first_and_the_last_message_of_a_queue_may_be_lost(self, maker: StoreMaker) -> None:
        skip(maker, 0)
        skip(maker, 56)
        files = build(maker)
        assert files.end_of("TopicA", 0, 1 << 60) == (1, 15)
        assert len(files.read("TopicA", 0, 14, 2)) == 1

    def test_a_hole_that_nobody_explains_is_a_gap(self, maker: StoreMaker) -> None:
        skip(maker, 20, known=False)
        with pytest.raises(QueueGap, match="is number 6 of queue 0 of topic, where number 5 is due"):
            build(maker)

    def test_a_queue_with_holes_is_still_searched_and_cut_by_place(self, maker: StoreMaker) -> None:
        places = [skip(maker, number) for number in (20, 24, 28)]  # numbers 5, 6 and 7 of one queue
        files = build(maker)
        assert files.end_of("TopicA", 0, maker.records[32].at + 1) == (0, 9)
        assert files.end_of("TopicA", 0, places[2]) == (0, 7)
        assert files.min_offset_after("TopicA", 0, maker.records[17].at, 0, 15) == 5
        assert files.min_offset_after("TopicA", 0, maker.records[29].at, 0, 15) == 8


class TestTheRecord:
    @pytest.mark.parametrize("size", [92, 105, 106, 126, 300, 5000])
    @pytest.mark.parametrize("with_crc", [False, True])
    def test_is_whole_at_any_size_whatever_has_room_in_it(self, size: int, with_crc: bool) -> None:
        data = skipped.encode(size, 4711, Lost(), 1_700_000_000_000, with_crc=with_crc)
        decoded = record.decode(data)
        assert len(data) == size
        assert (decoded.physical_offset, decoded.flag) == (4711, skipped.FLAG)
        assert decoded.topic == (skipped.TOPIC if size >= 106 else skipped.SHORT_TOPIC)
        assert decoded.properties.startswith(b"__CRC32#") is (with_crc and size >= 126)
        assert skipped.count_of(data[: record.LAYOUT.size]) == 0

    def test_another_record_that_was_rolled_back_is_none(self) -> None:
        data = record.encode(record.Record(topic=b"T", sys_flag=record.TRANSACTION_ROLLBACK))
        assert skipped.count_of(data[: record.LAYOUT.size]) is None

    def test_a_hole_is_an_entry_that_readers_skip(self) -> None:
        entry = np.frombuffer(consume_queue.hole(4711), dtype=ENTRY)[0]
        assert (entry["physical_offset"], entry["record_size"], entry["tags_code"]) == (0, FILLER_RECORD_SIZE, 4711)
