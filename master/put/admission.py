"""Decides whether a put may be stored: the checks of RocketMQ's store in its order (spec 5.1), then Towline's own.

The gate is checked once per slice of requests, before a byte is copied. What depends on the request itself is checked
by `append` and its kernel. A refusal names its cause with numbers, is counted, and means that nothing was stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from towline.clock import boottime_ns
from towline.errors import DiskFull, StoreNotWritable
from towline.format.wire.refusals import Cause, sentence_of
from towline.format.wire.status import PutStatus
from towline.kernels.jit.compiled import Numbers
from towline.log.errors import PoolEmpty, SegmentNotMade
from towline.runtime.positions import Flag, Position, Positions

BUSY_MS_MAX: Final = 10_000_000  # a turn longer than that is a clock that jumped (spec 5.1)
WRITE: Final = 2  # bit of broker_permission
_DISK_MS: Final = 1000  # the interval at which allocate and reput check the disk
_SOON_MS: Final = 20
_STOP_MS: Final = 500
_POOL_MS: Final = 200  # a commit, and a buffer zeroed
_CHANGE_MS: Final = 200  # of the roles in the group, or of its in-sync set
WATCHED: Final = (Position.SYNC_FAILED, Position.DISPATCH_STOPPED, Position.PROMISED)  # also by the kernels
_STATES: Final = (*WATCHED, Position.EPOCH)
_OVER_MS_MAX: Final = 1 << 31
_WORD: Final = 8


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not stored. `record` and `rule` name the record and the rule that it breaks, where there is
    one."""

    status: PutStatus
    sentence: str
    rule: int = 0
    record: int = -1
    retry_after_ms: int = 0
    cause: Cause = Cause.REQUEST


def refusal(
    status: PutStatus, cause: Cause, numbers: Mapping[str, int] | None = None, retry_after_ms: int = 0, words: str = ""
) -> Refusal:
    sentence = sentence_of(cause, numbers or {}, retry_after_ms, words)
    return Refusal(status, sentence, retry_after_ms=retry_after_ms, cause=cause)


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that the gate compares with. `in_sync_min` counts the master; `leased`: it leads by a lease in
    etcd."""

    waiting_max: int
    flush_backlog_max: int
    replicated: bool = False  # whether PUT_OK waits for slaves
    in_sync_min: int = 1
    gap_max: int = 0
    permission: int = 6
    leased: bool = False


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state that the gate judges. Offsets are bytes of the log; `in_sync` counts the master, `waiting` requests.

    `lease_over_ms`: for how long this master's lease has been over, 0 while it lasts.
    """

    stopping: bool
    flags: Flag
    sync_failed: bool
    dispatch_stopped: int
    waiting: int
    appended: int
    flushed: int
    replicated: int
    in_sync: int
    epoch: int = 0
    promised: int = 0
    lease_over_ms: int = 0


def _stopping(_: Limits, state: StoreState) -> Refusal | None:
    if not state.stopping:
        return None
    return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.STOPPING, None, _STOP_MS, "the node is being stopped")


def _permission(limits: Limits, _: StoreState) -> Refusal | None:
    if limits.permission & WRITE:
        return None
    numbers = {"broker_permission": limits.permission}
    return refusal(PutStatus.NO_PERMISSION, Cause.PERMISSION, numbers, words="this node is read-only")


_FLAGS: Final = {
    Flag.DISK_FULL: (Cause.DISK_FULL, "the disk has no room for another segment, or is fuller than is allowed"),
    Flag.LOGIC_DISK_FULL: (Cause.LOGIC_DISK_FULL, "the disk has no room for ConsumeQueues"),
    Flag.LOGIC_QUEUE_ERROR: (Cause.QUEUE_ERROR, "a ConsumeQueue cannot be written"),
    Flag.RUNTIME_FULL: (Cause.RUNTIME_FULL, "the runtime directory has no room for the ends of another queue"),
    Flag.INDEX_ERROR: (Cause.INDEX_ERROR, "the disk has no room for the index"),
}


def _not_writeable(_: Limits, state: StoreState) -> Refusal | None:
    for flag, (cause, words) in _FLAGS.items():
        if flag in state.flags:
            return refusal(PutStatus.SERVICE_NOT_AVAILABLE, cause, {"flags": int(state.flags)}, _DISK_MS, words)
    return None


def _sync_failed(_: Limits, state: StoreState) -> Refusal | None:
    if not state.sync_failed:
        return None
    words = "a sync of the log failed, so nothing more can be promised before `towline store mend --yes`"
    return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.SYNC_FAILED, words=words)


