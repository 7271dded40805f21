"""The checks of a put in RocketMQ's order (spec 5.1), then Towline's own: which states of a store shut it to puts.

Put checks them before it stores anything; who looks at the node from the outside judges by the same (`readiness`). What
depends on the request itself is checked by `append` and its kernel. A refusal names its cause with numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from towline.clock import boottime_ns
from towline.format.wire.refusals import Cause, sentence_of
from towline.format.wire.status import PutStatus
from towline.runtime.positions import Flag, Position, Positions
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

WRITE: Final = 2  # bit of broker_permission
DISK_MS: Final = 1000  # the interval at which allocate and reput check the disk
_SOON_MS: Final = 20
_STOP_MS: Final = 500
_CHANGE_MS: Final = 200  # of the roles in the group, or of its in-sync set
_OVER_MS_MAX: Final = 1 << 31


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
    """The settings that the gate compares with. `in_sync_min` counts the master, `rocketmq_min` brokers of RocketMQ;
    `leased`: it leads by a lease in etcd."""

    waiting_max: int
    flush_backlog_max: int
    replicated: bool = False  # whether PUT_OK waits for slaves
    in_sync_min: int = 1
    rocketmq_min: int = 0
    gap_max: int = 0
    permission: int = 6
    leased: bool = False


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state that the gate judges. Offsets are bytes of the log; `in_sync` counts the master, `waiting` requests,
    `rocketmq` brokers of RocketMQ that follow closely.

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
    rocketmq: int = 0
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
            return refusal(PutStatus.SERVICE_NOT_AVAILABLE, cause, {"flags": int(state.flags)}, DISK_MS, words)
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


def _brokers(limits: Limits, state: StoreState) -> Refusal | None:
    if state.rocketmq >= limits.rocketmq_min:
        return None
    numbers = {"rocketmq": state.rocketmq, "limit": limits.rocketmq_min}
    words = "slaves of RocketMQ are missing"
    return refusal(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Cause.REPLICAS, numbers, _CHANGE_MS, words)


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
    Check(9, (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,), _brokers),
    Check(0, (PutStatus.SYSTEM_BUSY,), _waiting),
    Check(0, (PutStatus.SYSTEM_BUSY,), _flush_backlog),
    Check(
        0,
        (PutStatus.TOPIC_NOT_EXIST, PutStatus.NO_PERMISSION, PutStatus.UNKNOWN_QUEUE, PutStatus.SERVICE_NOT_AVAILABLE),
        "towline.master.put.append: its groups",
    ),
    Check(4, (PutStatus.MESSAGE_ILLEGAL,), "towline.master.put.append: a topic that is too long"),
    Check(
        0,
        (PutStatus.OUT_OF_ORDER_SEQUENCE, PutStatus.PRODUCER_FENCED, PutStatus.UNKNOWN_PRODUCER),
        "towline.master.put.producers: the batch of an idempotent producer",
    ),
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


_JUDGED: Final = [check.by for check in CHECKS if not isinstance(check.by, str)]


def judge(limits: Limits, state: StoreState) -> Refusal | None:
    """The refusal of every put while the store is in this state; None where it takes them."""
    return next((refused for check in _JUDGED if (refused := check(limits, state)) is not None), None)


def limits_of(settings: Settings) -> Limits:
    return Limits(
        waiting_max=settings.put_waiting_max,
        flush_backlog_max=settings.flush_backlog_max,
        replicated=settings.broker_role is BrokerRole.SYNC_MASTER,
        in_sync_min=settings.min_in_sync_replicas,
        rocketmq_min=settings.rocketmq_ha_acks,
        gap_max=settings.ha_max_gap_not_in_sync,
        permission=settings.broker_permission,
        leased=bool(settings.etcd_endpoints),
    )


def store_state(
    positions: Positions, limits: Limits, waiting: int, *, stopping: bool, now_ns: int | None = None
) -> StoreState:
    """The state of a master's store as its positions say. `waiting`: requests that put has not answered yet; `now_ns`:
    CLOCK_BOOTTIME where it is not to be read."""
    get = positions.get
    appended = get(Position.APPENDED)
    return StoreState(
        stopping=stopping,
        flags=positions.flags,
        sync_failed=bool(get(Position.SYNC_FAILED)),
        dispatch_stopped=get(Position.DISPATCH_STOPPED),
        waiting=waiting,
        appended=appended,
        flushed=get(Position.FLUSHED),
        replicated=get(Position.REPLICATED),
        in_sync=_in_sync(positions, appended - limits.gap_max) if limits.in_sync_min > 1 else 1,
        rocketmq=_rocketmq(positions, appended - limits.gap_max) if limits.rocketmq_min else 0,
        epoch=get(Position.EPOCH),
        promised=get(Position.PROMISED),
        lease_over_ms=lease_over_ms(get(Position.LEASE_UNTIL), now_ns) if limits.leased else 0,
    )


def _in_sync(positions: Positions, least: int) -> int:
    """The number of in-sync nodes: the master and the recorded members that are connected within
    ha_max_gap_not_in_sync."""
    members = positions.get(Position.IN_SYNC)
    live = (slave for slave in positions.slaves() if slave.connected and members >> slave.node & 1)
    return 1 + sum(slave.appended >= least for slave in live)


def _rocketmq(positions: Positions, least: int) -> int:
    """The number of hosts with a connected broker of RocketMQ that is within ha_max_gap_not_in_sync."""
    return sum(end >= least for end in positions.rocketmq_ends())


def lease_over_ms(until_ns: int, now_ns: int | None = None) -> int:
    """For how many milliseconds a lease has been over; 0 while it lasts."""
    over_ns = (boottime_ns() if now_ns is None else now_ns) - until_ns
    return max(0, over_ns // 1_000_000 + 1) if over_ns >= 0 else 0
