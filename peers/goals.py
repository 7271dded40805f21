"""What the comparison is to reach: of each goal the figure, the floor below which it counts as failed, and the goal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from towline.limits import KIB

from .plan import Durability, Kind, Replica, Work

TOWLINE: Final = "towline"
RING: Final = "towline-ring"
TCP: Final = "towline-tcp"
REMOTING: Final = "towline-remoting"
PUT_PROCESS: Final = "towline:put"


@dataclass(frozen=True, slots=True)
class Goal:
    """Of all rows that `of` picks the worst counts. `at_most`: the figure is to be low. None: no such bound."""

    number: str
    what: str
    figure: str
    of: Callable[[Work], bool]
    floor: float | None = None
    goal: float | None = None
    at_most: bool = False
    unit: str = ""
    system: str = TOWLINE


def _put(body: int, durability: Durability = Durability.ASYNC, clients: tuple[int, ...] = ()) -> Callable[[Work], bool]:
    def picks(work: Work) -> bool:
        plain = work.kind is Kind.PUT and work.replica is Replica.NONE and not work.sync_delay_ms and work.queues == 1
        return plain and work.body == body and work.durability is durability and work.clients in (clients or (1, 2, 4))

    return picks


def _slow(delay_ms: int) -> Callable[[Work], bool]:
    return lambda work: work.kind is Kind.PUT and work.sync_delay_ms == delay_ms


def _single(clients: int) -> Callable[[Work], bool]:
    return lambda work: work.kind is Kind.SINGLE and work.clients == clients


def _rate(durability: Durability) -> Callable[[Work], bool]:
    return lambda work: work.kind is Kind.RATE and work.durability is durability


def _stored(work: Work) -> bool:
    return work.kind is Kind.STORED and work.body == KIB and work.count <= 1_000_000


def _of_best(number: str, what: str, of: Callable[[Work], bool], floor: float | None, goal: float) -> tuple[Goal, ...]:
    """Of both of ours. What a Producer on the same host takes is shared memory: that row decides."""
    ways = ((RING, "shared memory"), (TOWLINE, "ZeroMQ"))
    return tuple(
        Goal(number, f"{what}, of the best peer: {way}", "per_s_of_best", of, floor, goal, unit="x", system=system)
        for system, way in ways
    )


def _clients(count: int) -> str:
    return f"{count} client{'s' * (count > 1)}"


def _is(kind: Kind, body: int = 100) -> Callable[[Work], bool]:
    return lambda work: work.kind is kind and work.body == body


def _any_stored(work: Work) -> bool:
    return work.kind is Kind.STORED


def _latencies(
    system: str, way: str, at_rest: tuple[float | None, float | None], to_consumer: tuple[float, float]
) -> Iterator[Goal]:
    """Of 5,000 messages a second. `at_rest` and `to_consumer` are the floors of p50 and p99, us."""
    put, synced, tail = _rate(Durability.ASYNC), _rate(Durability.SYNC), _is(Kind.TAIL, KIB)
    for name, floor, goal in (("p50", at_rest[0], 50), ("p99", at_rest[1], 300)):
        yield Goal("T6", f"5,000/s, {name}: {way}", f"{name}_us", put, floor, goal, True, " us", system)
    yield Goal("T6", f"5,000/s, p99.9 of the best peer: {way}", "p99_9_us_of_best", put, None, 1, True, "x", system)
    yield Goal(
        "T7", f"5,000/s synced, p99 of the best peer: {way}", "p99_us_of_best", synced, 1, 0.5, True, "x", system
    )
    for name, floor in zip(("p50", "p99"), to_consumer, strict=True):
        what = "put to consumer, 5,000/s"
        yield Goal("T18", f"{what}, {name}: {way}", f"{name}_us", tail, floor, None, True, " us", system)
        yield Goal("T18", f"{what}, {name} of the best: {way}", f"{name}_us_of_best", tail, None, 1, True, "x", system)


def _of_remoting() -> Iterator[Goal]:
    """Of the remoting port: our own client there and frames of RocketMQ's made before, its Java clients beside a real
    broker, who is idle."""
    for clients, floor in ((1, 3), (4, 4)):
        what = f"put pipelined 100 B, {_clients(clients)}, of the best peer: TCP"
        yield Goal("T1", what, "per_s_of_best", _put(100, clients=(clients,)), floor, 5, unit="x", system=TCP)
    for system, way in ((TCP, "TCP"), (REMOTING, "RocketMQ's protocol")):
        for clients, rates in ((1, (10_000, 20_000)), (4, (25_000, 40_000))):
            what = f"one at a time, {way}, {_clients(clients)}"
            yield Goal("T5", what, "per_s", _single(clients), *rates, unit="/s", system=system)
        yield Goal("T5", f"one at a time, {way}, 1 client, p50", "p50_us", _single(1), 80, 40, True, " us", system)
    what = "replay, of the best peer: TCP"
    yield Goal("T8", what, "per_s_of_best", _is(Kind.REPLAY, 100), 2.8, 5, unit="x", system=TCP)
    for number, kind, of, goal in (
        ("J1", Kind.JAVA_SYNC, "one send after the other", 2),
        ("J2", Kind.JAVA_BATCH, "batches of 32", 3),
        ("J3", Kind.JAVA_ASYNC, "1,000 on their way", 3),
        ("J4", Kind.JAVA_PUSH, "push consumer", 2),
    ):
        what = f"RocketMQ's Java client, {of}: here of its own broker"
        yield Goal(number, what, "per_s_of_best", _is(kind, KIB), 1, goal, unit="x", system=REMOTING)
    what = "the same, p99 of one send after the other"
    yield Goal("J1", what, "p99_us_of_best", _is(Kind.JAVA_SYNC, KIB), None, 0.5, True, "x", REMOTING)
    idle, what = _is(Kind.IDLE, 0), "idle connections of RocketMQ's clients"
    yield Goal("C10", f"{what}, memory of their process", "idle_mb", idle, 200, 50, True, " MB", REMOTING)
    yield Goal("C10", f"{what}, CPU of their process", "idle_cpu_percent", idle, 2, None, True, " %", REMOTING)


GOALS: Final = (
    *_of_best("T1", "put pipelined 100 B, 1 client", _put(100, clients=(1,)), 5, 10),
    *_of_best("T1", "put pipelined 100 B, 4 clients", _put(100, clients=(4,)), 6, 10),
    *_of_best("T2", "put pipelined 1 KiB", _put(KIB, clients=(1, 4)), 4, 6),
    *_of_best("T3", "synced 100 B", _put(100, Durability.SYNC), 2, 5),
    *_of_best("T3", "synced 1 KiB", _put(KIB, Durability.SYNC), 2, 5),
    *(
        Goal("T4", f"synced 1 KiB, +{ms} ms per sync: {way}", "per_s", _slow(ms), None, goal, unit="/s", system=system)
        for ms, goal in ((1, 200_000), (5, 100_000))
        for system, way in ((RING, "shared memory"), (TOWLINE, "ZeroMQ"))
    ),
    Goal("T5", "one at a time, shared memory", "per_s", _single(1), 150_000, 150_000, unit="/s", system=RING),
    Goal("T5", "one at a time, ZeroMQ, 1 client", "per_s", _single(1), None, 20_000, unit="/s"),
    Goal("T5", "one at a time, ZeroMQ, 4 clients", "per_s", _single(4), None, 40_000, unit="/s"),
    *_latencies(RING, "shared memory", at_rest=(100, 1_000), to_consumer=(400, 3_000)),
    *_latencies(TOWLINE, "ZeroMQ", at_rest=(None, None), to_consumer=(600, 5_000)),
    *_of_remoting(),
    Goal("T8", "replay, of the best peer", "per_s_of_best", lambda work: work.kind is Kind.REPLAY, 2, 3, unit="x"),
    Goal(
        "T9",
        "one in-sync replica, of one that nobody waits for",
        "per_s_of_behind",
        lambda work: work.replica is Replica.IN_SYNC,
        0.6,
        0.7,
        unit="x",
    ),
    Goal("T10", "kill -9 to the first acknowledgement", "first_ack_s", _stored, 0.7, 0.35, at_most=True, unit=" s"),
    Goal("T11", "memory of all processes", "memory_mb", _stored, None, 250, at_most=True, unit=" MB"),
    Goal("T12", "CPU of put per 1-KiB message", PUT_PROCESS, _put(KIB), None, 0.5, at_most=True, unit=" us"),
    Goal("T12", "CPU of all processes per 1-KiB message", "cpu_us", _put(KIB), 2.4, 2, at_most=True, unit=" us"),
    Goal("T13", "lost by kill -9 of what was acknowledged", "lost", _any_stored, 0, 0, at_most=True),
    Goal("T14", "send_async, a call for each message", "per_s", _is(Kind.SEND_ASYNC), 300_000, 400_000, unit="/s"),
    Goal("T14", "send_bodies, 100 B", "per_s", _is(Kind.SEND_BODIES), 2_000_000, 3_000_000, unit="/s"),
    Goal("T19", "send, one 1-KiB message at a time", "per_s", _is(Kind.SEND, KIB), 50_000, 150_000, unit="/s"),
    Goal("T15", "consumer, an object for each 100-B message", "per_s", _is(Kind.OBJECTS), None, 300_000, unit="/s"),
    Goal("T15", "consumer, columns of 100-B messages", "per_s", _is(Kind.REPLAY, 100), None, 5_000_000, unit="/s"),
    Goal("T17", "disk bytes per body byte, 1 KiB", "disk_per_byte", _stored, at_most=True, unit="x"),
)  # fmt: skip


def judge(rows: Sequence[Mapping[str, Any]], goals: Sequence[Goal] = GOALS) -> list[dict[str, Any]]:
    """A row for each goal that was measured. `floor_met`, `goal_met`: None where there is no such bound."""
    made = []
    for goal in goals:
        values = [value for row in rows if (value := _figure(row, goal)) is not None]
        if not values:
            continue
        reached = max(values) if goal.at_most else min(values)
        made.append(
            {
                "goal": goal.number,
                "what": goal.what,
                "reached": reached,
                "unit": goal.unit,
                "at_most": goal.at_most,
                "floor": goal.floor,
                "floor_met": _met(reached, goal.floor, goal.at_most),
                "bound": goal.goal,
                "goal_met": _met(reached, goal.goal, goal.at_most),
            }
        )
    return made


def _figure(row: Mapping[str, Any], goal: Goal) -> float | None:
    figures = row["systems"].get(goal.system)
    if figures is None or not goal.of(Work.read(row["work"])):
        return None
    found = figures.get(goal.figure, figures.get("cpu_us_by_process", {}).get(goal.figure))
    return None if found is None else float(found)


def _met(reached: float, bound: float | None, at_most: bool) -> bool | None:
    if bound is None:
        return None
    return reached <= bound if at_most else reached >= bound
