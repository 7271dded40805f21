"""A log in memory and all that an append works with, for tests of kernels that store."""

import numpy as np

from master.put.queue_table import QueueTable
from towline.format.record.forms import Form
from towline.kernels.base import forms, ownership
from towline.kernels.jit import rows
from towline.kernels.put import append, stamp
from towline.limits import REQUEST_GROUPS_MAX

BASE = 1 << 20
NOW = 1_700_000_000_123
NEVER = 1 << 60
LOG = 256 * 1024
HOST = np.frombuffer(bytes([10, 0, 0, 1, 0, 0, 42, 159]), np.uint8)
OWN = ownership.own_values("cluster-a")
APPENDED, STAMPED, WATCHED = 0, 8, 16
CHECKS = stamp.CHECK_CRC | stamp.FROM_CLIENT
REQUEST_LIMIT = 16 * 1024
REALS = forms.RealTopics()
COUNTERS = ("requests", "records", "size", "touched", "memory", "scheduled", "written")


class Log:
    """A segment of LOG bytes, its positions, and queues that clients may write to."""

    def __init__(self) -> None:
        self.bytes = np.zeros(LOG, np.uint8)
        self.positions = np.zeros(3, np.int64)
        self.watched = np.array([WATCHED, 0])
        self.queues = QueueTable()
        self.states = np.zeros(1, rows.APPEND)
        state = self.state = rows.fields_of(self.states)[0]
        state.base, state.store_timestamp, state.now_ms = BASE, NOW, NOW
        state.end = LOG - 8
        state.bytes_max, state.request_limit, state.body_max = 1 << 20, REQUEST_LIMIT, 1 << 20
        state.checks, state.appended_at, state.stamped_at = CHECKS, APPENDED, STAMPED
        self.groups = np.zeros(REQUEST_GROUPS_MAX, rows.GROUP)
        self.result = np.zeros(stamp.RESULT_SIZE, np.int64)

    def allow(self, topic: bytes, queue_id: int, following: int, form: Form = Form.PLAIN) -> None:
        """Lets clients write to a queue whose next record has the number `following`."""
        self.queues.raise_to({(topic, queue_id): following})
        self.queues.allow(topic, queue_id, form, rows.Sender.CLIENT)

    def begin(self) -> None:
        """Sets what a call counts to 0."""
        for name in COUNTERS:
            setattr(self.state, name, 0)

    @property
    def arguments(self) -> append.Appender:
        terms = OWN, HOST, REALS.at(NOW, NOW), self.result
        positions = self.positions.view(np.uint8)
        return self.states, self.bytes, positions, self.watched, self.queues.arguments, self.groups, terms


class OneByOne:
    """The model: each request by itself, by the kernel that validates and stamps, published by hand."""

    def __init__(self, queues: dict[tuple[bytes, int], int]) -> None:
        self.log, self.at = np.zeros(LOG, np.uint8), 0
        self.next = dict(queues)

    def put(self, groups: list[tuple[tuple[bytes, int], list[bytes]]]) -> list[tuple[int, int]]:
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
