"""Put's kernel for the socket's requests: what it stores and answers is what the appender's kernel would store."""

import mmap
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.put.fast_append import KnownQueues
from tests.kernels.order import dies_of_a_store_to, shared
from towline.fence import fence
from towline.format.record.record import MessageEncoder
from towline.format.wire.frames import Group, decode_put_answer, encode_put
from towline.kernels.base import forms, ownership
from towline.kernels.jit import rows
from towline.kernels.put import put_ring, stamp
from towline.kernels.put import put_rows as kernel
from towline.limits import REQUEST_GROUPS_MAX

TOPICS = (b"orders", b"a-topic-of-another-length")
BASE = 1 << 20
NOW = 1_700_000_000_123
NEVER = 1 << 60
LOG = 256 * 1024
HOST = np.frombuffer(bytes([10, 0, 0, 1, 0, 0, 42, 159]), np.uint8)
OWN = ownership.own_values("cluster-a")
APPENDED, STAMPED, WATCHED = 0, 8, 16
CHECKS = stamp.CHECK_CRC | stamp.FROM_CLIENT
FIRST = 100  # queue offset of each queue's next record
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(3)]
ENCODERS = {topic: MessageEncoder(topic) for topic in TOPICS}
REALS = forms.RealTopics()


def record(number: int, queue: tuple[bytes, int] = QUEUES[0], size: int = 100) -> bytes:
    properties = b"UNIQ_KEY\x01%08d\x02" % number
    return ENCODERS[queue[0]].encode(queue[1], bytes([number & 0xFF]) * size, properties, born_timestamp=NOW)


class Desk:
    """A table of requests as ZeroMQ would hold them, a log and what the kernel knows."""

    def __init__(self) -> None:
        self.rows = np.zeros(kernel.ROWS * kernel.ROW_SIZE, np.int64)
        self.kept: list[np.ndarray] = []
        self.count = 0
        self.log = np.zeros(LOG, np.uint8)
        self.positions = np.zeros(3, np.int64)
        self.marks = np.zeros(kernel.MARKS_SIZE, np.int64)
        self.answers = np.zeros(kernel.ANSWERS_SIZE, np.uint8)
        self.state = np.zeros(put_ring.STATE_SIZE, np.int64)
        self.known = KnownQueues()
        for topic, queue_id in QUEUES:
            self.known.update(Group(topic, queue_id, 1, 1), FIRST, plain=True)
        self.log_end = LOG - 8
        self.oldest = 0

    def row(self, field: int, number: int | None = None) -> int:
        return int(self.rows[(self.count - 1 if number is None else number) * kernel.ROW_SIZE + field])

    def put(self, head: bytes, records: bytes, arrived_ms: int = 1_000) -> None:
        at = self.count * kernel.ROW_SIZE
        for field, data in ((kernel.HEAD, head), (kernel.RECORDS, records)):
            held = np.frombuffer(bytes(data), np.uint8)
            self.kept.append(held)
            self.rows[at + field], self.rows[at + field + 1] = held.ctypes.data, held.size
        self.rows[at + kernel.ARRIVED], self.rows[at + kernel.MEMORY] = arrived_ms, len(head) + len(records)
        self.rows[at + kernel.MARK] = kernel.PLAIN
        self.count += 1

    def offer(self, *groups: tuple[tuple[bytes, int], list[bytes]], deadline: int = NEVER, id_: int = 7) -> None:
        stated = [Group(topic, queue_id, len(data), sum(map(len, data))) for (topic, queue_id), data in groups]
        self.put(encode_put(id_, 0, deadline, stated), b"".join(b"".join(data) for _, data in groups))

    def serve(self, first: int = 0, count: int | None = None, size: int = 1 << 20) -> int:
        limits = np.zeros(put_ring.LIMITS_SIZE, np.int64)
        limits[put_ring.LOG_END], limits[put_ring.BYTES_MAX] = self.log_end, size
        limits[put_ring.REQUEST_LIMIT], limits[put_ring.NOW_MS] = 16 * 1024, NOW
        limits[put_ring.APPENDED], limits[put_ring.STAMPED] = APPENDED, STAMPED
        limits[put_ring.OLDEST] = self.oldest
        self.state[put_ring.REQUESTS :] = 0
        return kernel.serve_rows(
            self.rows,
            first,
            self.count - first if count is None else count,
            self.state,
            limits,
            self.positions.view(np.uint8),
            np.array([WATCHED, 0]),
            self.marks.view(np.uint8),
            self.answers,
            self.log,
            self.known.arguments,
            np.zeros(REQUEST_GROUPS_MAX, rows.GROUP),
            (OWN, BASE, NOW, HOST, 1 << 20, CHECKS, REALS.at(NOW, NOW), np.zeros(stamp.RESULT_SIZE, np.int64)),
        )

    @property
    def served(self) -> int:
        return int(self.state[put_ring.REQUESTS])

    @property
    def end(self) -> int:
        return int(self.state[put_ring.LOG_AT])

    def told(self, first: int = 0):
        """The answers to what the last call served, decoded."""
        found = []
        for number in range(first, first + self.served):
            at = self.row(kernel.ANSWER_AT, number)
            found.append(decode_put_answer(self.answers[at : at + self.row(kernel.ANSWER_SIZE, number)].tobytes()))
        return found


