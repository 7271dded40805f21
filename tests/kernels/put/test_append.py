"""The append: what it stores and answers is what the model stores one by one; what it does not, it leaves by name."""

import ctypes
import mmap
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.order import dies_of_a_store_to, shared
from tests.kernels.put.desk import BASE, LOG, NEVER, NOW, WATCHED, Log
from tests.kernels.put.one_by_one import OneByOne
from towline.fence import fence
from towline.format.record.forms import HALF_ROOM, Form
from towline.format.record.record import MessageEncoder
from towline.format.record.rules import Rule
from towline.format.wire.frames import Group, decode_put_answer, encode_put
from towline.kernels.jit import rows
from towline.kernels.jit.rows import RequestStatus, Sender
from towline.kernels.put import append as kernel
from towline.kernels.put import socket_rows

TOPICS = (b"orders", b"a-topic-of-another-length")
FIRST = 100  # queue offset of each queue's next record
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(3)]
ENCODERS = {topic: MessageEncoder(topic) for topic in TOPICS}


def record(number: int, queue: tuple[bytes, int] = QUEUES[0], size: int = 100) -> bytes:
    properties = b"UNIQ_KEY\x01%08d\x02" % number
    return ENCODERS[queue[0]].encode(queue[1], bytes([number & 0xFF]) * size, properties, born_timestamp=NOW)


