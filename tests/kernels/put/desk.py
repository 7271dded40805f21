"""A log in memory and all that an append works with, for tests of kernels that store."""

import numpy as np

from towline.format.record.forms import Form
from towline.kernels.base import forms, ownership
from towline.kernels.jit import rows
from towline.kernels.put import append, stamp
from towline.limits import REQUEST_GROUPS_MAX
from towline.master.put.queue_table import QueueTable

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
