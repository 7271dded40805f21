"""getMessage on real files: every status of the table in spec 10.1, limits, filters, and bytes equal to the log's."""

import json

import numpy as np
import pytest

from towline.errors import QueueDamaged
from towline.format.files.consume_queue import ENTRY, encode, tags_code
from towline.format.wire.frames import Pull
from towline.format.wire.status import GetStatus
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.node.store.pull_rules import pull_rules
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds
from towline.serve.catch_up import CatchUp
from towline.serve.pull import Puller, PullResult
from towline.serve.topics import TopicsView

from .building import ENTRIES_PER_FILE, SEGMENT, Built, StillClock
from .conftest import Build

MANY = 1 << 20


class Reader:
    """A puller with its own view of the files, as in the read process."""

    def __init__(self, built: Built) -> None:
        settings = built.settings
        log = CommitLogReader(built.store.commitlog, SEGMENT)
        log.load()
        self.log = log
        self.puller = Puller(
            ConsumeQueueFiles(built.store.consumequeue, settings.mapped_file_size_consume_queue, 16),
            log,
            QueueEnds.open(built.runtime.queue_ends),
            TopicsView(built.store.config / "topics.json"),
            built.positions.get,
            pull_rules(settings),
            CatchUp(built.positions.get, StillClock()).settled,
        )

    def pull(self, offset: int, *, topic: bytes = b"t", queue: int = 0, codes: tuple[int, ...] = ()) -> PullResult:
        return self.puller.run(Pull(1, topic, queue, offset, MANY, MANY, 0, codes))

    def limited(self, offset: int, count: int, size: int) -> PullResult:
        return self.puller.run(Pull(1, b"t", 0, offset, count, size, 0))


def sizes(result: PullResult) -> list[int]:
    return np.frombuffer(result.sizes, dtype=">u4").tolist()


class TestStatuses:
    """A queue that begins at 10 in mid-file and ends at 13."""

    @pytest.fixture
    def built(self, build: Build) -> Built:
        built = build()
        built.topics(t=2, quiet=1)
        built.fill(3, first=10)
        return built

    @pytest.mark.parametrize(
        ("topic", "queue", "offset", "status", "following", "low", "high"),
        [
            pytest.param(b"SCHEDULE_TOPIC_XXXX", 3, 5, GetStatus.NO_MATCHED_LOGIC_QUEUE, 5, 0, 0, id="broker's own"),
            pytest.param(b"quiet", 0, 5, GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, id="no message yet"),
            pytest.param(b"t", 1, 5, GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, id="no message in this queue yet"),
            pytest.param(b"t", 0, 9, GetStatus.OFFSET_TOO_SMALL, 10, 10, 13, id="before the first"),
            pytest.param(b"t", 0, 13, GetStatus.OFFSET_OVERFLOW_ONE, 13, 10, 13, id="at the end"),
            pytest.param(b"t", 0, 99, GetStatus.OFFSET_OVERFLOW_BADLY, 13, 10, 13, id="beyond the end"),
            pytest.param(b"t", 0, 11, GetStatus.FOUND, 13, 10, 13, id="found"),
        ],
    )
    def test_the_table(self, built, topic, queue, offset, status, following, low, high):
        found = Reader(built).pull(offset, topic=topic, queue=queue)
        assert (found.status, found.next_offset) == (status, following)
        assert (found.min_offset, found.max_offset) == (low, high)
        assert (found.count > 0) == (status is GetStatus.FOUND)

    @pytest.mark.parametrize(
        ("topic", "queue", "error"),
        [
            pytest.param(b"no", 0, "UnknownTopic", id="unknown topic"),
            pytest.param(b"\xff", 0, "UnknownTopic", id="topic not UTF-8"),
            pytest.param(b"../t", 0, "UnknownTopic", id="topic is a path"),
            pytest.param(b"t", 2, "UnknownQueue", id="unknown queue"),
            pytest.param(b"t", -1, "UnknownQueue", id="negative queue"),
        ],
    )
    def test_a_queue_that_clients_do_not_read_is_refused_by_name_and_leads_nowhere(self, built, topic, queue, error):
        found = Reader(built).pull(5, topic=topic, queue=queue)
        assert (found.status, found.next_offset, found.count) == (GetStatus.REFUSED, 5, 0)
        assert json.loads(found.why[0])["error"] == error

    def test_no_matched_message_goes_on_behind_what_was_looked_at(self, built):
        found = Reader(built).pull(10, codes=(1,))
        assert (found.status, found.next_offset, found.count) == (GetStatus.NO_MATCHED_MESSAGE, 13, 0)

    def test_a_missing_file_of_the_queue_leads_to_the_next_one(self, built):
        built.fill(20)
        (built.store.consumequeue / "t" / "0" / segment_name(2 * 160)).unlink()
        found = Reader(built).pull(17)
        assert (found.status, found.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 24)

    def test_the_next_file_is_not_beyond_the_end(self, built):
        (built.store.consumequeue / "t" / "0" / segment_name(160)).unlink()
        found = Reader(built).pull(11)
        assert (found.status, found.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 13)

    def test_records_that_left_the_log(self, built):
        built.forget_before(built.end)
        found = Reader(built).pull(10)
        assert (found.status, found.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 13)


