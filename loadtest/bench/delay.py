"""`towline bench delay`: how late delayed messages come.

How late is the store time of the delivered record, less the time it was due at; it can be read a moment later.
For a level the time is that of the sender's clock and the level's delay, so a put's own time is in it.
Every message is counted by its unique key: none may be missing, none come twice.
"""

import os
import select
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BenchFailed
from towline.format.record.forms import TIMER_DELIVER_MS
from towline.limits import MIB

from .node import BenchNode, bench_node

SEGMENT: Final = 256 * MIB
BODY: Final = b"x" * 100
QUEUES: Final = 4
LEVEL_MS: Final = 1000  # of level 1
LATE_MAX_MS: Final = {"times": 100, "level": 100, "burst": 1000}
SILENT_S: Final = 60.0
NS_PER_MS: Final = 1_000_000
STEP_S: Final = 0.01
ROOM_MS: Final = 3_000

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`rate` messages are due in each of `seconds`; `burst` in a single second.

    lead_ms  from the first send until the first is due, beside the time that sending itself takes
    """

    rate: int = 10_000
    seconds: int = 5
    burst: int = 100_000
    rounds: int = 3
    lead_ms: int = 1000


QUICK: Final = Plan(rate=2_000, seconds=1, burst=5_000, rounds=1)


def measure(plan: Plan, note: Note) -> dict[str, Any]:
    """Everything `towline bench delay` shows, as JSON can carry it."""
    started, load = time.monotonic(), os.getloadavg()[0]
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="towline-bench-") as directory,
        bench_node(Path(directory), SEGMENT) as node,
    ):
        node.await_segments()
        for number in range(plan.rounds):
            note(f"round {number + 1} of {plan.rounds}: {plan.rate:,} a second with times of their own")
            rows.append(_times(node, f"times-{number}", plan.rate * plan.seconds, plan.seconds, plan.lead_ms))
            note(f"round {number + 1} of {plan.rounds}: {plan.rate:,} a second of level 1")
            rows.append(_level(node, f"level-{number}", plan.rate, plan.seconds))
            note(f"round {number + 1} of {plan.rounds}: {plan.burst:,} due in one second")
            rows.append(_times(node, f"burst-{number}", plan.burst, 1, plan.lead_ms))
    found = [_median(kind, [row for row in rows if row["kind"] == kind]) for kind in LATE_MAX_MS]
    return {
        "rows": found,
        "goals": [_goal(row) for row in found],
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.monotonic() - started,
    }


def _goal(row: dict[str, Any]) -> dict[str, Any]:
    bound = LATE_MAX_MS[row["kind"]]
    return {"goal": row["kind"], "bound_ms": bound, "max_ms": row["max_ms"], "met": row["max_ms"] <= bound}


def _times(node: BenchNode, topic: str, count: int, seconds: int, lead_ms: int) -> dict[str, Any]:
    """`count` messages whose times lie evenly in `seconds`, all sent before the first is due."""
    with Producer(node.put_endpoint("ipc")) as producer:
        producer.route(topic)
        send_ms = lead_ms + count // 20  # 20,000 a second are sent easily
        first = _now_ms() + send_ms
        for number in range(count):
            due = first + number * 1000 * seconds // count
            producer.send_async(Message(topic, BODY, queue_id=number % QUEUES, deliver_at=due), max_block_ms=ROOM_MS)
        producer.flush()
        if _now_ms() > first:
            raise BenchFailed(f"{count} messages could not be sent within {send_ms} ms")
    late = np.array(
        [message[1] - int(message[2][TIMER_DELIVER_MS]) for message in _read(node, topic, count)], dtype=np.int64
    )
    return _row(topic, late, count / seconds)


def _level(node: BenchNode, topic: str, rate: int, seconds: int) -> dict[str, Any]:
    """`rate` messages a second of level 1, sent as evenly as the sender can."""
    with Producer(node.put_endpoint("ipc")) as producer:
        producer.route(topic)
        began, sent = time.monotonic(), 0
        while sent < rate * seconds:
            wanted = min(rate * seconds, int((time.monotonic() - began) * rate))
            for number in range(sent, wanted):
                producer.send_async(Message(topic, BODY, queue_id=number % QUEUES, delay_level=1), max_block_ms=ROOM_MS)
            sent = max(sent, wanted)
            select.select([], [], [], STEP_S)
        producer.flush()
    late = np.array([stored - born - LEVEL_MS for born, stored, _ in _read(node, topic, sent)], dtype=np.int64)
    return _row(topic, late, rate)


def _read(node: BenchNode, topic: str, count: int) -> Iterator[tuple[int, int, dict[str, str]]]:
    """(born, stored, properties) of each message, times in epoch ms. Raises BenchFailed for a missing or double one."""
    seen: set[str] = set()
    number, until = 0, time.monotonic() + SILENT_S
    with Consumer(node.serve_endpoint, topic, start="first") as consumer:
        while len(seen) < count:
            messages = consumer.poll(100)
            if messages:
                until = time.monotonic() + SILENT_S
            elif time.monotonic() > until:
                raise BenchFailed(f"{count - len(seen)} of {count} messages never came")
            for message in messages:
                seen.add(message.unique_key or "")
                number += 1
                yield message.born_timestamp, message.store_timestamp, message.properties
    if number != count:
        raise BenchFailed(f"{number - count} messages came twice")


def _row(topic: str, late: npt.NDArray[np.int64], rate: float) -> dict[str, Any]:
    p50, p99 = np.percentile(late, [50, 99]).tolist()
    kind, _, _ = topic.partition("-")
    return {
        "kind": kind,
        "messages": len(late),
        "per_s": rate,
        "early": int((late < 0).sum()),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "max_ms": float(late.max()),
    }


def _median(kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of one kind as one; the worst maximum, and every early one."""
    middle = {name: float(np.median([row[name] for row in rows])) for name in ("per_s", "p50_ms", "p99_ms")}
    return {
        "kind": kind,
        "messages": rows[0]["messages"],
        "early": sum(row["early"] for row in rows),
        "max_ms": max(row["max_ms"] for row in rows),
        **middle,
    }


def _now_ms() -> int:
    return time.time_ns() // NS_PER_MS