@pytest.fixture
def desk():
    return Desk()


class OneByOne:
    """The same requests as the appender stores them: one call of `append_request` for each."""

    def __init__(self) -> None:
        self.log, self.at = np.zeros(LOG, np.uint8), 0
        self.next = dict.fromkeys(QUEUES, FIRST)

    def put(self, groups):
        """(queue offset, physical offset) of each group's first record."""
        frame = np.frombuffer(b"".join(b"".join(data) for _, data in groups), np.uint8)
        arena = np.frombuffer(b"".join(topic for (topic, _), _ in groups), np.uint8)
        filled = np.zeros(len(groups), rows.GROUP)
        places, before, start = [], 0, 0
        for number, (queue, data) in enumerate(groups):
            size = sum(map(len, data))
            filled[number] = (size, len(data), self.next[queue], start, len(queue[0]), queue[1], 0)
            places.append((self.next[queue], BASE + self.at + before))
            before, start = before + size, start + len(queue[0])
        result, reals = np.zeros(stamp.RESULT_SIZE, np.int64), REALS.at(NOW, NOW)
        assert not stamp.append_request(
            self.log, self.at, frame, filled, len(groups), arena, OWN, BASE, NOW, HOST, 1 << 20, CHECKS, reals, result
        )
        self.log[self.at : self.at + 8] = frame[:8]
        self.at += frame.size
        for (queue, _), following in zip(groups, filled["next_offset"].tolist(), strict=True):
            self.next[queue] = following
        return places