def test_nobody_is_sent_back_before_the_queues_are_as_long_as_the_log_was(build):
    built = build()
    built.topics(t=2)
    built.fill(3)
    built.append()
    built.append("t", 1)
    reader = Reader(built)
    assert reader.pull(1).count == 2, "what is there is served at once"
    for offset, queue in ((9, 0), (9, 1)):
        assert reader.pull(offset, queue=queue).next_offset == 9
    built.dispatch()
    assert reader.pull(9).next_offset == 4
    assert reader.pull(9, queue=1).next_offset == 1


def test_on_a_slave_a_wrong_offset_stays_as_it_was_asked(build):
    built = build(broker_role="SLAVE")
    built.topics(t=2)
    built.fill(3, first=10)
    reader = Reader(built)
    for offset, queue in ((9, 0), (99, 0), (5, 1), (5, 2)):
        assert reader.pull(offset, queue=queue).next_offset == offset
    assert reader.pull(5, queue=2).status is GetStatus.NO_MATCHED_LOGIC_QUEUE


def test_a_slave_may_be_told_to_correct_offsets(build):
    built = build(broker_role="SLAVE", offset_check_in_slave=True)
    built.fill(3, first=10)
    assert Reader(built).pull(99).next_offset == 13


def test_what_is_appended_but_not_dispatched_is_not_there(build):
    built = build()
    built.fill(2)
    built.append()
    reader = Reader(built)
    assert reader.pull(0).count == 2
    assert reader.pull(2).status is GetStatus.OFFSET_OVERFLOW_ONE
    built.dispatch()
    assert reader.pull(2).count == 1


class TestBytes:
    def test_a_lone_queue_is_one_slice_of_the_log(self, build):
        built = build()
        offsets = built.fill(5)
        reader = Reader(built)
        found = reader.pull(1)
        assert bytes(found.records) == built.bytes_of(offsets[1:])
        assert sizes(found) == [len(built.records[offset]) for offset in offsets[1:]]
        segment = reader.log.array(0)
        assert np.shares_memory(np.frombuffer(found.records, dtype=np.uint8), segment)

    def test_records_between_others_are_gathered(self, build):
        built = build()
        offsets = []
        for number in range(6):
            offsets.append(built.append("t", 0, b"%d" % number * 30))
            built.append("t", 1)
        built.dispatch()
        found = Reader(built).pull(0)
        assert bytes(found.records) == built.bytes_of(offsets)
        assert sizes(found) == [len(built.records[offset]) for offset in offsets]
        assert found.next_offset == found.max_offset == 6

    def test_a_queue_of_three_files_is_read_file_by_file(self, build):
        built = build()
        offsets = built.fill(2 * ENTRIES_PER_FILE + 3)
        reader = Reader(built)
        got, ends, offset = b"", [], 0
        while (found := reader.pull(offset)).status is GetStatus.FOUND:
            got += bytes(found.records)
            offset = found.next_offset
            ends.append(offset)
        assert got == built.bytes_of(offsets)
        assert ends == [8, 16, 19]

    def test_an_answer_ends_at_the_segment(self, build):
        built = build()
        offsets = [built.append("t", 0, b"y" * 30_000) for _ in range(3)]
        built.dispatch()
        assert offsets[2] == SEGMENT
        reader = Reader(built)
        first = reader.pull(0)
        assert (bytes(first.records), first.next_offset) == (built.bytes_of(offsets[:2]), 2)
        second = reader.pull(2)
        assert (bytes(second.records), second.next_offset) == (built.bytes_of(offsets[2:]), 3)

    def test_a_log_that_begins_late(self, build):
        built = build(base=5 * SEGMENT)
        offsets = built.fill(3, first=100)
        found = Reader(built).pull(100)
        assert (bytes(found.records), found.next_offset) == (built.bytes_of(offsets), 103)


