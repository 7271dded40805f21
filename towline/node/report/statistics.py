"""Counters and rates of a running node, read from its shared memory; its processes are not asked."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.errors import PositionsUnusable
from towline.format.wire.refusals import Cause
from towline.node.process.context import Node
from towline.runtime.positions import Counter, Duty, Positions
from towline.runtime.store_stats import BUCKETS_MS, SLOW_PUT_MS, SLOW_SEGMENT_MS, StoreStats, Total

from .running import open_running

_MS: Final = 1000
Queue = tuple[str, int]  # topic, queue id
Numbers = tuple[int, int, int]  # messages, bytes, requests
NOTHING: Final = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Side:
    """One table: what came in, or what went out. Sums over all queues, then by queue."""

    began_ms: int
    sums: Numbers
    queues: Mapping[Queue, Numbers]
    totals: Mapping[str, int]
    buckets: list[int]

    @classmethod
    def read(cls, path: Path, *, by_queue: bool = True) -> "Side":
        """Zeros where its process has not run yet. Without `by_queue` it takes no longer where there are many."""
        try:
            stats = StoreStats.open(path)
        except PositionsUnusable:
            return cls(0, NOTHING, {}, {total.name.lower(): 0 for total in Total}, [0] * (len(BUCKETS_MS) + 1))
        try:
            queues = {
                (row.topic.decode("utf-8", "replace"), row.queue_id): (row.messages, row.bytes, row.requests)
                for row in (stats if by_queue else ())
            }
            messages, size, requests = (int(number) for number in stats.table().sum(axis=0))
            return cls(stats.began_ms, (messages, size, requests), queues, stats.totals(), stats.buckets())
        finally:
            stats.close()

    def by_topic(self) -> dict[str, Numbers]:
        found: dict[str, Numbers] = defaultdict(lambda: NOTHING)
        for (topic, _), numbers in self.queues.items():
            found[topic] = _added(found[topic], numbers)
        return dict(found)


@dataclass(frozen=True, slots=True)
class Sample:
    """All of it at one moment. `at` is CLOCK_MONOTONIC in seconds. `segments_slow` are of those that allocate made."""

    at: float
    put: Side
    get: Side
    refused: Mapping[Cause, int]
    segments_made: int
    segments_by_writer: int
    segments_slow: int


def take(node: Node) -> Sample:
    positions: Positions = node.positions
    allocate = positions.duty(Duty.ALLOCATE)
    by_writer = sum(positions.duty(duty).counter(Counter.FALLBACKS) for duty in (Duty.PUT, Duty.RECEIVE))
    return Sample(
        at=time.monotonic(),
        put=Side.read(node.runtime.put_stats),
        get=Side.read(node.runtime.get_stats),
        refused={cause: count for cause in Cause if (count := positions.refused.count(cause))},
        segments_made=allocate.counter(Counter.BATCHES) + by_writer,
        segments_by_writer=by_writer,
        segments_slow=allocate.counter(Counter.LATE),
    )


def measure(store: Path, interval_s: float, *, top: int, topic: str | None = None) -> dict[str, Any]:
    """`between` of two moments of the running node, so many seconds apart. Raises NodeNotRunning."""
    before = sample(store)
    time.sleep(interval_s)
    return between(before, sample(store), top=top, topic=topic)


def sample(store: Path) -> Sample:
    """`take` of the node on a store of this machine. Raises NodeNotRunning, NodeNotReadable."""
    _, node = open_running(store)
    try:
        return take(node)
    finally:
        node.positions.close()


def between(before: Sample, after: Sample, *, top: int, topic: str | None = None) -> dict[str, Any]:
    """Totals of `after`, rates since `before`, and the `top` busiest topics, or the queues of one topic.

    Bytes are those of whole records. Times of puts are from their arrival to their answer, in ms. `uncounted` are
    messages of queues for which the table had no row left.
    """
    seconds = max(after.at - before.at, 1e-9)
    times = after.put.totals
    requests = sum(after.put.buckets)
    facts: dict[str, Any] = {
        "interval_ms": round(seconds * _MS),
        "since_ms": after.put.began_ms or after.get.began_ms,
        "put": _numbers(before.put.sums, after.put.sums, seconds)
        | {
            "requests": requests,
            "requests_per_s": _rate(sum(before.put.buckets), requests, seconds),
            "time_ms": {
                "mean": round(times["time_ms"] / requests, 3) if requests else 0.0,
                "max": times["time_max_ms"],
                "buckets": [
                    {"from_ms": low, "below_ms": high, "requests": count}
                    for low, high, count in zip((0, *BUCKETS_MS), (*BUCKETS_MS, None), after.put.buckets, strict=True)
                ],
            },
            "slow": times["slow"],
            "slow_above_ms": SLOW_PUT_MS,
            "uncounted": times["uncounted"],
        },
        "get": _numbers(before.get.sums, after.get.sums, seconds)
        | {
            "answers": after.get.sums[2],
            "empty": after.get.totals["empty"],
            "uncounted": after.get.totals["uncounted"],
        },
        "refused": {
            "total": sum(after.refused.values()),
            "per_s": _rate(sum(before.refused.values()), sum(after.refused.values()), seconds),
            "causes": [
                {"cause": cause.label, "count": count, "remedy": cause.remedy}
                for cause, count in sorted(after.refused.items(), key=lambda row: -row[1])
            ],
        },
        "segments": {
            "made": after.segments_made,
            "by_writer": after.segments_by_writer,
            "slow": after.segments_slow,
            "slow_above_ms": SLOW_SEGMENT_MS,
        },
        "queues": len({*after.put.queues, *after.get.queues}),
    }
    if topic is None:
        return facts | {"topics": _topics(before, after, seconds, top)}
    return facts | {"topic": topic, "queue_rows": _queues(before, after, seconds, topic)}


def summary(node: Node) -> dict[str, int]:
    """A few of the numbers, for `status`."""
    put, get = (Side.read(path, by_queue=False) for path in (node.runtime.put_stats, node.runtime.get_stats))
    return {
        "put_messages": put.sums[0],
        "put_time_max_ms": put.totals["time_max_ms"],
        "slow_puts": put.totals["slow"],
        "get_messages": get.sums[0],
    }


def _topics(before: Sample, after: Sample, seconds: float, top: int) -> list[dict[str, Any]]:
    """Those with the most messages in the interval, in and out together; then by all their messages."""
    old_put, old_get, put, get = (side.by_topic() for side in (before.put, before.get, after.put, after.get))
    rows = [
        {"topic": name}
        | {
            "put": _numbers(old_put.get(name, NOTHING), put.get(name, NOTHING), seconds),
            "get": _numbers(old_get.get(name, NOTHING), get.get(name, NOTHING), seconds),
        }
        for name in {*put, *get}
    ]
    return sorted(rows, key=_busy)[:top]


def _busy(row: dict[str, Any]) -> tuple[float, float, str]:
    put, get = row["put"], row["get"]
    return (-put["messages_per_s"] - get["messages_per_s"], -put["messages"] - get["messages"], row["topic"])


def _queues(before: Sample, after: Sample, seconds: float, topic: str) -> list[dict[str, Any]]:
    numbers = sorted({queue_id for name, queue_id in (*after.put.queues, *after.get.queues) if name == topic})
    return [
        {"queue_id": queue_id}
        | {
            side: _numbers(
                old.queues.get((topic, queue_id), NOTHING), new.queues.get((topic, queue_id), NOTHING), seconds
            )
            for side, old, new in (("put", before.put, after.put), ("get", before.get, after.get))
        }
        for queue_id in numbers
    ]


def _numbers(before: Numbers, after: Numbers, seconds: float) -> dict[str, Any]:
    return {
        "messages": after[0],
        "bytes": after[1],
        "messages_per_s": _rate(before[0], after[0], seconds),
        "bytes_per_s": _rate(before[1], after[1], seconds),
    }


def _rate(before: int, after: int, seconds: float) -> float:
    """0 where a new start of the node began at zero between the two."""
    return round(max(0, after - before) / seconds, 1)


def _added(one: Numbers, other: Numbers) -> Numbers:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
