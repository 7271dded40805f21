"""Appends ordinary requests of a ring or the socket in one kernel call, many at a time.

An ordinary request is for queues that `Appender.append` has written to since topics last changed, with nothing for
schedule. Other requests stay queued for `Appender.append`. Where PUT_OK is not due at once, the answers are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from towline.format.record.forms import Form
from towline.format.wire.frames import Group
from towline.format.wire.put_ring import entry_max, written_ms
from towline.kernels.base.directory import NONE, QueueDirectory
from towline.kernels.jit.compiled import Numbers
from towline.kernels.put import put_ring as kernel
from towline.limits import MIB
from towline.link.native import address_of_write
from towline.link.put_ring import NodeRing
from towline.runtime.positions import Position, Positions

from .admission import WATCHED, Gate

REQUESTS_MAX: Final = 1024  # of one call: below a millisecond, beside which the interpreter between two is little
BYTES_MAX: Final = 2 * MIB
WINDOW: Final = 4 * MIB  # bytes of the log that are there for a call
SPECIAL: Final = 16  # requests that the appender takes when the kernel has left one: its neighbours are like it
SPINS_OF_ALL: Final = 8  # times what may be spent on one
ANSWERS_SIZE: Final = 3 * kernel.ANSWER_MAX  # of one call
_WORD: Final = 8
_QUEUES_AT_FIRST: Final = 64
Queue = tuple[bytes, int]


class KnownQueues:
    """Queues that clients may write to, with the next offset of each, in the form that the kernel looks them up."""

    def __init__(self) -> None:
        self._numbers: dict[Queue, int] = {}
        self._queues: list[Queue] = []
        self.directory = QueueDirectory()
        self.state: Numbers = np.zeros(kernel.QUEUE_STATE * _QUEUES_AT_FIRST, np.int64)
        self.touched: Numbers = np.zeros(_QUEUES_AT_FIRST, np.int64)
        self.places: Numbers = np.zeros(kernel.PLACES_SIZE, np.int64)

    @property
    def arguments(self) -> kernel.Queues:
        """The argument `known` of the kernels; valid until a queue is added."""
        return self.directory.arrays, self.state, self.touched, self.places

    def update(self, group: Group, following: int, *, plain: bool) -> None:
        """Notes a group that `Appender.append` has stored. `plain`: any client may write such a group."""
        queue = group.topic, group.queue_id
        number = self._numbers.get(queue, NONE)
        if number == NONE:
            if not plain:
                return
            number = self._add(queue)
        self.state[number * kernel.QUEUE_STATE + kernel.NEXT] = following

    def _add(self, queue: Queue) -> int:
        number = self._numbers[queue] = self.directory.add(*queue)
        self._queues.append(queue)
        if number == self.touched.size:
            self.touched = np.concatenate((self.touched, np.zeros_like(self.touched)))
            self.state = np.concatenate((self.state, np.zeros_like(self.state)))
        return number

    def served(self, count: int) -> list[tuple[Queue, int, int, int, int]]:
        """The queues that a call wrote to: queue, next offset, records, bytes and requests."""
        found = []
        for number in self.touched[:count].tolist():
            at = number * kernel.QUEUE_STATE
            following, messages, size, requests = self.state[at : at + kernel.SEEN].tolist()
            self.state[at + kernel.MESSAGES : at + kernel.SEEN] = 0
            found.append((self._queues[number], following, messages, size, requests))
        return found


class FastAppend:
    """The arguments of the kernels, beside those of `Appender`."""

    def __init__(self, positions: Positions, gate: Gate, ring_size: int, request_limit: int) -> None:
        """`gate` was checked before each call. `ring_size` is 0 on a node without rings."""
        self._gate = gate
        self.positions = np.frombuffer(positions.words, np.uint8)
        self.state: Numbers = np.zeros(kernel.STATE_SIZE, np.int64)
        self.limits: Numbers = np.zeros(kernel.LIMITS_SIZE, np.int64)
        self.limits[kernel.AREA] = ring_size
        self.limits[kernel.REQUESTS_MAX] = REQUESTS_MAX
        self.limits[kernel.BYTES_MAX] = BYTES_MAX
        self.limits[kernel.REQUEST_LIMIT] = request_limit
        self.limits[kernel.APPENDED] = _WORD * Position.APPENDED.word
        self.limits[kernel.STAMPED] = _WORD * Position.STORE_TIMESTAMP.word
        self._bell_byte = np.zeros(1, np.uint8)
        self.limits[kernel.WRITE_AT] = address_of_write()
        self.limits[kernel.BELL_BYTE] = self._bell_byte.ctypes.data
        self.watched: Numbers = np.array([number for each in WATCHED for number in (_WORD * each.word, 0)], np.int64)
        self.answers = np.zeros(ANSWERS_SIZE if ring_size else 0, np.uint8)  # that are kept
        self.rows: Numbers = np.zeros(kernel.KEPT_SIZE * REQUESTS_MAX, np.int64)
        self.scratch = np.zeros(entry_max(ring_size) if ring_size else 0, np.uint8)
        self._state, self._limits = self.state.data, self.limits.data  # single words, and fast
        self._watched = self.watched.data
        self.known = KnownQueues()
        self._clients: Mapping[bytes, int] | None = None

    def use_topics(self, clients: Mapping[bytes, int]) -> None:
        """Forgets the known queues when the topics that clients may write to have changed."""
        if clients is not self._clients:
            self._clients = clients
            self.known = KnownQueues()

    def update(self, groups: Sequence[Group], following: Sequence[int], forms: Sequence[int], *, trusted: bool) -> None:
        for group, offset, form in zip(groups, following, forms, strict=True):
            self.known.update(group, offset, plain=not trusted and form == Form.PLAIN)

    def begin(self, at: int, end: int, now_ms: int, oldest_ms: int = 0) -> None:
        """Prepares a call that may write the log from `at` to `end` of its segment.

        Requests that were received before `oldest_ms` (monotonic) stay queued.
        """
        for place, word in enumerate(self._gate.open[: len(WATCHED)]):  # as they were judged, not as they are by now
            self._watched[2 * place + 1] = word
        self.state[:] = 0
        self._state[kernel.LOG_AT] = at
        limits = self._limits
        limits[kernel.LOG_END] = end
        limits[kernel.NOW_MS] = now_ms
        limits[kernel.OLDEST] = oldest_ms

    def begin_ring(self, ring: NodeRing, spins: int, *, keeps: bool) -> None:
        """Prepares a call for this ring, after `begin`. The kernel spins so many times for a request that is not there
        yet.

        `keeps`: no answer is due yet.
        """
        state, limits = self._state, self._limits
        limits[kernel.KEEPS] = int(keeps)
        state[kernel.RUNG] = int(ring.rung)
        state[kernel.TAIL], state[kernel.HEAD] = ring.requests.places
        state[kernel.ANSWERED], state[kernel.ANSWERS_READ] = ring.answers.places
        limits[kernel.BELL] = ring.bell
        limits[kernel.LOOKS] = spins
        limits[kernel.LOOKS_MAX] = SPINS_OF_ALL * spins

    def end_ring(self, ring: NodeRing, why: int) -> None:
        """Takes over the ring's places after a call. `why` is the kernel's reason to return."""
        state = self._state
        ring.requests.go_to(state[kernel.TAIL], state[kernel.HEAD])
        ring.answers.go_to(state[kernel.ANSWERED], state[kernel.ANSWERS_READ])
        if why in (kernel.OTHER, kernel.CHANGED):
            ring.special = SPECIAL
        ring.rung = state[kernel.RUNG] != 0
        ring.reserved += state[kernel.KEPT]
        ring.rings = ring.rings or state[kernel.REQUESTS] > 0

    def kept(self) -> tuple[bytes, Numbers]:
        """The answers that the call kept, and a row for each."""
        count, size = self._state[kernel.REQUESTS], self._state[kernel.WRITTEN]
        return self.answers[:size].tobytes(), self.rows[: count * kernel.KEPT_SIZE].copy()

    def written(self, ring: NodeRing, now_ms: int, began_ms: int) -> Iterator[tuple[int, int]]:
        """Yields (time, count) of the stored requests in their order: when their clients wrote them into the ring.

        A request without a time counts from `began_ms` on, when the call began. Times are monotonic.
        """
        count = self._state[kernel.REQUESTS]
        stamps = self.rows[kernel.STAMP : count * kernel.KEPT_SIZE : kernel.KEPT_SIZE]
        ends = [count]
        if stamps.item(0) != stamps.item(count - 1):  # a client's do not move back
            ends[:0] = (np.flatnonzero(stamps[1:] != stamps[:-1]) + 1).tolist()
        first = 0
        for end in ends:
            yield written_ms(stamps.item(first), now_ms, ring.since_ms, began_ms), end - first
            first = end

    def end(self) -> tuple[int, int, int, int, int, int]:
        """The call's result: the log's end; requests, records and bytes that were stored; queues; memory."""
        state = self._state
        served = state[kernel.REQUESTS], state[kernel.RECORDS], state[kernel.BYTES]
        return state[kernel.LOG_AT], *served, state[kernel.TOUCHED], state[kernel.HELD]