class TestLimits:
    @pytest.fixture
    def built(self, build: Build) -> Built:
        built = build()
        for _ in range(6):
            built.append(body=b"z" * 100)
        built.dispatch()
        return built

    def test_by_count(self, built):
        found = Reader(built).limited(1, 2, MANY)
        assert (found.count, found.next_offset) == (2, 3)

    def test_by_bytes(self, built):
        size = len(built.records[0])
        assert Reader(built).limited(0, MANY, 3 * size).count == 3
        assert Reader(built).limited(0, MANY, 3 * size - 1).count == 2

    @pytest.mark.parametrize(("count", "size"), [(0, 0), (-5, -5), (MANY, 1), (1, MANY)])
    def test_the_first_record_comes_whatever_its_size(self, built, count, size):
        found = Reader(built).limited(3, count, size)
        assert (found.count, found.next_offset) == (1, 4)

    def test_the_settings_count_limit(self, build):
        built = build(max_transfer_count_on_message_in_memory=2)
        built.fill(5)
        assert Reader(built).pull(0).count == 2

    @pytest.mark.parametrize("key", ["max_transfer_bytes_on_message_in_memory", "pull_bytes_max"])
    def test_the_settings_byte_limits(self, build, key):
        built = build(**{key: 70 * 1024})
        for _ in range(5):
            built.append("t", 0, b"y" * 20_000)
        built.dispatch()
        assert Reader(built).pull(0).count == 3  # a segment takes three

    def test_records_that_are_not_in_memory_have_their_own_limits(self, build):
        built = build(access_message_in_memory_max_ratio=0, max_transfer_count_on_message_in_disk=3)
        built.fill(5)
        assert Reader(built).pull(0).count == 3

    def test_and_their_own_limit_of_bytes(self, build):
        built = build(access_message_in_memory_max_ratio=0, max_transfer_bytes_on_message_in_disk=1024)
        for _ in range(5):
            built.append("t", 0, b"y" * 300)
        built.dispatch()
        size = len(built.records[0])
        assert Reader(built).pull(0).count == 1024 // size == 2

    def test_who_is_further_behind_than_memory_reaches_is_told(self, build):
        built = build(access_message_in_memory_max_ratio=0)
        built.fill(5)
        assert Reader(built).pull(0).behind
        warm = build()
        warm.fill(5)
        assert not Reader(warm).pull(0).behind


