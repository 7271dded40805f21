"""Put's kernel for rings: what it serves is what the model stores one by one, and the rest stays in the ring."""

import mmap
import os
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.order import dies_of_a_store_to, shared
from tests.kernels.put.desk import APPENDED, BASE, LOG, NEVER, NOW, WATCHED, Log
from tests.kernels.put.one_by_one import OneByOne
from towline.clock import SystemClock
from towline.format.record.record import MessageEncoder, decode
from towline.format.wire.frames import Group, decode_put_answer, encode_put
from towline.format.wire.put_ring import ANSWERS_SIZE, HEAD_SIZE, PAD, STAMPS, Word, entry_max, file_size, request_word
from towline.kernels.jit import rows
from towline.kernels.jit.rows import RequestStatus
from towline.kernels.put import put_ring as kernel
from towline.kernels.put.append import ANSWER_MAX
from towline.link.native import address_of_call
from towline.link.put_ring import RingBroken, answers_reader, requests_reader, requests_writer

AREA = 64 * 1024
TOPIC = b"orders"
ENCODER = MessageEncoder(TOPIC)


def record(number: int, size: int = 100, queue_id: int = 0) -> bytes:
    properties = b"UNIQ_KEY\x01%08d\x02" % number
    return ENCODER.encode(queue_id, bytes([number & 0xFF]) * size, properties, born_timestamp=NOW)


class Desk(Log):
    """A ring and a log; `serve` calls the kernel."""

    def __init__(self) -> None:
        super().__init__()
        view = memoryview(bytearray(file_size(AREA)))
        self.memory = SimpleNamespace(view=view, words=view.cast("q"))
        self.ring_bytes = np.frombuffer(view, np.uint8)
        self.writer = requests_writer(self.memory, AREA)
        self.reader = requests_reader(self.memory, AREA)
        self.answers = answers_reader(self.memory, AREA)
        self.kept = np.zeros(2 * ANSWER_MAX, np.uint8)
        self.rows = np.zeros(100, rows.REQUEST)
        self.entry = np.zeros(entry_max(AREA), np.uint8)
        self.bell_byte = np.zeros(1, np.uint8)
        self.rings = np.zeros(1, kernel.RING)
        ring = self.ring = rows.fields_of(self.rings)[0]
        ring.area, ring.entry, ring.entry_max = AREA, self.entry.ctypes.data, self.entry.size
        self.allow(TOPIC, 0, 100)

    def offer_groups(self, *groups: tuple[int, bytes], id_: int = 7) -> None:
        """A record for each queue of a request."""
        data = b"".join(each for _, each in groups)
        head = encode_put(id_, 0, NEVER, [Group(TOPIC, queue_id, 1, len(each)) for queue_id, each in groups])
        assert self.writer.offer(request_word(len(head), len(head) + len(data)), (head, data))

    def offer(
        self,
        *records: bytes,
        topic: bytes = TOPIC,
        queue_id: int = 0,
        deadline: int = NEVER,
        id_: int = 7,
        stamp: int = 0,
    ):
        data = b"".join(records)
        head = encode_put(id_, 0, deadline, [Group(topic, queue_id, len(records), len(data))])
        assert self.writer.offer(request_word(len(head), len(head) + len(data), stamp), (head, data))

    def ring_bell(self, bell: int) -> None:
        """Lets the kernel wake the client by itself."""
        self.ring.spins = self.ring.spins_max = 100
        self.ring.write, self.ring.bell, self.ring.bell_byte = (
            address_of_call("write"),
            bell,
            self.bell_byte.ctypes.data,
        )

    def serve(self, requests: int = 100, *, keeps: bool = False) -> int:
        self.begin()
        self.ring.kept, self.ring.keeps = 0, keeps
        return kernel.serve_ring(self.ring_bytes, self.rings, self.rows[:requests], self.kept, self.arguments)

    def answer(self, first: int, count: int, status: int = 0) -> int:
        """Those that the last call kept."""
        return kernel.answer_ring(self.ring_bytes, self.rings, self.kept, self.rows, first, count, status)

    @property
    def end(self) -> int:
        return self.state.at

    def told(self):
        """The answers that came, decoded."""
        found = []
        while (taken := self.answers.take(entry_max(ANSWERS_SIZE))) is not None:
            found.append(decode_put_answer(taken[1]))
        return found


