"""What is plain goes from a ring or the socket into the log in one call of a kernel, many requests at a time.

It does what `Appender.append` does, for queues that this one has written to since topics last changed; a request that
asks for more is left where it is for it. Where PUT_OK is not due as soon as a request is appended, answers are kept.
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
LOOKS_OF_ALL: Final = 8  # times what may be spent on one
ANSWERS_SIZE: Final = 3 * kernel.ANSWER_MAX  # of one call
_WORD: Final = 8
_QUEUES_AT_FIRST: Final = 64
Queue = tuple[bytes, int]


class Known:
    """Queues that clients may write to, with the number of the next record of each, as the kernel looks them up."""

    def __init__(self) -> None:
        self._numbers: dict[Queue, int] = {}
        self._queues: list[Queue] = []
        self.directory = QueueDirectory()
        self.state: Numbers = np.zeros(kernel.QUEUE_STATE * _QUEUES_AT_FIRST, np.int64)
        self.touched: Numbers = np.zeros(_QUEUES_AT_FIRST, np.int64)
        self.places: Numbers = np.zeros(kernel.PLACES_SIZE, np.int64)

    @property
    def arguments(self) -> kernel.Queues:
        """`known` of the kernels, until a queue is added."""
        return self.directory.arrays, self.state, self.touched, self.places

    def take(self, group: Group, following: int, *, plain: bool) -> None:
        """The appender has stored a group; a `plain` one was any client's."""
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
        """Of a call that touched so many queues: queue, its next number, records, bytes and requests."""
        found = []
        for number in self.touched[:count].tolist():
            at = number * kernel.QUEUE_STATE
            following, messages, size, requests = self.state[at : at + kernel.SEEN].tolist()
            self.state[at + kernel.MESSAGES : at + kernel.SEEN] = 0
            found.append((self._queues[number], following, messages, size, requests))
        return found


class Express:
    """What the kernels need beside the appender's own."""

    def __init__(self, positions: Positions, gate: Gate, ring_size: int, request_limit: int) -> None:
        """`gate` is looked at before a call. `ring_size` is 0 where there are no rings."""
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
        self.known = Known()
        self._clients: Mapping[bytes, int] | None = None

    def look(self, clients: Mapping[bytes, int]) -> None:
        """The topics that clients may write to as they are now."""
        if clients is not self._clients:
            self._clients = clients
            self.known = Known()

    def take(self, groups: Sequence[Group], following: Sequence[int], forms: Sequence[int], *, trusted: bool) -> None:
        for group, offset, form in zip(groups, following, forms, strict=True):
            self.known.take(group, offset, plain=not trusted and form == Form.PLAIN)

    def begin(self, at: int, end: int, now_ms: int, oldest_ms: int = 0) -> None:
        """Before a call that may write the log from `at` to `end` of its segment.

        What came before `oldest_ms` (monotonic) is left.
        """
        for place, word in enumerate(self._gate.open[: len(WATCHED)]):  # as they were judged, not as they are by now
            self._watched[2 * place + 1] = word
        self.state[:] = 0
        self._state[kernel.LOG_AT] = at
        limits = self._limits
        limits[kernel.LOG_END] = end
        limits[kernel.NOW_MS] = now_ms
        limits[kernel.OLDEST] = oldest_ms

    def begin_ring(self, ring: NodeRing, looks: int, *, keeps: bool) -> None:
        """After `begin`, for this ring. The kernel looks so many times for a request that is not there yet.

        `keeps`: no answer is due yet.
        """
        state, limits = self._state, self._limits
        limits[kernel.KEEPS] = int(keeps)
        state[kernel.RUNG] = int(ring.rung)
        state[kernel.TAIL], state[kernel.HEAD] = ring.requests.places
        state[kernel.ANSWERED], state[kernel.ANSWERS_READ] = ring.answers.places
        limits[kernel.BELL] = ring.bell
        limits[kernel.LOOKS] = looks
        limits[kernel.LOOKS_MAX] = LOOKS_OF_ALL * looks

    def end_ring(self, ring: NodeRing, why: int) -> None:
        """After the call, which came back for that reason."""
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
        """When the requests that were stored had been written, and how many of them, in their order.

        Whose client does not say counts from `began_ms` on, when the call began. Times are monotonic.
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
        """After it: where the log ends; requests, records and bytes that were served; queues; memory."""
        state = self._state
        served = state[kernel.REQUESTS], state[kernel.RECORDS], state[kernel.BYTES]
        return state[kernel.LOG_AT], *served, state[kernel.TOUCHED], state[kernel.HELD]