def _dispatch_stopped(_: Limits, state: StoreState) -> Refusal | None:
    if not state.dispatch_stopped:
        return None
    words = "reput cannot dispatch the record there; run `towline master status`"
    numbers = {"offset": state.dispatch_stopped - 1}
    return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.DISPATCH_STOPPED, numbers, words=words)


def _fenced(_: Limits, state: StoreState) -> Refusal | None:
    if state.promised <= state.epoch:
        return None
    numbers = {"epoch": state.epoch, "promised": state.promised}
    words = "this node has promised to follow another master"
    return refusal(PutStatus.NOT_MASTER, Cause.FENCED, numbers, _CHANGE_MS, words)


def _lease(_: Limits, state: StoreState) -> Refusal | None:
    if not state.lease_over_ms:
        return None
    numbers = {"over_ms": min(state.lease_over_ms, _OVER_MS_MAX)}
    words = "this node does not hold the leadership of its group"
    return refusal(PutStatus.NOT_MASTER, Cause.LEASE, numbers, _CHANGE_MS, words)


def _replicas(limits: Limits, state: StoreState) -> Refusal | None:
    if state.in_sync >= limits.in_sync_min:
        return None
    numbers = {"in_sync": state.in_sync, "limit": limits.in_sync_min}
    return refusal(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Cause.REPLICAS, numbers, _CHANGE_MS, "slaves are missing")


def _waiting(limits: Limits, state: StoreState) -> Refusal | None:
    if state.waiting < limits.waiting_max:
        return None
    on_slaves = limits.replicated and state.replicated < state.flushed
    cause = Cause.REPLICA_WAIT if on_slaves else Cause.WAITING_REQUESTS
    numbers = {"waiting": state.waiting, "limit": limits.waiting_max}
    if on_slaves:
        numbers["behind_bytes"] = state.appended - state.replicated
    return refusal(PutStatus.SYSTEM_BUSY, cause, numbers, _SOON_MS)


def _flush_backlog(limits: Limits, state: StoreState) -> Refusal | None:
    backlog = state.appended - state.flushed
    if backlog <= limits.flush_backlog_max:
        return None
    numbers = {"backlog_bytes": backlog, "limit_bytes": limits.flush_backlog_max}
    return refusal(PutStatus.SYSTEM_BUSY, Cause.FLUSH_BACKLOG, numbers, 2 * _SOON_MS)


@dataclass(frozen=True, slots=True)
class Check:
    """A step of spec 5.1 (0: Towline's own), the statuses it refuses with, and the function or module that checks
    it."""

    step: int
    statuses: tuple[PutStatus, ...]
    by: Callable[[Limits, StoreState], Refusal | None] | str


CHECKS: Final = (
    Check(0, (PutStatus.NOT_GREETED,), "towline.link.server: a request before a greeting"),
    Check(0, (PutStatus.SYSTEM_BUSY,), "the append kernel: it waited longer than wait_time_mills_in_send_queue"),
    Check(0, (PutStatus.EXPIRED,), "the append kernel: its deadline has passed"),
    Check(0, (PutStatus.NO_PERMISSION,), _permission),
    Check(1, (PutStatus.SERVICE_NOT_AVAILABLE,), _stopping),
    Check(2, (PutStatus.NOT_MASTER,), "towline.slave.follow: it refuses the greeting, and names the master"),
    Check(2, (PutStatus.NOT_MASTER,), _fenced),
    Check(2, (PutStatus.NOT_MASTER,), _lease),
    Check(3, (PutStatus.SERVICE_NOT_AVAILABLE,), _dispatch_stopped),  # before its flag, as it names the offset
    Check(3, (PutStatus.SERVICE_NOT_AVAILABLE,), _not_writeable),
    Check(3, (PutStatus.SERVICE_NOT_AVAILABLE,), _sync_failed),
    Check(6, (PutStatus.OS_PAGE_CACHE_BUSY,), "towline.master.put.stall_responder: an append is stuck in the mapping"),
    Check(9, (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,), _replicas),
    Check(0, (PutStatus.SYSTEM_BUSY,), _waiting),
    Check(0, (PutStatus.SYSTEM_BUSY,), _flush_backlog),
    Check(
        0,
        (PutStatus.TOPIC_NOT_EXIST, PutStatus.NO_PERMISSION, PutStatus.UNKNOWN_QUEUE, PutStatus.SERVICE_NOT_AVAILABLE),
        "towline.master.put.append: its groups",
    ),
    Check(4, (PutStatus.MESSAGE_ILLEGAL,), "towline.master.put.append: a topic that is too long"),
    Check(5, (PutStatus.MESSAGE_ILLEGAL,), "towline.format: a body may be empty and cannot be null"),
    Check(7, (PutStatus.MESSAGE_ILLEGAL,), "the append kernel: numbers of the groups that do not fit"),
    Check(8, (PutStatus.WHEEL_TIMER_MSG_ILLEGAL,), "the append kernel: what a timer record says of its time"),
    Check(
        12, (PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.DISK_FULL), "towline.master.put.append: the next segment"
    ),
    Check(10, (PutStatus.PROPERTIES_SIZE_EXCEEDED,), "the append kernel"),
    Check(11, (PutStatus.MESSAGE_ILLEGAL,), "the append kernel"),
    Check(
        13, (PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE), "the append kernel: stored; or a page cannot be had"
    ),
    Check(
        0,
        (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE),
        "towline.master.put.acks: stored, and not promised",
    ),
)
NEVER: Final = {
    PutStatus.UNKNOWN_ERROR: "put names what it refuses; what it did not foresee ends the process, which starts again",
    PutStatus.PUT_TO_REMOTE_BROKER_FAIL: "puts are not handed to another broker",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: "there are no light queues (LMQ)",
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: "no slot of a wheel can be full: what waits for its time is a queue",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "timers cannot be switched off here",
}