@pytest.fixture
def desk():
    return Desk()


def stored(*batches: list[bytes], start: int = 100) -> bytes:
    """What the model makes of the same requests."""
    model = OneByOne({(TOPIC, 0): start})
    for records in batches:
        model.put([((TOPIC, 0), records)])
    return model.log[: model.at].tobytes()


class TestWhatIsStored:
    def test_is_what_the_model_stores_and_is_answered_with_its_place(self, desk):
        batches = [[record(1)], [record(2, 300), record(3, 7)], [record(4, 0)]]
        for number, batch in enumerate(batches):
            desk.offer(*batch, id_=number)
        assert desk.serve() == kernel.EMPTY
        wanted = stored(*batches)
        assert desk.bytes[: desk.end].tobytes() == wanted
        assert not desk.bytes[desk.end :].any()
        assert desk.positions.tolist() == [BASE + len(wanted), NOW, 0]
        told = desk.told()
        assert [(answer.request_id, answer.status, answer.record) for answer in told] == [
            (0, 0, -1),
            (1, 0, -1),
            (2, 0, -1),
        ]
        starts = [0, len(batches[0][0]), len(batches[0][0]) + sum(map(len, batches[1]))]
        assert [answer.places for answer in told] == [
            [(offset, BASE + start)] for offset, start in zip((100, 101, 103), starts, strict=True)
        ]
        size = sum(len(each) for batch in batches for each in batch)
        assert list(desk.queues.stored(desk.state.touched)) == [(TOPIC, 0, 4, size, 3)]
        assert desk.queues.ends() == [(TOPIC, 0, 104)]

    def test_goes_round_the_ring_many_times(self, desk):
        for number in range(2_000):
            desk.offer(record(number, number % 90), id_=number)
            if desk.end > LOG - 2_000:
                desk.bytes[:] = 0
                desk.state.at = 0
            assert desk.serve() == kernel.EMPTY
            (answer,) = desk.told()
            assert (answer.request_id, answer.status, answer.places[0][0]) == (number, 0, 100 + number)

    def test_is_served_up_to_a_turn(self, desk):
        for number in range(5):
            desk.offer(record(number))
        assert desk.serve(requests=3) == kernel.TURN
        assert len(desk.told()) == 3
        assert desk.serve() == kernel.EMPTY

    def test_is_told_at_once_to_a_client_that_sleeps_and_that_once(self, desk):
        desk.memory.words[Word.CLIENT_SLEEPS] = 1
        for number in range(4):
            desk.offer(record(number))
        assert desk.serve() == kernel.ASLEEP
        assert len(desk.told()) == 1
        assert desk.serve() == kernel.EMPTY  # it has not been seen awake
        assert len(desk.told()) == 3
        desk.memory.words[Word.CLIENT_SLEEPS] = 0
        desk.offer(record(4))
        assert desk.serve() == kernel.EMPTY
        desk.memory.words[Word.CLIENT_SLEEPS] = 1
        for number in range(2):
            desk.offer(record(number))
        assert desk.serve() == kernel.ASLEEP
        assert len(desk.told()) == 2

    def test_rings_a_client_that_sleeps_by_itself_where_it_is_told_how(self, desk):
        heard, bell = os.pipe2(os.O_NONBLOCK)
        desk.ring_bell(bell)
        try:
            for number in range(3):
                desk.offer(record(number))
            assert desk.serve() == kernel.EMPTY
            with pytest.raises(BlockingIOError):  # nobody sleeps
                os.read(heard, 9)
            desk.memory.words[Word.CLIENT_SLEEPS] = 1
            for number in range(4):
                desk.offer(record(number))
            assert desk.serve() == kernel.EMPTY
            assert len(desk.told()) == 7
            assert os.read(heard, 9) == bytes(2)  # at the first answer, and when it did not come
        finally:
            os.close(heard)
            os.close(bell)

    def test_may_be_for_several_queues(self, desk):
        desk.allow(TOPIC, 1, 7)
        first, second = record(1), record(2, 30, queue_id=1)
        desk.offer_groups((0, first), (1, second))
        assert desk.serve() == kernel.EMPTY
        (answer,) = desk.told()
        assert answer.places == [(100, BASE), (7, BASE + len(first))]
        assert desk.end == len(first) + len(second)


