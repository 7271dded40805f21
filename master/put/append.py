"""The interpreter's side of the append: it gives rows to the kernel that stores them, and does what a kernel cannot.

A row that comes back unstored (`towline.kernels.put.append`) is settled by its status: a queue that its sender may
write to is allowed, a full segment ends and the next begins, a gate that opened is looked at again, a batch of an
idempotent producer is judged; then the kernel gets the row once more. Anything else is a refusal, with a sentence, or a
batch that is in the log already.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from towline.errors import DiskFull, StoreNotWritable, SyncFailed, TooManyQueues
from towline.format.files.topics import is_system_topic, is_topic_size
from towline.format.record import blank
from towline.format.record.forms import Form
from towline.format.record.properties import NAME_END
from towline.format.record.rules import Rule
from towline.format.wire.frames import Group, decode_put
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.kernels.base.ownership import own_values
from towline.kernels.jit.compiled import Bytes, Numbers, Rows
from towline.kernels.jit.rows import APPEND, GROUP, RequestStatus, Sender, fields_of
from towline.kernels.put import append as kernel
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT, PROPERTY_CRC, RESULT_SIZE
from towline.limits import MIB, REQUEST_GROUPS_MAX
from towline.link.native import address_of_call, bytes_from
from towline.log.errors import PoolEmpty, SegmentNotMade
from towline.node.process.context import Node
from towline.node.store.put_checks import Refusal, refusal
from towline.node.store.tail import appended_scan, open_tail
from towline.runtime.doorbell import Ringer
from towline.runtime.failpoints import address_of_failpoints
from towline.runtime.positions import Position

from .admission import Gate, expired, no_room, topic_in_doubt, waited_too_long
from .producers import Producers, broken_order
from .queue_table import QueueTable
from .rings import RingTable
from .sequences import Claim, Repeat
from .socket_table import SocketTable
from .statistics import PutStatistics
from .topic_access import TopicAccess
from .topics import Topics

BYTES_MAX: Final = 2 * MIB  # of records in one call, so that answers and doorbells do not wait for more
WINDOW: Final = 4 * MIB  # bytes of the log that are populated for a call
SETTLED_MAX: Final = 16  # rows in one call, so that what was stored does not wait for many new queues
PROPERTY_NAME_SHOWN: Final = 60  # bytes
_WORD: Final = 8
_NOWHERE: Final[Bytes] = np.zeros(_WORD, np.uint8)  # stands for the segment where none is open
_STATUSES: Final = {  # of a broken rule; MESSAGE_ILLEGAL for the others (spec 5.1)
    Rule.PROPERTIES_TOO_LARGE: PutStatus.PROPERTIES_SIZE_EXCEEDED,
    **dict.fromkeys(
        (Rule.TIMER_MISPLACED, Rule.TIMER_FORM, Rule.TIMER_TOO_FAR, Rule.CANCEL_FORM, Rule.CANCEL_TOO_LATE),
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    ),
}
_COUNTERS: Final = ("requests", "records", "size", "touched", "memory", "scheduled", "written")


@dataclass(frozen=True, slots=True)
class Appended:
    """What was stored: requests, their records, bytes of records, and bytes of memory that the requests occupied.

    `scheduled`: some record is delayed, timed or transactional, so the schedule process must see it. `unstored` is why
    the request behind them is not stored: a refusal, or the place where it stands already; None where the call ended
    for another reason.
    """

    requests: int
    records: int
    size: int
    memory: int
    scheduled: bool
    unstored: Refusal | Repeat | None

    @property
    def handled(self) -> int:
        """Requests that were stored, or will not be."""
        return self.requests + (self.unstored is not None)


NOTHING: Final = Appended(0, 0, 0, 0, scheduled=False, unstored=None)


class Appender:
    """The only writer at the end of a master's log."""

    def __init__(
        self,
        node: Node,
        topics: Topics,
        gate: Gate,
        check_gate: Callable[[], Refusal | None],
        early_doorbells: Ringer,
    ) -> None:
        """`check_gate` is called before each call of the kernel, which compares with what `gate` saw.

        `early_doorbells` ring as soon as a kernel has stored something, before the rest of the work on it is done here.
        """
        self._node, self._topics = node, topics
        self._gate, self._check_gate = gate, check_gate
        self._early_doorbells = early_doorbells
        settings = node.settings
        self._access = TopicAccess(
            topics, levels=len(settings.delay_levels_ms), timer_max_delay_sec=settings.timer_max_delay_sec
        )
        self._clients: object = None  # the topics as they were when queues were allowed
        self._appended = node.writer(Position.APPENDED)
        self._timestamp = node.writer(Position.STORE_TIMESTAMP)
        self._host = _host(settings.broker_ip1, settings.store_port)
        self._own = own_values(settings.broker_cluster_name)
        self._queues = QueueTable()
        self._positions = np.frombuffer(node.positions.words, np.uint8)
        self._groups: Rows = np.zeros(REQUEST_GROUPS_MAX, GROUP)
        self._result: Numbers = np.zeros(RESULT_SIZE, np.int64)
        self._states: Rows = np.zeros(1, APPEND)
        state = self._state = fields_of(self._states)[0]
        state.request_limit, state.body_max = settings.request_limit, settings.max_message_size
        state.bytes_max = BYTES_MAX
        state.checks = CHECK_CRC | FROM_CLIENT | (PROPERTY_CRC if settings.enabled_append_prop_crc else 0)
        state.appended_at = _WORD * Position.APPENDED.word
        state.stamped_at = _WORD * Position.STORE_TIMESTAMP.word
        state.failpoint = address_of_failpoints(kernel.FAILPOINTS)
        state.clock = address_of_call("clock_gettime")
        self._claim: tuple[Claim, int] | None = None  # of the next request, and its queue offset, once it was judged
        self._full: DiskFull | None = None
        self._window, self._log = WINDOW, _NOWHERE
        self._logged_cause = Cause.REQUEST

    # --- before the first request

    def resume(self, *floors: Mapping[tuple[bytes, int], int]) -> None:
        """Resumes at the published end, after zeroing what a killed writer may have left behind it (H1, H11).

        `floors`: numbers at which queues continue at least, of deleted topics and of those that retention has cut: a
        recovery may have left nothing else of them.
        """
        node = self._node
        dispatched, appended = node.positions.get(Position.DISPATCHED), self._appended.get()
        self.producers = Producers(node, appended)
        self._queues.load(node.queue_ends(), appended_scan(node, self._queues.directory), dispatched, appended)
        for each in floors:
            self._queues.raise_to(each)
        self._open_tail()

    @property
    def store_host(self) -> str:
        """The store host in hex digits, as it stands in records and message ids."""
        return self._host.tobytes().hex().upper()

    def queues(self) -> list[tuple[bytes, int]]:
        """Topic and queue id of every queue in the store; complete after `resume`."""
        return self._queues.queues()

    def ends(self) -> list[tuple[bytes, int, int]]:
        """Topic, queue id and next offset of every queue."""
        return self._queues.ends()

    def next_offsets_of(self, topic: bytes) -> dict[int, int]:
        """The next offset of each queue of a topic that ever held a record."""
        return self._queues.next_offsets_of(topic)

    def close(self) -> None:
        if hasattr(self, "_tail"):
            self._tail.close()

    def prepare(self) -> bool:
        """Populates the next pages of the log when put is idle. False when there is nothing to populate."""
        return self._full is None and self._tail.prepare()

    # --- requests

    def append_rows(self, table: SocketTable, first: int, count: int, statistics: PutStatistics) -> Appended:
        """Stores the requests of the socket's rows from `first` on, up to the first that is not to be stored."""

        def store(done: int) -> bool:
            arguments = self._arguments()
            why = kernel.append_rows(table.rows, first + done, count - done, table.marks, table.answers, arguments)
            return why == kernel.ROW

        return self._append(store, lambda done: table.row(first + done), statistics)

    def append_ring(self, ring: RingTable, statistics: PutStatistics) -> Appended:
        """Stores the requests of a ring, and answers them where that is due, up to the first that is not to be
        stored."""

        def store(_: int) -> bool:
            return ring.serve(self._arguments())

        return self._append(store, ring.row, statistics)

    def _append(self, store: Callable[[int], bool], row: Callable[[int], Any], statistics: PutStatistics) -> Appended:
        """`store` calls a kernel after so many stored requests, and says whether the next one has a status. `row` is
        the row behind so many."""
        self._begin()
        state, unstored = self._state, None
        for _ in range(SETTLED_MAX):
            before = state.requests
            self._open_window()
            left = store(before)
            self._follow(state.requests - before)
            if self._claim is not None and state.requests > before:
                self._note_claim(row(before))
            if not left:
                break
            request = row(state.requests)
            unstored = self._settle(request)
            if unstored is not None:
                break
            request.status = RequestStatus.WAITING
        return self._end(statistics, unstored)

    def _begin(self) -> None:
        """Prepares a call: its time, and the queues' permissions and the gate as they are now."""
        state, clock = self._state, self._node.clock
        now_ms = clock.now_ms()
        clients = self._topics.client_queues
        if clients is not self._clients:
            self._clients = clients
            self._queues.forbid_all()
        for name in _COUNTERS:
            setattr(state, name, 0)
        state.now_ms = now_ms
        state.store_timestamp = max(now_ms, self._timestamp.get())
        state.ahead_ms = clock.ahead_ms()
        state.oldest_ms = clock.monotonic_ms() - self._node.settings.wait_time_mills_in_send_queue
        state.shut = int(self._check_gate() is not None)
        state.judged, self._claim = 0, None

    def _open_window(self) -> None:
        """The part of the segment that the kernel may write; empty where something prevents it, which `_make_room`
        names."""
        state = self._state
        self._log = _NOWHERE
        state.at = state.end = 0
        if self._full is not None:
            return
        try:
            at, end = self._tail.window(self._window)
        except (StoreNotWritable, SyncFailed, OSError):
            return
        if at < end:
            state.base, state.at, state.end, self._log = self._tail.base, at, end, self._tail.array

    def _arguments(self) -> kernel.Appender:
        reals = self._access.reals(self._state.now_ms)
        terms = self._own, self._host, reals, self._result
        return self._states, self._log, self._positions, self._gate.watched, self._queues.arguments, self._groups, terms

    def _follow(self, stored: int) -> None:
        """Follows a kernel that has stored so many requests."""
        if stored:
            if self._early_doorbells.ring():
                os.sched_yield()  # the scheduler likes to wake them on this core, behind the rest of this turn
            self._tail.moved(self._state.at)
            self._logged_cause = Cause.REQUEST

    def _end(self, statistics: PutStatistics, unstored: Refusal | Repeat | None) -> Appended:
        """Counts what was stored."""
        state = self._state
        self._window, self._log = WINDOW, _NOWHERE  # a segment that was left can be unmapped
        for topic, queue_id, *counts in self._queues.stored(state.touched):
            statistics.stored(topic, queue_id, *counts)
        return Appended(state.requests, state.records, state.size, state.memory, state.scheduled > 0, unstored)

    # --- what a kernel cannot do

    def _settle(self, row: Any) -> Refusal | Repeat | None:
        """Does what an unstored row is in need of; None where the kernel can take it now, else why it is not stored."""
        status = RequestStatus(row.status)
        match status:
            case RequestStatus.UNKNOWN_QUEUE:
                return self._logged(self._allow(_groups_of(row), Sender(row.sender)))
            case RequestStatus.SEGMENT_END:
                return self._logged(self._make_room(row.records_size))
            case RequestStatus.SHUT:
                closed = self._check_gate()
                self._state.shut = int(closed is not None)
                return closed
            case RequestStatus.SEQUENCED:
                return self._judge(row)
            case RequestStatus.BROKEN:
                return self._broken(row)
            case RequestStatus.EXPIRED:
                return expired(self._state.now_ms - _deadline_of(row))
            case RequestStatus.WAITED:
                return waited_too_long(
                    self._node.clock.monotonic_ms() - row.received_ms, self._node.settings.wait_time_mills_in_send_queue
                )
            case RequestStatus.TOO_LARGE:
                allowed = f"{self._state.request_limit} are allowed here: send fewer records at once"
                return _illegal(f"a request of {row.records_size} bytes; {allowed}")
            case RequestStatus.QUEUE_TWICE:
                return _illegal("two groups of one request are for the same queue: join them")
        raise AssertionError(f"a row that is {status.name} has no place in an append")

    def _judge(self, row: Any) -> Refusal | Repeat | None:
        """Judges the batch of an idempotent producer."""
        groups = _groups_of(row)
        if len(groups) > 1 or self._access.form(groups[0]):
            return _illegal("an idempotent producer sends one batch at once, and nothing delayed, timed or half")
        claim = self.producers.claim_of(row.records, row.records_size, groups[0])
        if claim is None:
            return broken_order()
        state = self._state
        unstored = self.producers.judge(claim, state.now_ms, state.store_timestamp)
        if unstored is None:
            self._claim = claim, self._queues.next_of(*claim.queue)
            state.store_timestamp = max(state.store_timestamp, claim.begun_ms)
            state.judged = 1
        return unstored

    def _note_claim(self, row: Any) -> None:
        """The batch that was judged is stored."""
        assert self._claim is not None
        claim, queue_offset = self._claim
        self.producers.stored(claim, queue_offset, row.log_end, self._state.store_timestamp)
        self._claim = None

    def _logged(self, refused: Refusal | None) -> Refusal | None:
        """Logs a refusal that an operator has to act on, once until a put is stored again."""
        if refused is not None and refused.cause not in (Cause.REQUEST, self._logged_cause):
            self._logged_cause = refused.cause
            self._node.log.error("puts are refused: %s", refused.sentence)
        return refused

    def _allow(self, groups: Sequence[Group], sender: Sender) -> Refusal | None:
        """Allows the sender to write to the queues of a request, or refuses the first one that it may not."""
        trusted = sender is Sender.NODE
        for group in groups:
            queues, form = self._access.queues(group, trusted=trusted), self._access.form(group)
            if not 0 <= group.queue_id < queues and (trusted or not form):
                return self._refuse_queue(group, queues)
            try:
                self._queues.allow(group.topic, group.queue_id, Form(form), sender)
            except TooManyQueues as error:
                return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.RUNTIME_FULL, words=error.describe())
        return None

    def _refuse_queue(self, group: Group, queues: int) -> Refusal:
        """Why a group's queue cannot be written to."""
        name = group.topic.decode("utf-8", "replace")
        if not is_topic_size(group.topic):
            return _illegal(Rule.TOPIC_LENGTH.sentence, Rule.TOPIC_LENGTH)
        if name in self._topics.in_doubt:
            return topic_in_doubt(name)
        if is_system_topic(name) and queues <= 0:
            return Refusal(PutStatus.NO_PERMISSION, f"the topic {name!r} is the broker's own: no client writes to it")
        if queues < 0:
            return Refusal(PutStatus.TOPIC_NOT_EXIST, f"the topic {name!r} does not exist; create it first")
        if queues == 0:
            return Refusal(PutStatus.NO_PERMISSION, f"the topic {name!r} is not writable")
        return Refusal(PutStatus.UNKNOWN_QUEUE, f"{name!r} has queues 0 to {queues - 1}, not {group.queue_id}")

    def _make_room(self, size: int) -> Refusal | None:
        """Begins the next segment for a request of `size` bytes that does not fit (spec 2.2), and populates its pages.

        APPENDED passes the blank record before the wait for the next segment: with a transient pool the buffer it needs
        becomes free only when its own segment is wholly committed.
        """
        if self._full is not None and self._open_tail() is not None:
            return no_room(self._full)
        try:
            if not self._tail.fits(size):
                self._appended.advance(self._tail.blank())
                self._tail.roll()
            self._window = max(WINDOW, size + blank.SIZE)
            self._tail.window(self._window)
        except (DiskFull, PoolEmpty, SegmentNotMade, StoreNotWritable, SyncFailed, OSError) as error:
            return no_room(error)
        return None

    def _open_tail(self) -> DiskFull | None:
        """Opens the tail; returns the error of a disk that is full at the node's start, where reads are still served
        (H7)."""
        try:
            self._tail = open_tail(self._node, self._state.request_limit + blank.SIZE)
        except DiskFull as error:
            self._full = error
            self._node.log.error("puts are refused until there is room: %s", error)
        else:
            self._full = None
        return self._full

    def _broken(self, row: Any) -> Refusal:
        """The refusal of a request that breaks a rule."""
        rule = Rule(row.rule)
        if row.record < 0:
            return _illegal(rule.sentence, rule)
        named = ""
        if row.name_at:
            text = bytes_from(row.records + row.name_at, min(PROPERTY_NAME_SHOWN, row.records_size - row.name_at))
            name, _, _ = text.partition(NAME_END.encode())
            named = f" by {name.decode('utf-8', 'replace')}"
        sentence = f"record {row.record} of the request: {rule.name}{named}: {rule.sentence}"
        return Refusal(_STATUSES.get(rule, PutStatus.MESSAGE_ILLEGAL), sentence, rule, row.record)


def _illegal(sentence: str, rule: Rule = Rule.OK) -> Refusal:
    return Refusal(PutStatus.MESSAGE_ILLEGAL, sentence, rule)


def _groups_of(row: Any) -> list[Group]:
    return decode_put(bytes_from(row.head, row.head_size), REQUEST_GROUPS_MAX)[3]


def _deadline_of(row: Any) -> int:
    return decode_put(bytes_from(row.head, row.head_size), REQUEST_GROUPS_MAX)[2]


def _host(address: str, port: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address) + port.to_bytes(4, "big")
    return np.frombuffer(packed, dtype=np.uint8).copy()