class Desk(Log):
    """Rows of requests as the socket's table would hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = np.zeros(socket_rows.ROWS, rows.REQUEST)
        self.kept: list[np.ndarray] = []
        self.count = 0
        self.marks = np.zeros(kernel.MARKS_SIZE, np.int64)
        self.answers = np.zeros(socket_rows.ANSWERS_SIZE, np.uint8)
        for topic, queue_id in QUEUES:
            self.allow(topic, queue_id, FIRST)

    def put(self, head: bytes, records: bytes, received_ms: int = 1_000) -> None:
        row = self.rows[self.count]
        for name, data in (("head", head), ("records", records)):
            held = np.frombuffer(bytes(data), np.uint8)
            self.kept.append(held)
            row[name], row[f"{name}_size"] = held.ctypes.data, held.size
        row["received_ms"], row["memory"] = received_ms, len(head) + len(records)
        row["status"], row["sender"] = RequestStatus.WAITING, Sender.CLIENT
        self.count += 1

    def offer(self, *groups: tuple[tuple[bytes, int], list[bytes]], deadline: int = NEVER, id_: int = 7) -> None:
        stated = [Group(topic, queue_id, len(data), sum(map(len, data))) for (topic, queue_id), data in groups]
        self.put(encode_put(id_, 0, deadline, stated), b"".join(b"".join(data) for _, data in groups))

    def serve(self, first: int = 0, count: int | None = None) -> int:
        self.begin()
        self.marks[kernel.CURRENT] = first
        count = self.count - first if count is None else count
        return kernel.append_rows(self.rows, first, count, self.marks.view(np.uint8), self.answers, self.arguments)

    def status(self, number: int) -> RequestStatus:
        return RequestStatus(self.rows[number]["status"])

    @property
    def served(self) -> int:
        return self.state.requests

    @property
    def end(self) -> int:
        return self.state.at

    def told(self, first: int = 0):
        """The answers to what the last call served, decoded."""
        found = []
        for row in self.rows[first : first + self.served]:
            at = row["answer_at"]
            found.append(decode_put_answer(self.answers[at : at + row["answer_size"]].tobytes()))
        return found


@pytest.fixture
def desk():
    return Desk()


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
    desk, other = Desk(), OneByOne(dict.fromkeys(QUEUES, FIRST))
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
        assert desk.rows[first + desk.served - 1]["log_end"] == BASE + desk.end == desk.positions[0]
    assert told == wanted
    assert desk.bytes.tobytes() == other.log.tobytes()
    assert {(topic, queue_id): offset for topic, queue_id, offset in desk.queues.ends()} == other.next
    assert desk.positions[1] == NOW


def test_what_was_served_is_counted_by_queue(desk):
    small, large = record(1), record(2, QUEUES[4], 300)
    desk.offer((QUEUES[0], [small]))
    desk.offer((QUEUES[4], [large, large]), (QUEUES[0], [small]))
    assert desk.serve() == kernel.DONE
    assert list(desk.queues.stored(desk.state.touched)) == [
        (*QUEUES[0], 2, 2 * len(small), 2),
        (*QUEUES[4], 2, 2 * len(large), 1),
    ]
    assert desk.state.memory == desk.rows["memory"][:2].sum()
    assert desk.serve(2) == kernel.DONE
    assert list(desk.queues.stored(desk.state.touched)) == []


def test_a_turn_ends_when_enough_bytes_were_stored(desk):
    for number in range(5):
        desk.offer((QUEUES[0], [record(number)]))
    desk.state.bytes_max = 2 * len(record(0))
    assert desk.serve() == kernel.TURN
    assert desk.served == 2
    desk.state.bytes_max = 1 << 20
    assert desk.serve(first=2) == kernel.DONE
    assert desk.served == 3


def _unknown_topic(desk):
    desk.offer(((b"others", 0), [record(1)]))


def _unknown_queue(desk):
    desk.offer((QUEUES[1], [record(1, QUEUES[1])]), ((TOPICS[0], 7), [record(1)]))


def _a_queue_that_was_forbidden(desk):
    desk.queues.forbid_all()
    desk.offer((QUEUES[0], [record(1)]))


def _a_queue_that_only_clients_were_allowed(desk):
    desk.offer((QUEUES[0], [record(1)]))
    desk.rows[desk.count - 1]["sender"] = Sender.NODE


def _expired(desk):
    desk.offer((QUEUES[0], [record(1)]), deadline=NOW - 1)


def _waited_too_long(desk):
    desk.state.oldest_ms = 1_001
    desk.offer((QUEUES[0], [record(1)]))


def _shut(desk):
    desk.state.shut = 1
    desk.offer((QUEUES[0], [record(1)]))


def _a_watched_word_has_changed(desk):
    desk.positions[WATCHED // 8] = 1
    desk.offer((QUEUES[0], [record(1)]))


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


def _a_half_without_room_for_its_check(desk):
    desk.allow(*QUEUES[0], FIRST, Form.HALF)
    desk.state.request_limit = len(record(1)) + HALF_ROOM - 1
    desk.offer((QUEUES[0], [record(1)]))


def _no_room_in_the_segment(desk):
    desk.state.end = desk.end + 50
    desk.offer((QUEUES[0], [record(1)]))


def _a_head_that_ends_inside_its_groups(desk):
    desk.put(encode_put(1, 0, NEVER, [Group(*QUEUES[0], 1, 99)])[:-1], record(1))


LEFT = {
    _unknown_topic: RequestStatus.UNKNOWN_QUEUE,
    _unknown_queue: RequestStatus.UNKNOWN_QUEUE,
    _a_queue_that_was_forbidden: RequestStatus.UNKNOWN_QUEUE,
    _a_queue_that_only_clients_were_allowed: RequestStatus.UNKNOWN_QUEUE,
    _expired: RequestStatus.EXPIRED,
    _waited_too_long: RequestStatus.WAITED,
    _shut: RequestStatus.SHUT,
    _a_watched_word_has_changed: RequestStatus.SHUT,
    _too_large: RequestStatus.TOO_LARGE,
    _bad_crc: Rule.BODY_CRC,
    _a_queue_twice: RequestStatus.QUEUE_TWICE,
    _records_of_another_queue: Rule.QUEUE_ID,
    _a_size_that_is_not_the_records: Rule.GROUP_SIZE,
    _a_count_that_is_not_the_records: Rule.COUNT_MISMATCH,
    _no_records: Rule.GROUP_SIZE,
    _a_half_without_room_for_its_check: Rule.HALF_TOO_LARGE,
    _no_room_in_the_segment: RequestStatus.SEGMENT_END,
    _a_head_that_ends_inside_its_groups: RequestStatus.MALFORMED,
}


class TestWhatIsNotStored:
    @pytest.mark.parametrize("make", LEFT, ids=lambda make: make.__name__[1:].replace("_", " "))
    def test_is_left_by_its_status_and_log_and_numbers_are_as_before(self, desk, make):
        desk.offer((QUEUES[0], [record(1)]))
        assert desk.serve() == kernel.DONE
        make(desk)
        before, positions, ends = desk.bytes.copy(), desk.positions.tolist(), desk.queues.ends()
        assert desk.serve(first=1) == kernel.ROW
        wanted = LEFT[make]
        broken = isinstance(wanted, Rule)
        assert desk.status(1) is (RequestStatus.BROKEN if broken else wanted)
        assert not broken or desk.rows[1]["rule"] == wanted
        assert desk.served == 0
        assert (desk.bytes == before).all()
        assert desk.positions.tolist() == positions
        assert desk.queues.ends() == ends

    def test_leaves_only_zeros_however_many_records_it_held(self, desk):
        records = [record(number) for number in range(50)]
        records[-1] = records[-1][:90] + bytes([records[-1][90] ^ 1]) + records[-1][91:]
        desk.offer((QUEUES[0], records))
        assert desk.serve() == kernel.ROW
        assert not desk.bytes.any()
        desk.offer((QUEUES[0], [record(7)]))
        assert desk.serve(first=1) == kernel.DONE
        assert not desk.bytes[desk.end :].any()

    def test_names_the_record_that_breaks_a_rule(self, desk):
        _bad_crc(desk)
        assert desk.serve() == kernel.ROW
        assert desk.rows[0]["record"] == 1

    @pytest.mark.parametrize("make", [_unknown_topic, _expired, _bad_crc, _a_queue_twice, _no_records])
    def test_does_not_keep_back_what_came_before_it(self, desk, make):
        desk.offer((QUEUES[0], [record(1)]))
        make(desk)
        desk.offer((QUEUES[0], [record(2)]))
        assert desk.serve() == kernel.ROW
        assert desk.served == 1
        assert desk.status(2) is RequestStatus.WAITING

    def test_is_stored_by_the_same_code_once_its_queue_is_allowed(self, desk):
        _a_queue_that_was_forbidden(desk)
        assert desk.serve() == kernel.ROW
        desk.allow(*QUEUES[0], FIRST)
        desk.rows[0]["status"] = RequestStatus.WAITING
        assert desk.serve() == kernel.DONE
        assert (desk.status(0), desk.end) == (RequestStatus.STORED, len(record(1)))

    def test_is_everything_behind_the_first_row_once_the_stall_responder_has_said_stop(self, desk):
        desk.offer((QUEUES[0], [record(1)]))
        desk.offer((QUEUES[0], [record(2)]))
        desk.marks[kernel.STOP] = 1
        assert desk.serve() == kernel.STOPPED
        assert (desk.served, desk.marks[kernel.CURRENT]) == (1, 1)
        assert desk.serve(first=1) == kernel.DONE  # it was begun

    def test_is_the_row_of_a_sender_that_had_not_greeted(self, desk):
        desk.offer((QUEUES[0], [record(1)]))
        desk.rows[0]["status"] = RequestStatus.UNGREETED
        assert desk.serve() == kernel.STOPPED
        assert desk.status(0) is RequestStatus.UNGREETED


def test_a_process_of_the_node_may_write_what_no_client_may(desk):
    encoder = MessageEncoder(TOPICS[0])
    reserved = encoder.encode(0, b"x", b"WAIT\x01true\x02DELAY\x013\x02", born_timestamp=NOW)
    for sender, wanted in ((Sender.CLIENT, kernel.ROW), (Sender.NODE, kernel.DONE)):
        desk.queues.allow(*QUEUES[0], Form.PLAIN, sender)
        desk.offer((QUEUES[0], [reserved]))
        desk.rows[desk.count - 1]["sender"] = sender
        assert desk.serve(desk.count - 1) == wanted


def test_requests_in_a_form_are_counted_for_schedule(desk):
    desk.queues.allow(*QUEUES[0], Form.DELAYED, Sender.NODE)
    for sender in (Sender.NODE, Sender.CLIENT):
        desk.offer((QUEUES[0] if sender is Sender.NODE else QUEUES[1], [record(1, QUEUES[sender is Sender.CLIENT])]))
        desk.rows[desk.count - 1]["sender"] = sender
    assert desk.serve() == kernel.DONE
    assert (desk.served, desk.state.scheduled) == (2, 1)


def test_bytes_that_a_killed_writer_left_behind_the_end_are_no_part_of_a_request(desk):
    desk.bytes[3] = 1
    desk.offer((QUEUES[0], [record(1)]))
    assert desk.serve() == kernel.DONE
    assert desk.bytes[:8].tobytes() == record(1)[:8]


class TestFailpoints:
    def test_are_reached_in_the_order_of_the_steps_of_a_request_with_two_records(self, desk):
        reached = []
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long)(lambda number: reached.append(number) or 0)
        desk.state.failpoint = ctypes.cast(function, ctypes.c_void_p).value
        desk.offer((QUEUES[0], [record(1), record(2)]))
        assert desk.serve() == kernel.DONE
        assert [kernel.FAILPOINTS[number] for number in reached] == [
            "put.in_append",
            "put.between_records",
            "put.after_copy",
            "put.before_publish",
            "put.in_publish",
            "put.after_publish",
        ]

    def test_stand_where_they_say(self, desk):
        seen = {}

        def look(number):
            seen[kernel.FAILPOINTS[number]] = desk.bytes[:8].any(), desk.bytes[8:].any(), int(desk.positions[0])
            return 0

        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long)(look)
        desk.state.failpoint = ctypes.cast(function, ctypes.c_void_p).value
        data = record(1) + record(2)
        desk.offer((QUEUES[0], [record(1), record(2)]))
        assert desk.serve() == kernel.DONE
        assert seen == {
            "put.in_append": (False, False, 0),
            "put.between_records": (False, True, 0),
            "put.after_copy": (False, True, 0),
            "put.before_publish": (False, True, 0),
            "put.in_publish": (True, True, 0),
            "put.after_publish": (True, True, BASE + len(data)),
        }


def test_who_says_stop_knows_what_will_not_be_begun(desk):
    """Another thread says stop and reads which row is served: no row behind that one is stored, in any of the races."""
    for number in range(200):
        desk.offer((QUEUES[0], [record(number, size=7)]))
    for _ in range(50):
        desk.bytes[:] = 0
        desk.state.at = 0
        desk.rows["status"] = RequestStatus.WAITING
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
    assert desk.serve() == kernel.ROW
    assert not desk.bytes.any()


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
        assert not desk.bytes.any()


def test_the_end_of_the_log_moves_when_the_first_bytes_of_a_request_are_stored(desk):
    desk.bytes, page = shared(LOG), shared(mmap.PAGESIZE)
    desk.positions = page[:24].view(np.int64)
    first = record(1)
    desk.offer((QUEUES[0], [first]))
    assert dies_of_a_store_to(page, desk.serve)
    assert desk.bytes[:8].tobytes() == first[:8]


@pytest.mark.parametrize(("more", "stored"), [(0, 1), (1, 0)], ids=["the last byte", "a byte too many"])
def test_room_for_the_blank_is_left_to_the_byte(desk, more, stored):
    first = record(1)
    desk.state.end = len(first) - more
    desk.offer((QUEUES[0], [first]))
    desk.serve()
    assert (desk.served, desk.end) == (stored, stored * len(first))