requests = st.lists(
    st.dictionaries(
        st.sampled_from(QUEUES), st.lists(st.integers(0, 300), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=20,
)


@given(requests, st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_many_requests_in_one_call_are_stored_and_answered_as_one_by_one(made, step):
    desk, other = Desk(), OneByOne()
    wanted = []
    for number, sizes in enumerate(made):
        groups = [(queue, [record(number, queue, size) for size in of]) for queue, of in sizes.items()]
        wanted.append((number, other.put(groups)))
        desk.offer(*groups, id_=number)
    told = []
    for first in range(0, desk.count, step):
        assert desk.serve(first, min(step, desk.count - first)) == kernel.DONE
        told += [(answer.request_id, answer.places) for answer in desk.told(first)]
        assert not any(answer.status or answer.rule or answer.record != -1 for answer in desk.told(first))
        assert desk.row(kernel.LOG_END, first + desk.served - 1) == BASE + desk.end == desk.positions[0]
    assert told == wanted
    assert desk.log.tobytes() == other.log.tobytes()
    assert {queue: desk.known.state[number * put_ring.QUEUE_STATE] for number, queue in enumerate(QUEUES)} == other.next
    assert desk.positions[1] == NOW


def test_what_was_served_is_counted_by_queue(desk):
    small, large = record(1), record(2, QUEUES[4], 300)
    desk.offer((QUEUES[0], [small]))
    desk.offer((QUEUES[4], [large, large]), (QUEUES[0], [small]))
    assert desk.serve() == kernel.DONE
    assert desk.known.served(int(desk.state[put_ring.TOUCHED])) == [
        (QUEUES[0], FIRST + 2, 2, 2 * len(small), 2),
        (QUEUES[4], FIRST + 2, 2, 2 * len(large), 1),
    ]
    assert desk.state[put_ring.HELD] == sum(desk.row(kernel.MEMORY, number) for number in range(2))


def test_a_turn_ends_when_enough_bytes_were_stored(desk):
    for number in range(5):
        desk.offer((QUEUES[0], [record(number)]))
    assert desk.serve(size=2 * len(record(0))) == put_ring.TURN
    assert desk.served == 2
    assert desk.serve(first=2) == kernel.DONE
    assert desk.served == 3


def _unknown_topic(desk):
    desk.offer(((b"others", 0), [record(1)]))


def _unknown_queue(desk):
    desk.offer((QUEUES[1], [record(1, QUEUES[1])]), ((TOPICS[0], 7), [record(1)]))


def _late(desk):
    desk.offer((QUEUES[0], [record(1)]), deadline=NOW - 1)


def _waited_too_long(desk):
    desk.oldest = 1_001
    desk.offer((QUEUES[0], [record(1)]))


def _from_a_piece_of_the_node(desk):
    desk.offer((QUEUES[0], [record(1)]))
    desk.rows[(desk.count - 1) * kernel.ROW_SIZE + kernel.MARK] = kernel.TRUSTED


def _too_large(desk):
    desk.offer((QUEUES[0], [record(1, size=15_000), record(2, size=3_000)]))


def _bad_crc(desk):
    data = bytearray(record(1))
    data[90] ^= 1
    desk.offer((QUEUES[0], [record(3), bytes(data)]))


def _a_queue_twice(desk):
    desk.offer((QUEUES[0], [record(1)]), (QUEUES[1], [record(2, QUEUES[1])]), (QUEUES[0], [record(3)]))


def _records_of_another_queue(desk):
    desk.offer((QUEUES[0], [record(1, QUEUES[1])]))


def _a_size_that_is_not_the_records(desk):
    data = record(1)
    desk.put(encode_put(1, 0, NEVER, [Group(*QUEUES[0], 1, len(data) - 1)]), data)


def _a_count_that_is_not_the_records(desk):
    data = record(1)
    desk.put(encode_put(1, 0, NEVER, [Group(*QUEUES[0], 2, len(data))]), data)


def _no_records(desk):
    desk.put(encode_put(1, 0, NEVER, [Group(*QUEUES[0], 1, 1)]), b"")


def _no_room_in_the_segment(desk):
    desk.log_end = desk.end + 50
    desk.offer((QUEUES[0], [record(1)]))


def _bytes_behind_the_end(desk):
    desk.log[desk.end + 3] = 1
    desk.offer((QUEUES[0], [record(1)]))


LEFT = [
    _unknown_topic,
    _unknown_queue,
    _late,
    _waited_too_long,
    _from_a_piece_of_the_node,
    _too_large,
    _bad_crc,
    _a_queue_twice,
    _records_of_another_queue,
    _a_size_that_is_not_the_records,
    _a_count_that_is_not_the_records,
    _no_records,
    _no_room_in_the_segment,
    _bytes_behind_the_end,
]


class TestWhatIsNotPlain:
    @pytest.mark.parametrize("make", LEFT, ids=lambda make: make.__name__[1:].replace("_", " "))
    def test_is_left_and_log_and_numbers_are_as_before(self, desk, make):
        desk.offer((QUEUES[0], [record(1)]))
        assert desk.serve() == kernel.DONE
        make(desk)
        before, positions, numbers = desk.log.copy(), desk.positions.tolist(), desk.known.state.copy()
        assert desk.serve(first=1) == put_ring.OTHER
        assert desk.served == 0
        assert (desk.log == before).all()
        assert desk.positions.tolist() == positions
        seen = np.arange(numbers.size) % put_ring.QUEUE_STATE == put_ring.SEEN
        assert (desk.known.state == numbers)[~seen].all()

    @pytest.mark.parametrize("make", [_unknown_topic, _late, _bad_crc, _a_queue_twice, _no_records])
    def test_does_not_keep_back_what_came_before_it(self, desk, make):
        desk.offer((QUEUES[0], [record(1)]))
        make(desk)
        desk.offer((QUEUES[0], [record(2)]))
        assert desk.serve() == put_ring.OTHER
        assert desk.served == 1

    def test_is_everything_once_a_watched_word_has_changed(self, desk):
        desk.offer((QUEUES[0], [record(1)]))
        desk.positions[WATCHED // 8] = 1
        assert desk.serve() == put_ring.CHANGED
        assert desk.end == 0

    def test_is_everything_once_the_stall_responder_has_said_stop(self, desk):
        desk.offer((QUEUES[0], [record(1)]))
        desk.marks[kernel.STOP] = 1
        assert desk.serve() == kernel.STOPPED
        assert (desk.end, desk.marks[kernel.CURRENT]) == (0, 0)


def test_who_says_stop_knows_what_will_not_be_begun(desk):
    """Another thread says stop and reads which row is served: no row behind that one is stored, in any of the races."""
    for number in range(200):
        desk.offer((QUEUES[0], [record(number, size=7)]))
    for _ in range(50):
        desk.log[:] = 0
        desk.state[:] = 0
        desk.marks[:] = 0
        began = threading.Event()
        seen = []

        def stop(began=began, seen=seen):
            began.wait()
            desk.marks[kernel.STOP] = 1
            fence()
            seen.append(int(desk.marks[kernel.CURRENT]))

        thread = threading.Thread(target=stop)
        thread.start()
        began.set()
        why = desk.serve()
        thread.join()
        assert why in (kernel.STOPPED, kernel.DONE)
        assert desk.served <= seen[0] + 1
        assert why == kernel.DONE or desk.served in (seen[0], seen[0] + 1)


@given(st.binary(max_size=80), st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_garbage_is_left(head, records):
    desk = Desk()
    desk.put(head, records)
    assert desk.serve() == put_ring.OTHER
    assert not desk.log.any()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_head_with_one_byte_changed_is_served_as_it_says_or_left(data):
    desk = Desk()
    desk.offer((QUEUES[0], [record(1)]), (QUEUES[4], [record(2, QUEUES[4])]))
    head = bytearray(desk.kept[0].tobytes())
    head[data.draw(st.integers(0, len(head) - 1))] ^= data.draw(st.integers(1, 255))
    desk.count = 0
    desk.put(bytes(head), desk.kept[1].tobytes())
    if desk.serve() == kernel.DONE:  # flags, request id, epoch or deadline were changed
        assert desk.end == desk.kept[1].size
    else:
        assert not desk.log.any()


def test_the_end_of_the_log_moves_when_the_first_bytes_of_a_request_are_stored(desk):
    desk.log, page = shared(LOG), shared(mmap.PAGESIZE)
    desk.positions = page[:24].view(np.int64)
    first = record(1)
    desk.offer((QUEUES[0], [first]))
    assert dies_of_a_store_to(page, desk.serve)
    assert desk.log[:8].tobytes() == first[:8]


@pytest.mark.parametrize(("more", "stored"), [(0, 1), (1, 0)], ids=["the last byte", "a byte too many"])
def test_room_for_the_blank_is_left_to_the_byte(desk, more, stored):
    first = record(1)
    desk.log_end = len(first) - more
    desk.offer((QUEUES[0], [first]))
    desk.serve()
    assert (desk.served, desk.end) == (stored, stored * len(first))