class TestAnswersThatAreNotDue:
    def test_are_kept_and_told_in_parts_when_they_are(self, desk):
        desk.allow(TOPIC, 1, 7)
        first, second, third = record(1), record(2, 30, queue_id=1), record(3)
        desk.offer(first, id_=1)
        desk.offer_groups((0, third), (1, second), id_=2)
        desk.offer(first, id_=3)
        assert desk.serve(keeps=True) == kernel.EMPTY
        assert desk.told() == []
        ends = desk.rows["log_end"][:3].tolist()
        sizes = len(first), len(third) + len(second), len(first)
        assert ends == [BASE + sizes[0], BASE + sum(sizes[:2]), BASE + sum(sizes)]
        assert desk.positions[APPENDED // 8] == ends[-1]
        kept = desk.ring.kept
        given_back = desk.answer(0, 2)
        told = desk.told()
        assert [(answer.request_id, answer.status) for answer in told] == [(1, 0), (2, 0)]
        assert told[1].places == [(101, ends[0]), (7, ends[0] + len(third))]
        given_back += desk.answer(2, 1, 10)
        (last,) = desk.told()
        assert (last.request_id, last.status, last.places) == (3, 10, [(102, ends[1])])
        assert given_back == kept

    def test_find_room_wherever_the_area_ends(self, desk):
        for turn in range(300):
            desk.bytes[:] = 0
            desk.state.at = 0
            for number in range(50):
                desk.offer(record(number, 0), id_=50 * turn + number)
            assert desk.serve(keeps=True) == kernel.EMPTY
            desk.answer(0, 50)
            assert [answer.request_id for answer in desk.told()] == list(range(50 * turn, 50 * turn + 50))

    def test_take_no_more_than_a_call_can_keep(self, desk):
        desk.kept = np.zeros(ANSWER_MAX + 100, np.uint8)
        for number in range(5):
            desk.offer(record(number))
        assert desk.serve(keeps=True) == kernel.TURN
        served = desk.state.requests
        assert 0 < served < 5
        desk.answer(0, served)
        assert len(desk.told()) == served

    def test_are_counted_as_room_that_is_taken(self, desk):
        one = 48
        desk.ring.reserved = ANSWERS_SIZE - ANSWER_MAX - 8 - 3 * one
        for number in range(6):
            desk.offer(record(number))
        assert desk.serve(keeps=True) == kernel.FULL
        assert 1 <= desk.state.requests <= 3


def _unknown_topic(desk):
    desk.offer(record(1), topic=b"others")


def _unknown_queue(desk):
    desk.offer(record(1, queue_id=1), queue_id=1)


def _late(desk):
    desk.offer(record(1), deadline=NOW - 1)


def _too_large(desk):
    desk.offer(record(1, 15_000), record(2, 3_000))


def _bad_crc(desk):
    data = bytearray(record(1))
    data[90] ^= 1
    desk.offer(bytes(data))


def _two_groups(desk):
    data = record(1)
    head = encode_put(1, 0, NEVER, [Group(TOPIC, 0, 1, len(data)), Group(TOPIC, 1, 1, 1)])
    desk.writer.offer(request_word(len(head), len(head) + len(data)), (head, data))


def _no_room_in_the_segment(desk):
    desk.state.end = 50
    desk.offer(record(1))


def _no_room_for_the_answer(desk):
    desk.ring.reserved = ANSWERS_SIZE - 10
    desk.offer(record(1))


def _answers_moved_back(desk):
    desk.ring.reserved = ANSWERS_SIZE - 10
    desk.memory.words[Word.ANSWERS_HEAD] = -8
    desk.offer(record(1))


def _a_head_as_long_as_the_entry(desk):
    data = record(1)
    desk.writer.offer(request_word(len(data), len(data)), (data,))


LEFT = {
    _unknown_topic: RequestStatus.UNKNOWN_QUEUE,
    _unknown_queue: RequestStatus.UNKNOWN_QUEUE,
    _late: RequestStatus.EXPIRED,
    _too_large: RequestStatus.TOO_LARGE,
    _bad_crc: RequestStatus.BROKEN,
    _two_groups: RequestStatus.BROKEN,
    _no_room_in_the_segment: RequestStatus.SEGMENT_END,
    _no_room_for_the_answer: kernel.FULL,
    _answers_moved_back: kernel.FULL,
    _a_head_as_long_as_the_entry: kernel.BROKEN,
}


class TestWhatIsNotStored:
    @pytest.mark.parametrize("make", LEFT, ids=lambda make: make.__name__[1:].replace("_", " "))
    def test_is_left_in_the_ring_and_the_log_is_as_before(self, desk, make):
        make(desk)
        before, wanted = desk.bytes.copy(), LEFT[make]
        why = desk.serve()
        if isinstance(wanted, RequestStatus):
            assert (why, desk.rows[0]["status"]) == (kernel.ROW, wanted)
        else:
            assert why == wanted
        assert (desk.bytes == before).all()
        assert desk.positions.tolist() == [0, 0, 0]
        assert desk.told() == []
        assert desk.memory.words[Word.REQUESTS_HEAD] == 0
        assert desk.reader.take(entry_max(AREA)) is not None

    def test_waits_behind_what_was_stored(self, desk):
        desk.offer(record(1))
        _unknown_topic(desk)
        desk.offer(record(2))
        assert desk.serve() == kernel.ROW
        assert len(desk.told()) == 1
        assert [int(status) for status in desk.rows["status"][:2]] == [
            RequestStatus.STORED,
            RequestStatus.UNKNOWN_QUEUE,
        ]

    def test_is_stored_by_the_same_code_once_its_queue_is_allowed(self, desk):
        _unknown_queue(desk)
        assert desk.serve() == kernel.ROW
        desk.allow(TOPIC, 1, 7)
        assert desk.serve() == kernel.EMPTY
        (answer,) = desk.told()
        assert answer.places == [(7, BASE)]

    def test_can_be_passed_over_by_what_it_takes_in_the_ring(self, desk):
        _unknown_topic(desk)
        desk.offer(record(2))
        assert desk.serve() == kernel.ROW
        desk.ring.head += desk.ring.taken
        assert desk.serve() == kernel.EMPTY
        assert len(desk.told()) == 1

    def test_is_everything_once_a_watched_word_has_changed(self, desk):
        desk.offer(record(1))
        desk.positions[WATCHED // 8] = 1
        assert desk.serve() == kernel.ROW
        assert (desk.rows[0]["status"], desk.end) == (RequestStatus.SHUT, 0)


words = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-16, 2 * AREA),
    st.builds(request_word, st.integers(0, 200), st.integers(0, AREA)),
    st.just(PAD),
)


