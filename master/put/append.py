"""Appends a request to the log: checks its groups, then one kernel call validates, copies and stamps, then publishes.

Order (H2): sizes are checked first. The kernel validates record by record as it copies and leaves the first 8 bytes
zero. When all records are valid it stamps them. Only then are the 8 bytes stored, then APPENDED. A refused request's
range is zeroed before the answer, and queue offsets change only when every record is valid.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from towline.errors import DiskFull, StoreNotWritable, SyncFailed
from towline.format.files.topics import is_system_topic, is_topic_size
from towline.format.record import blank
from towline.format.record.forms import HALF_ROOM, Form
from towline.format.record.properties import NAME_END
from towline.format.record.rules import Rule
from towline.format.wire.frames import Buffer, Group
from towline.format.wire.status import PutStatus
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.base.ownership import own_values
from towline.kernels.jit.compiled import Numbers
from towline.kernels.jit.rows import GROUP
from towline.kernels.put.put_ring import Terms, serve_ring
from towline.kernels.put.put_rows import serve_rows
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT, PROPERTY_CRC, RESULT_SIZE, append_request
from towline.limits import REQUEST_GROUPS_MAX, RETRY_TOPIC_SIZE_MAX
from towline.link.put_ring import NodeRing
from towline.log.errors import PoolEmpty, SegmentNotMade
from towline.node.process.context import Node
from towline.node.store.tail import appended_scan, open_tail
from towline.runtime.doorbell import Ringer
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Position

from .admission import Gate, Refusal, no_room, topic_in_doubt
from .fast_append import WINDOW, FastAppend
from .offsets import QueueOffsets
from .socket_table import SocketTable
from .statistics import PutStatistics
from .topic_access import TopicAccess
from .topics import Topics

FIRST_WORD: Final = 8
_STATUSES: Final = {  # of a broken rule; MESSAGE_ILLEGAL for the others (spec 5.1)
    Rule.PROPERTIES_TOO_LARGE: PutStatus.PROPERTIES_SIZE_EXCEEDED,
    **dict.fromkeys(
        (Rule.TIMER_MISPLACED, Rule.TIMER_FORM, Rule.TIMER_TOO_FAR, Rule.CANCEL_FORM, Rule.CANCEL_TOO_LATE),
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    ),
}
PROPERTY_NAME_SHOWN: Final = 60  # bytes


@dataclass(frozen=True, slots=True)
class AppendResult:
    """A stored request: the log's end behind it and the place of each group's first record.

    `for_schedule`: some record is delayed, timed or transactional, so the schedule process must see it.
    """

    end: int
    places: list[tuple[int, int]]
    for_schedule: bool


@dataclass(frozen=True, slots=True)
class KernelResult:
    """What one kernel call appended. `memory`: bytes that the requests occupied while they waited."""

    requests: int
    records: int
    size: int
    memory: int = 0


class Appender:
    """The only writer at the end of a master's log."""

    def __init__(self, node: Node, topics: Topics, gate: Gate, early_doorbells: Ringer) -> None:
        """`gate` is checked before each append.

        `early_doorbells` ring as soon as a kernel has stored something, before the rest of the work on it is done here.
        """
        self._node = node
        self._topics = topics
        self._early_doorbells = early_doorbells
        settings = node.settings
        self._access = TopicAccess(
            topics, levels=len(settings.delay_levels_ms), timer_max_delay_sec=settings.timer_max_delay_sec
        )
        self._appended = node.writer(Position.APPENDED)
        self._timestamp = node.writer(Position.STORE_TIMESTAMP)
        self._request_limit = settings.request_limit
        self._body_max = settings.max_message_size
        self._host = _host(settings.broker_ip1, settings.listen_port)
        self._own = own_values(settings.broker_cluster_name)
        self._checks = CHECK_CRC | FROM_CLIENT | (PROPERTY_CRC if settings.enabled_append_prop_crc else 0)
        self._offsets = QueueOffsets()
        self._groups = np.zeros(REQUEST_GROUPS_MAX, dtype=GROUP)
        self._arena = np.zeros(REQUEST_GROUPS_MAX * RETRY_TOPIC_SIZE_MAX, dtype=np.uint8)
        self._arena_view = self._arena.data
        self._result = np.zeros(RESULT_SIZE, dtype=np.int64)
        self._full: DiskFull | None = None
        size = settings.shared_memory_puts_size if settings.shared_memory_puts else 0
        self._fast_append = FastAppend(node.positions, gate, size, self._request_limit)

    def resume(self, floors: Mapping[tuple[bytes, int], int]) -> None:
        """Resumes at the published end, after zeroing what a killed writer may have left behind it (H1, H11).

        `floors`: the numbers at which queues of deleted topics continue.
        """
        node = self._node
        dispatched, appended = node.positions.get(Position.DISPATCHED), self._appended.get()
        directory = QueueDirectory()
        self._offsets.load(node.queue_ends(), appended_scan(node, directory), directory, dispatched, appended)
        self._offsets.raise_to(floors)
        self._open_tail()

    @property
    def store_host(self) -> str:
        """The store host in hex digits, as it stands in records and message ids."""
        return self._host.tobytes().hex().upper()

    def queues(self) -> list[tuple[bytes, int]]:
        """Topic and queue id of every queue in the store; complete after `resume`."""
        return self._offsets.queues()

    def ends(self) -> list[tuple[bytes, int, int]]:
        """Topic, queue id and next offset of every queue."""
        return [(topic, queue_id, self._offsets.next_of(topic, queue_id)) for topic, queue_id in self.queues()]

    def next_offsets_of(self, topic: bytes) -> dict[int, int]:
        """The next offset of each queue of a topic that ever held a record."""
        return self._offsets.next_offsets_of(topic)

    def close(self) -> None:
        if hasattr(self, "_tail"):
            self._tail.close()

    def prepare(self) -> bool:
        """Populates the next pages of the log when put is idle. False when there is nothing to populate."""
        return self._full is None and self._tail.prepare()

    def append(
        self, groups: Sequence[Group], records: Buffer, now_ms: int, *, trusted: bool = False
    ) -> AppendResult | Refusal:
        """Stores and publishes a request, or refuses it and leaves no byte behind. `now_ms` is the clock in ms since
        1970.

        `trusted`: it was sent by a process of this node, which may write what no client may (H23).
        """
        refusal = self._admit(groups, len(records), trusted=trusted)
        if refusal is not None:
            return refusal
        if self._full is not None and self._open_tail() is not None:
            return no_room(self._full)
        size = len(records)
        try:
            self._make_room(size)
            at = self._tail.make_room(size)
        except (DiskFull, PoolEmpty, SegmentNotMade, StoreNotWritable, SyncFailed, OSError) as error:
            return no_room(error)
        timestamp = max(now_ms, self._timestamp.get())
        places = self._fill(groups)
        if ARMED:
            reach("put.in_append")
        rule = append_request(
            self._tail.array,
            at,
            np.frombuffer(records, dtype=np.uint8),
            self._groups,
            len(groups),
            self._arena,
            self._own,
            self._tail.base,
            timestamp,
            self._host,
            self._body_max,
            self._checks & ~FROM_CLIENT if trusted else self._checks,
            self._access.reals(now_ms),
            self._result,
        )
        if rule != Rule.OK:
            self._tail.withdraw(at, size)
            return self._refused(Rule(rule), records)
        if ARMED:
            reach("put.before_publish")
        start = self._tail.position
        end = self._tail.publish(bytes(records[:FIRST_WORD]), size)
        if ARMED:
            reach("put.in_publish")
        self._appended.advance(end)
        self._timestamp.advance(timestamp)
        if ARMED:
            reach("put.after_publish")
        following = self._groups["next_offset"][: len(groups)].tolist()
        forms = self._groups["form"][: len(groups)].tolist()
        self._offsets.update(groups, following)
        self._fast_append.update(groups, following, forms, trusted=trusted)
        for_schedule = any(forms)
        return AppendResult(end, [(offset, start + before) for offset, before in places], for_schedule)

    def append_ring(
        self, ring: NodeRing, now_ms: int, spins: int, stored: PutStatistics, *, keeps: bool = False
    ) -> KernelResult:
        """Stores and answers the ordinary requests of a ring (see `FastAppend`), spinning `spins` times for more of
        them.

        `keeps`: the answers are not due yet; `kept` returns them.
        """
        fast_append = self._fast_append
        at, end = self._begin_call(now_ms)
        if end <= at:
            ring.special = 1
            return KernelResult(0, 0, 0)
        fast_append.begin_ring(ring, spins, keeps=keeps)
        why = serve_ring(
            np.frombuffer(ring.memory.view, np.uint8),
            ring.reserved,
            fast_append.state,
            fast_append.limits,
            fast_append.positions,
            fast_append.watched,
            fast_append.scratch,
            fast_append.answers,
            fast_append.rows,
            self._tail.array,
            fast_append.known.arguments,
            self._groups,
            self._kernel_arguments(now_ms),
        )
        fast_append.end_ring(ring, why)
        return self._end_call(stored)

    def kept(self) -> tuple[bytes, Numbers]:
        """The answers to what `append_ring` has just stored, back to back, and the kernel's row of each."""
        return self._fast_append.kept()

    def written(self, ring: NodeRing, now_ms: int, began_ms: int) -> list[tuple[int, int]]:
        """When the requests that `append_ring` has just stored were written; see `FastAppend.written`."""
        return list(self._fast_append.written(ring, now_ms, began_ms))

    def append_rows(
        self, socket_table: SocketTable, first: int, count: int, now_ms: int, oldest_ms: int, stored: PutStatistics
    ) -> KernelResult:
        """Stores ordinary requests of these rows, up to the first other one or one that was received before
        `oldest_ms`."""
        fast_append = self._fast_append
        at, end = self._begin_call(now_ms, oldest_ms)
        if end <= at:
            return KernelResult(0, 0, 0)
        serve_rows(
            socket_table.rows,
            first,
            count,
            fast_append.state,
            fast_append.limits,
            fast_append.positions,
            fast_append.watched,
            socket_table.marks,
            socket_table.answers,
            self._tail.array,
            fast_append.known.arguments,
            self._groups,
            self._kernel_arguments(now_ms),
        )
        return self._end_call(stored)

    def _begin_call(self, now_ms: int, oldest_ms: int = 0) -> tuple[int, int]:
        """Prepares a kernel call and returns the range of the segment that it may write."""
        self._fast_append.use_topics(self._topics.client_queues)
        at, end = self._window()
        self._fast_append.begin(at, end, now_ms, oldest_ms)
        return at, end

    def _kernel_arguments(self, now_ms: int) -> Terms:
        """The arguments of `append_request` from `own` on."""
        return (
            self._own,
            self._tail.base,
            max(now_ms, self._timestamp.get()),
            self._host,
            self._body_max,
            self._checks,
            self._access.reals(now_ms),
            self._result,
        )

    def _end_call(self, stored: PutStatistics) -> KernelResult:
        """Takes over what a kernel call has stored."""
        at, requests, records, size, touched, memory = self._fast_append.end()
        if requests:
            if self._early_doorbells.ring():
                os.sched_yield()  # the scheduler likes to wake them on this core, behind the rest of this turn
            self._tail.moved(at)
            for (topic, queue_id), following, *counts in self._fast_append.known.served(touched):
                self._offsets.put(topic, queue_id, following)
                stored.served(topic, queue_id, *counts)
        return KernelResult(requests, records, size, memory)

    def _window(self) -> tuple[int, int]:
        """The range that a kernel may write; empty where something prevents it, which `append` then names."""
        if self._full is not None:
            return 0, 0
        try:
            return self._tail.window(WINDOW)
        except (StoreNotWritable, SyncFailed, OSError):
            return 0, 0

    # --- before a byte is copied

    def _open_tail(self) -> DiskFull | None:
        """Opens the tail; returns the error of a disk that is full at the node's start, where reads are still served
        (H7)."""
        try:
            self._tail = open_tail(self._node, self._request_limit + blank.SIZE)
        except DiskFull as error:
            self._full = error
            self._node.log.error("puts are refused until there is room: %s", error)
        else:
            self._full = None
        return self._full

    def _make_room(self, size: int) -> None:
        """Begins the next segment for a request that does not fit (spec 2.2).

        APPENDED passes the blank record before the wait for the next segment: with a transient pool the buffer it needs
        becomes free only when its own segment is wholly committed.
        """
        if not self._tail.fits(size):
            self._appended.advance(self._tail.blank())
            self._tail.roll()

    def _admit(self, groups: Sequence[Group], size: int, *, trusted: bool) -> Refusal | None:
        if size > self._request_limit:
            return Refusal(
                PutStatus.MESSAGE_ILLEGAL,
                f"a request of {size} bytes; {self._request_limit} are allowed here: send fewer records at once",
            )
        if sum(group.size for group in groups) != size or size <= FIRST_WORD:
            return Refusal(PutStatus.MESSAGE_ILLEGAL, f"{Rule.GROUP_SIZE.sentence}", rule=Rule.GROUP_SIZE)
        for group in groups:
            queues = self._access.queues(group, trusted=trusted)
            if not 0 <= group.queue_id < queues and (trusted or not self._access.form(group)):
                return self._refuse_queue(group, queues)
            if self._access.form(group) is Form.HALF and not trusted and size > self._request_limit - HALF_ROOM:
                return Refusal(PutStatus.MESSAGE_ILLEGAL, Rule.HALF_TOO_LARGE.sentence, Rule.HALF_TOO_LARGE)
        if len(groups) > 1 and len({(group.topic, group.queue_id) for group in groups}) < len(groups):
            return Refusal(PutStatus.MESSAGE_ILLEGAL, "two groups of one request are for the same queue: join them")
        return None

    def _refuse_queue(self, group: Group, queues: int) -> Refusal:
        """Why a group's queue cannot be written to."""
        name = group.topic.decode("utf-8", "replace")
        if not is_topic_size(group.topic):
            return Refusal(PutStatus.MESSAGE_ILLEGAL, Rule.TOPIC_LENGTH.sentence, Rule.TOPIC_LENGTH)
        if name in self._topics.in_doubt:
            return topic_in_doubt(name)
        if is_system_topic(name) and queues <= 0:
            return Refusal(PutStatus.NO_PERMISSION, f"the topic {name!r} is the broker's own: no client writes to it")
        if queues < 0:
            return Refusal(PutStatus.TOPIC_NOT_EXIST, f"the topic {name!r} does not exist; create it first")
        if queues == 0:
            return Refusal(PutStatus.NO_PERMISSION, f"the topic {name!r} is not writable")
        return Refusal(PutStatus.UNKNOWN_QUEUE, f"{name!r} has queues 0 to {queues - 1}, not {group.queue_id}")

    def _fill(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        """Fill the kernel's rows. Returns each group's first queue offset and its first byte in the request."""
        places = []
        at = before = 0
        for row, group in enumerate(groups):
            end = at + len(group.topic)
            self._arena_view[at:end] = group.topic
            following = self._offsets.next_of(group.topic, group.queue_id)
            form = self._access.form(group)
            self._groups[row] = (group.size, group.count, following, at, len(group.topic), group.queue_id, form)
            places.append((following, before))
            at, before = end, before + group.size
        return places

    # --- after the kernel

    def _refused(self, rule: Rule, records: Buffer) -> Refusal:
        record, _, name_at = self._result.tolist()
        status = _STATUSES.get(rule, PutStatus.MESSAGE_ILLEGAL)
        named = ""
        if name_at:
            name, _, _ = bytes(records[name_at : name_at + PROPERTY_NAME_SHOWN]).partition(NAME_END.encode())
            named = f" by {name.decode('utf-8', 'replace')}"
        return Refusal(status, f"record {record} of the request: {rule.name}{named}: {rule.sentence}", rule, record)


def _host(address: str, port: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address) + port.to_bytes(4, "big")
    return np.frombuffer(packed, dtype=np.uint8).copy()
