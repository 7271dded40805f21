"""Decides whether a put may be stored: keeps the gate that `put_checks` describes, and words what append refuses.

The gate is checked once per slice of requests, before a byte is copied. What depends on the request itself is checked
by `append` and its kernel. A refusal names its cause with numbers, is counted, and means that nothing was stored.
"""

from typing import Final

import numpy as np

from towline.errors import DiskFull, StoreNotWritable
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.kernels.jit.compiled import Numbers
from towline.log.errors import PoolEmpty, SegmentNotMade
from towline.node.store.put_checks import DISK_MS, Limits, Refusal, StoreState, judge, refusal, store_state
from towline.runtime.positions import Position, Positions

BUSY_MS_MAX: Final = 10_000_000  # a turn longer than that is a clock that jumped (spec 5.1)
_POOL_MS: Final = 200  # a commit, and a buffer zeroed
WATCHED: Final = (Position.SYNC_FAILED, Position.DISPATCH_STOPPED, Position.PROMISED)  # also by the kernels
_STATES: Final = (*WATCHED, Position.EPOCH)
_WORD: Final = 8


class Gate:
    """Checks the store's state once per slice, so that a request costs one comparison."""

    def __init__(self, positions: Positions, limits: Limits) -> None:
        self._positions = positions
        self._limits = limits
        self._open: list[int] = []  # what WATCHED and more were before the look that found the gate open
        # For kernels: pairs of a byte of the positions and the word that stood there when the gate was found open.
        self.watched: Numbers = np.array([word for each in WATCHED for word in (_WORD * each.word, 0)], np.int64)
        self._asked = limits.leased or limits.in_sync_min > 1 or limits.rocketmq_min > 0  # of more than words

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        """Other limits from the next check on, which looks at everything."""
        self._limits = limits
        self._open = []

    def check(self, waiting: int, *, stopping: bool) -> Refusal | None:
        """The refusal of every request in this slice, or None when the gate is open."""
        states = self._positions.states(_STATES)  # before they are judged: what changes meanwhile is seen by the next
        if not stopping and self._is_open(waiting, states):
            return None
        refused = judge(self._limits, self._store_state(waiting, stopping))
        if refused is not None:
            self._open = []
            return refused
        self._open = states
        self.watched[1::2] = states[: len(WATCHED)]  # as they were judged, not as they are by now
        return None

    def _is_open(self, waiting: int, states: list[int]) -> bool:
        """Whether nothing that could shut the gate has changed since it was open: running every check costs 8 us."""
        if self._asked or waiting >= self._limits.waiting_max or states != self._open:
            return False
        get = self._positions.get
        backlog = get(Position.APPENDED) - get(Position.FLUSHED)
        return backlog <= self._limits.flush_backlog_max

    def _store_state(self, waiting: int, stopping: bool) -> StoreState:
        return store_state(self._positions, self._limits, waiting, stopping=stopping)


def page_cache_busy(turn_ms: int, limit_ms: int) -> Refusal | None:
    """The refusal of step 6 for an append of that length. RocketMQ's bounds: limit < turn < 10,000,000 ms."""
    if not limit_ms < turn_ms < BUSY_MS_MAX:
        return None
    retry_after_ms = min(1000, max(100, turn_ms // 4))
    numbers = {"waited_ms": turn_ms, "limit_ms": limit_ms}
    return refusal(
        PutStatus.OS_PAGE_CACHE_BUSY, Cause.PAGE_CACHE, numbers, retry_after_ms, "an append waits for the disk"
    )


def waited_too_long(waited_ms: int, limit_ms: int) -> Refusal:
    numbers = {"waited_ms": waited_ms, "limit_ms": limit_ms}
    return refusal(PutStatus.SYSTEM_BUSY, Cause.SEND_QUEUE, numbers, min(1000, max(10, limit_ms // 5)))


def no_room(error: Exception) -> Refusal:
    """The refusal of steps 12 and 13, for an error raised while the next segment or its pages were prepared."""
    if isinstance(error, DiskFull):
        return refusal(PutStatus.DISK_FULL, Cause.DISK_FULL, None, DISK_MS, str(error))
    if isinstance(error, PoolEmpty):  # at once where the settings say so, as RocketMQ's gate does
        status = PutStatus.CREATE_MAPPED_FILE_FAILED if error.waited_ms else PutStatus.SYSTEM_BUSY
        numbers = {"buffers": error.count, "waited_ms": error.waited_ms}
        return refusal(status, Cause.TRANSIENT_POOL, numbers, _POOL_MS, str(error))
    if isinstance(error, StoreNotWritable):
        return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.READ_ONLY, None, DISK_MS, error.describe())
    segment = {"segment": error.base} if isinstance(error, SegmentNotMade) else {}
    return refusal(PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT, segment, DISK_MS, str(error))


def topic_in_doubt(name: str) -> Refusal:
    words = f"a change of the topic {name!r} could not be saved, nor taken back: it is tried again"
    return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.TOPICS_FILE, None, DISK_MS, words)


def expired(late_ms: int) -> Refusal:
    return refusal(PutStatus.EXPIRED, Cause.EXPIRED, {"late_ms": late_ms}, words="the request's deadline has passed")