@settings(max_examples=300)
@given(tail=words, first=words, at=st.integers(0, AREA // 8 - 1), junk=words, good=st.integers(0, 3))
def test_nothing_that_a_client_writes_makes_the_kernel_store_what_is_no_request(tail, first, at, junk, good):
    desk = Desk()
    for number in range(good):
        desk.offer(record(number))
    assert desk.serve() == kernel.EMPTY
    end = desk.end
    told = len(desk.told())
    desk.offer(record(9))
    desk.memory.words[(HEAD_SIZE + at * 8) // 8] = junk
    desk.memory.words[(HEAD_SIZE + desk.ring.head % AREA) // 8] = first
    desk.memory.words[Word.REQUESTS_TAIL] = tail
    why = desk.serve()
    if desk.end == end:
        assert not desk.bytes[end:].any()
        if why in (kernel.ROW, kernel.BROKEN):  # the interpreter's reader finds the same, or takes it whole
            desk.reader.go_to(desk.ring.tail, desk.ring.head)
            try:
                taken = desk.reader.take(entry_max(AREA))
            except RingBroken:
                taken = None
            assert taken is None or len(taken[1]) <= entry_max(AREA)
    else:
        assert len(desk.told()) + told == good + 1
        assert desk.bytes[end : desk.end].tobytes()[:8] == record(9)[:8]


@pytest.mark.parametrize("keeps", [False, True])
def test_what_its_client_says_of_its_time_stands_beside_each_request(desk, keeps):
    stamps = (5, 0, STAMPS, 7)
    for number, said in enumerate(stamps):
        desk.offer(record(number), stamp=said)
    assert desk.serve(keeps=keeps) == kernel.EMPTY
    assert tuple(desk.rows["stamp"][:4]) == stamps


class TestTheTimeOfARequest:
    """What the kernel takes for `now_ms` and `store_timestamp` where the caller's look at the clock was at NOW."""

    AHEAD = 3_600_000

    @pytest.fixture
    def desk(self, desk):
        desk.state.clock, desk.state.ahead_ms = address_of_call("clock_gettime"), self.AHEAD
        return desk

    @staticmethod
    def stamped(desk, at: int) -> int:
        return decode(desk.bytes[at : desk.end].tobytes()).store_timestamp

    def test_is_the_clock_as_it_is_when_the_request_is_seen(self, desk):
        before = SystemClock().now_ms() + self.AHEAD
        desk.offer(record(1))
        assert desk.serve() == kernel.EMPTY
        assert before <= self.stamped(desk, 0) <= SystemClock().now_ms() + self.AHEAD
        assert desk.positions[1] == self.stamped(desk, 0)

    def test_is_no_earlier_than_that_of_the_record_before(self, desk):
        desk.state.store_timestamp = NEVER
        desk.offer(record(1))
        assert desk.serve() == kernel.EMPTY
        assert self.stamped(desk, 0) == NEVER

    def test_is_the_one_that_its_deadline_is_held_against(self, desk):
        desk.offer(record(1), deadline=SystemClock().now_ms() + self.AHEAD // 2)
        assert desk.serve() == kernel.ROW
        assert desk.rows[0]["status"] == RequestStatus.EXPIRED
        assert desk.end == 0

    def test_is_the_callers_for_those_that_were_there_before_its_look(self, desk):
        for number in range(2):
            desk.offer(record(number))
        assert desk.serve(requests=1) == kernel.TURN
        desk.state.store_timestamp = NEVER
        end = desk.end
        assert desk.serve() == kernel.EMPTY
        assert self.stamped(desk, end) == NEVER


class TestTheEndOfTheLog:
    def test_moves_when_the_first_bytes_of_a_request_are_stored(self, desk):
        desk.bytes, page = shared(LOG), shared(mmap.PAGESIZE)
        desk.positions = page[:24].view(np.int64)
        first = record(1)
        desk.offer(first)
        assert dies_of_a_store_to(page, desk.serve)
        assert desk.bytes[:8].tobytes() == first[:8]

    @pytest.mark.parametrize(("more", "stored"), [(0, 1), (1, 0)], ids=["the last byte", "a byte too many"])
    def test_leaves_room_for_the_blank_to_the_byte(self, desk, more, stored):
        first = record(1)
        desk.state.end = len(first) - more
        desk.offer(first)
        desk.serve()
        assert desk.state.requests == stored
        assert desk.end == stored * len(first)