class Gate:
    """Checks the store's state once per slice, so that a request costs one comparison."""

    def __init__(self, positions: Positions, limits: Limits) -> None:
        self._positions = positions
        self._limits = limits
        self._checks = [check.by for check in CHECKS if not isinstance(check.by, str)]
        self._open: list[int] = []  # what WATCHED and more were before the look that found the gate open
        # For kernels: pairs of a byte of the positions and the word that stood there when the gate was found open.
        self.watched: Numbers = np.array([word for each in WATCHED for word in (_WORD * each.word, 0)], np.int64)
        self._asked = limits.leased or limits.in_sync_min > 1  # of more than words

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
        state = self._store_state(waiting, stopping)
        for check in self._checks:
            refused = check(self._limits, state)
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
        get = self._positions.get
        appended = get(Position.APPENDED)
        return StoreState(
            stopping=stopping,
            flags=self._positions.flags,
            sync_failed=bool(get(Position.SYNC_FAILED)),
            dispatch_stopped=get(Position.DISPATCH_STOPPED),
            waiting=waiting,
            appended=appended,
            flushed=get(Position.FLUSHED),
            replicated=get(Position.REPLICATED),
            in_sync=self._in_sync(appended) if self._limits.in_sync_min > 1 else 1,
            epoch=get(Position.EPOCH),
            promised=get(Position.PROMISED),
            lease_over_ms=lease_over_ms(get(Position.LEASE_UNTIL)) if self._limits.leased else 0,
        )

    def _in_sync(self, appended: int) -> int:
        """The number of in-sync nodes: the master and the recorded members that are connected within
        ha_max_gap_not_in_sync."""
        least, members = appended - self._limits.gap_max, self._positions.get(Position.IN_SYNC)
        live = (slave for slave in self._positions.slaves() if slave.connected and members >> slave.node & 1)
        return 1 + sum(slave.appended >= least for slave in live)


def lease_over_ms(until_ns: int) -> int:
    """For how many milliseconds a lease has been over; 0 while it lasts."""
    over_ns = boottime_ns() - until_ns
    return max(0, over_ns // 1_000_000 + 1) if over_ns >= 0 else 0


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
        return refusal(PutStatus.DISK_FULL, Cause.DISK_FULL, None, _DISK_MS, str(error))
    if isinstance(error, PoolEmpty):  # at once where the settings say so, as RocketMQ's gate does
        status = PutStatus.CREATE_MAPPED_FILE_FAILED if error.waited_ms else PutStatus.SYSTEM_BUSY
        numbers = {"buffers": error.count, "waited_ms": error.waited_ms}
        return refusal(status, Cause.TRANSIENT_POOL, numbers, _POOL_MS, str(error))
    if isinstance(error, StoreNotWritable):
        return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.READ_ONLY, None, _DISK_MS, error.describe())
    segment = {"segment": error.base} if isinstance(error, SegmentNotMade) else {}
    return refusal(PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT, segment, _DISK_MS, str(error))


def topic_in_doubt(name: str) -> Refusal:
    words = f"a change of the topic {name!r} could not be saved, nor taken back: it is tried again"
    return refusal(PutStatus.SERVICE_NOT_AVAILABLE, Cause.TOPICS_FILE, None, _DISK_MS, words)


def expired(late_ms: int) -> Refusal:
    return refusal(PutStatus.EXPIRED, Cause.EXPIRED, {"late_ms": late_ms}, words="the request's deadline has passed")