class TestFilter:
    @pytest.fixture
    def built(self, build: Build) -> Built:
        built = build()
        for tag in ("a", "b", "a", None, "Aa", "BB"):
            built.append(tag=tag)
        built.dispatch()
        return built

    def kept(self, built: Built, *tags: str, offset: int = 0) -> tuple[list[bytes], int]:
        found = Reader(built).pull(offset, codes=tuple(tags_code(tag) for tag in tags))
        data, records = bytes(found.records), []
        for size in sizes(found):
            records.append(data[:size])
            data = data[size:]
        assert not data
        return records, found.next_offset

    def test_one_tag(self, built):
        offsets = list(built.records)
        assert self.kept(built, "a") == ([built.records[offsets[0]], built.records[offsets[2]]], 6)

    def test_two_tags(self, built):
        offsets = list(built.records)
        expected = [built.records[offset] for offset in offsets[:3]]
        assert self.kept(built, "a", "b") == (expected, 6)

    def test_a_tag_of_the_same_hash_passes_and_is_left_to_the_reader(self, built):
        offsets = list(built.records)
        assert self.kept(built, "BB") == ([built.records[offset] for offset in offsets[4:]], 6)

    def test_a_limit_counts_what_passed_and_goes_on_at_the_next_that_passes(self, built):
        found = Reader(built).puller.run(Pull(1, b"t", 0, 0, 1, MANY, 0, (tags_code("a"),)))
        assert (found.count, found.next_offset) == (1, 2)

    def test_a_filtered_pull_looks_at_a_bounded_number_of_entries(self, build):
        built = build(max_filter_message_size=5 * 20)
        built.fill(8, tag="a")
        found = Reader(built).puller.run(Pull(1, b"t", 0, 0, 2, MANY, 0, (tags_code("b"),)))
        assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)

    def test_fillers_before_the_first_message_are_passed_over(self, build):
        built = build()
        offsets = built.fill(2, first=5)
        built.ends.move_min(0, 0)  # as a restart of a broker may leave it (spec 3.3)
        found = Reader(built).pull(0)
        assert (bytes(found.records), found.next_offset) == (built.bytes_of(offsets), 7)


class TestRemoved:
    def test_a_pull_of_records_below_the_log_is_told_and_led_to_the_first_that_is_left(self, build):
        built = build()
        offsets = [built.append("t", 0, b"y" * 30_000) for _ in range(4)]
        built.dispatch()
        built.forget_before(SEGMENT)
        reader = Reader(built)
        found = reader.pull(1)
        assert (found.status, found.next_offset, found.count) == (GetStatus.MESSAGE_WAS_REMOVING, 2, 0)
        found = reader.pull(2)
        assert (bytes(found.records), found.next_offset) == (built.bytes_of(offsets[2:]), 4)

    def test_a_segment_that_went_a_moment_ago_is_no_different(self, build):
        built = build()
        offsets = [built.append("t", 0, b"y" * 30_000) for _ in range(4)]
        built.dispatch()
        reader = Reader(built)
        (built.store.commitlog / segment_name(0)).unlink()
        found = reader.pull(0)
        assert (found.status, found.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 2)
        found = reader.pull(2)
        assert (bytes(found.records), found.next_offset) == (built.bytes_of(offsets[2:]), 4)


@pytest.mark.parametrize(
    ("at", "size"),
    [
        pytest.param(10 * SEGMENT - 50, 100, id="across a segment's border"),
        pytest.param(200, 200_000, id="longer than a segment"),
        pytest.param(100, 10, id="shorter than a record"),
        pytest.param(SEGMENT - 200, 150, id="behind the log's end"),
        pytest.param(-5, 150, id="negative"),
    ],
)
def test_an_entry_that_leads_out_of_the_log_is_named(build, at, size):
    built = build()
    built.fill(3)
    built.queues.write("t", 0, 1, np.frombuffer(encode(at, size, 0), dtype=ENTRY))
    (built.store.commitlog / segment_name(9 * SEGMENT)).write_bytes(bytes(SEGMENT))
    reader = Reader(built)
    with pytest.raises(QueueDamaged, match="entry 1 of queue 0 of 't'"):
        reader.pull(1)
    assert reader.pull(0).count == 1, "what stands before it"
    assert reader.pull(2).count == 1


@pytest.mark.parametrize("longer", [1, 150], ids=["by one byte", "by a record"])
def test_an_entry_that_reaches_past_what_is_written_is_named(build, longer):
    """The newest of a queue: no entry behind it tells that it is too long, and its segment goes on with zeros."""
    built = build()
    last = built.fill(3)[-1]
    end = built.positions.get(Position.APPENDED)
    built.queues.write("t", 0, 2, np.frombuffer(encode(last, end - last + longer, 0), dtype=ENTRY))
    reader = Reader(built)
    with pytest.raises(QueueDamaged, match=f"{end - last + longer} bytes at {last} of the log"):
        reader.pull(2)
    assert reader.limited(0, 2, MANY).count == 2
