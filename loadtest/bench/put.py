"""`towline bench put`: the append and stamp kernel alone, and client to acknowledgement, beside their limits.

Everything that is compared takes its turn in every round of the same run, and ratios are taken per round: machines
drift, ratios inside one run hold. Figures are medians over the rounds.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from towline.limits import MIB
from towline.link.context import close_context, new_context

from .client import PutClient
from .kernel import make_segment, measure_kernel
from .limits import Copies
from .node import BenchNode, bench_node
from .raw import RawPair
from .shapes import BODIES, RECORDS, Load, Shape, load_of

KERNEL_RECORDS: Final = 500
GOALS: Final = {"plain_of_copy": 0.3, "checked_of_crc": 0.7, "put_of_raw": 0.4, "whole_node_of_raw": 0.4}
GOAL_RECORDS: Final = 500  # the put goal is for requests of so many records

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does. `seconds` are for one measurement, all its rounds together."""

    seconds: float = 2.0
    rounds: int = 7
    shapes: tuple[Shape, ...] = field(default=tuple(Shape(records, body) for body in BODIES for records in RECORDS))
    transports: tuple[str, ...] = ("ipc", "tcp")
    segment_size: int = 256 * MIB
    kernel_segment_size: int = 256 * MIB
    copy_size: int = 64 * MIB
    turn_bytes: int = 64 * MIB  # at most this much goes into the log in one turn, or the disk would be measured


QUICK: Final = Plan(
    seconds=0.25, rounds=3, segment_size=128 * MIB, kernel_segment_size=64 * MIB, turn_bytes=24 * MIB
)  # a quarter of a minute; its figures are rough


@dataclass(slots=True)
class Series:
    """The rounds of one row. Requests per turn follow the rate of the turn before."""

    load: Load
    transport: str
    raw: list[float] = field(default_factory=list)  # requests per second
    burst: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    burst_cpu_ns: list[float] = field(default_factory=list)  # of put, per record
    dispatched_s: list[float] = field(default_factory=list)  # after the last acknowledgement

    def requests(self, rates: list[float], plan: Plan) -> int:
        least = 2 * self.load.shape.window
        most = max(least, plan.turn_bytes // len(self.load.records))
        wanted = int(rates[-1] * plan.seconds / plan.rounds) if rates else least
        return max(least, min(most, wanted))


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """The whole document. `note` is called with each step, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-bench-")))
        note("memory copy, CRC kernel, append kernel")
        copies = Copies(plan.copy_size)
        kernel = _kernel(directory, plan, copies)
        note("a master starts")
        pair = RawPair()
        stack.callback(pair.close)
        node = stack.enter_context(bench_node(directory, plan.segment_size))
        rows = _put(node, pair, plan, note)
    copy_gb_s = median(row["limits"]["copy_gb_s"] for row in kernel)
    for row in rows:
        row["limits"]["copy_gb_s"] = copy_gb_s
    return {
        "kernel": kernel,
        "put": rows,
        "goals": _goals(kernel, rows),
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.perf_counter() - started,
    }


def _kernel(directory: Path, plan: Plan, copies: Copies) -> list[dict[str, Any]]:
    bodies = sorted({shape.body for shape in plan.shapes})
    records = min(KERNEL_RECORDS, max(shape.records for shape in plan.shapes))
    segment = make_segment(directory, plan.kernel_segment_size)
    try:
        loads = [load_of(Shape(records, body)) for body in bodies]
        return measure_kernel(segment, loads, copies, plan.seconds, plan.rounds)
    finally:
        segment.release()
        segment.path.unlink()


def _put(node: BenchNode, pair: RawPair, plan: Plan, note: Note) -> list[dict[str, Any]]:
    context = new_context()
    clients = {transport: PutClient(context, node.put_endpoint(transport)) for transport in plan.transports}
    loads = [load_of(shape) for shape in plan.shapes]
    series = [Series(load, transport) for transport in plan.transports for load in loads]
    try:
        for client in clients.values():
            client.make_topic()
        for number in range(plan.rounds + 1):
            note(f"put, round {number} of {plan.rounds}" if number else "put, warming up")
            for row in series:
                _turn(row, node, pair, clients[row.transport], plan)
        return [_row(row) for row in series]
    finally:
        for client in clients.values():
            client.close()
        close_context(context)


def _turn(row: Series, node: BenchNode, pair: RawPair, client: PutClient, plan: Plan) -> None:
    """Raw, a burst, and the whole node with all that it has to do meanwhile, one after the other."""
    load = row.load
    node.await_flushed()
    requests = row.requests(row.raw, plan)
    row.raw.append(requests / pair.measure(row.transport, load, requests))
    requests = row.requests(row.burst, plan)
    while node.room() < (requests + load.shape.window) * len(load.records):
        client.send(load, load.shape.window)  # a burst ends before the segment does
    node.await_dispatched()
    node.await_segments()
    with node.reput_held():
        cpu = node.put_cpu_ns()
        row.burst.append(requests / client.measure(load, requests))
        records = (requests + load.shape.window) * load.shape.records
        row.burst_cpu_ns.append((node.put_cpu_ns() - cpu) / records)
    node.await_dispatched()
    node.await_segments()
    requests = row.requests(row.whole, plan)
    row.whole.append(requests / client.measure(load, requests))
    row.dispatched_s.append(node.await_dispatched())


def _row(row: Series) -> dict[str, Any]:
    """Rates of records and of their bytes per second; the first round only warmed up."""
    records, size = row.load.shape.records, len(row.load.records)

    def rates(requests: list[float]) -> dict[str, float]:
        rate = median(requests[1:])
        of_raw = median(each / raw for each, raw in zip(requests[1:], row.raw[1:], strict=True))
        return {"msgs_per_s": rate * records, "mb_per_s": rate * size / 1e6, "of_raw": of_raw}

    raw = median(row.raw[1:])
    return {
        "transport": row.transport,
        "records": records,
        "body": row.load.shape.body,
        "request_size": size,
        "window": row.load.shape.window,
        "burst": {**rates(row.burst), "put_cpu_ns_per_msg": median(row.burst_cpu_ns[1:])},
        "whole_node": {**rates(row.whole), "dispatched_after_ms": 1000 * median(row.dispatched_s[1:])},
        "limits": {"raw_msgs_per_s": raw * records, "raw_mb_per_s": raw * size / 1e6},
    }


def _goals(kernel: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each goal beside the worst figure it is about."""
    plain = min(row["of_copy"] for row in kernel)
    checked = min(row["crc_checked"]["of_crc"] for row in kernel)
    large = [row for row in rows if row["records"] == GOAL_RECORDS]
    found = [("plain_of_copy", plain), ("checked_of_crc", checked)]
    if large:
        found += [("put_of_raw", min(row["burst"]["of_raw"] for row in large))]
        found += [("whole_node_of_raw", min(row["whole_node"]["of_raw"] for row in large))]
    return [
        {"goal": name, "at_least": GOALS[name], "reached": value, "met": value >= GOALS[name]} for name, value in found
    ]
