"""`towline bench reput`: how many records a second of one core reput derives queues and index from.

The log is made here, segment by segment: records with a body of 100 bytes, TAGS and a unique key, as a producer sends
them. Reput itself works on it in this process, as the agent that a node runs, with its own positions in memory. What is
timed begins when every queue has its first entry: making 10,000 queue files is measured by itself. Rates are of CPU
time of the thread, system time included, so that other work on the machine does not count; `wall` is beside them.
Then a whole node is put under a steady load, and how far reput trails the writer is sampled all the time.
"""

import logging
import os
import resource
import select
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from towline.clock import SystemClock
from towline.errors import BenchFailed
from towline.limits import GIB, MIB
from towline.link.context import close_context, new_context
from towline.node.process.context import Node, make_private
from towline.node.process.duties import builder
from towline.places import Runtime, Store
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings

from .client import PutClient
from .limits import busy_seconds
from .made_log import MadeLog, make_log
from .node import BenchNode, bench_node
from .shapes import Load, Shape, load_of

DESCRIPTORS: Final = 1024  # the limit of a process where nobody raised it
GOALS: Final = {
    "queues_per_s": 5e6,
    "with_index_per_s": 2e6,
    "few_of_many": 2.0,
    "few_of_many_queues": 2.0,
    "lag_p99_ms": 1000.0,
}
_AT_MOST: Final = ("few_of_many", "few_of_many_queues", "lag_p99_ms")
_SETTINGS: Final[dict[str, Any]] = {"flush_disk_type": "ASYNC_FLUSH", "broker_role": "ASYNC_MASTER"}

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does. `few` and `many` queues; every figure is the median of `rounds`."""

    records: int = 3_000_000
    rounds: int = 5
    few: int = 10
    many: int = 10_000
    segment_size: int = GIB
    lag_rate: int = 1_000_000  # messages a second that a node puts
    lag_seconds: float = 10.0
    index_entries: int = 20_000_000  # of an index file, with a quarter as many slots: RocketMQ's default


QUICK: Final = Plan(
    records=400_000, rounds=1, many=1000, segment_size=64 * MIB, lag_seconds=2.0, index_entries=1_000_000
)  # a short run of a quarter of a minute


def measure(plan: Plan, note: Note) -> dict[str, Any]:
    """Everything `towline bench reput` shows, as JSON can carry it."""
    started, load = time.monotonic(), os.getloadavg()[0]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="towline-bench-") as directory, descriptors(DESCRIPTORS):
        for queues in (plan.few, plan.many):
            root = Path(directory) / str(queues)
            note(f"making a log of {plan.records:,} records in {queues:,} queues")
            log = make_log(root / "store", plan.records, queues, segment_size=plan.segment_size)
            found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
            for number in range(plan.rounds):
                for index in (False, True):
                    note(f"{queues:,} queues{', index' if index else ''}: round {number + 1} of {plan.rounds}")
                    found[index].append(_round(root, plan, log, index=index))
            rows += [_row(queues, index, log, rounds) for index, rounds in found.items()]
            shutil.rmtree(root)
    note(f"a node under {plan.lag_rate:,} messages a second")
    lag = measure_lag(plan.lag_rate, plan.lag_seconds, plan.segment_size)
    return {
        "rows": rows,
        "lag": lag,
        "goals": _goals(rows, lag),
        "descriptors": DESCRIPTORS,
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.monotonic() - started,
    }


class Reput:
    """The agent on a store whose log is there and nothing else; `dispatch` drives it."""

    def __init__(self, root: Path, plan: Plan, end: int, *, index: bool) -> None:
        self._store = Store(root / "store")
        self._runtime = Runtime(root / "runtime" / "n")
        for directory in (self._store.consumequeue, self._store.index, self._store.run):
            directory.mkdir(parents=True, exist_ok=True)
        make_private(self._runtime.root)
        self._positions = Positions.create(self._runtime.positions, generation=1)
        QueueEnds.create(self._runtime.queue_ends)
        settings = Settings(
            store_path_root_dir=self._store.root,
            mapped_file_size_commit_log=plan.segment_size,
            max_index_num=plan.index_entries,
            max_hash_slot_num=plan.index_entries // 4,
            message_index_enable=index,
            **_SETTINGS,
        )
        log = logging.getLogger("bench")
        node = Node(self._store, self._runtime, settings, self._positions, Duty.REPUT, 1, log, SystemClock())
        self._agent = builder(Duty.REPUT)(node)
        self._agent.on_start(Doorbell(self._runtime.bell("reput"), node.line))
        self._appended = self._positions.writer(Position.APPENDED, Duty.PUT)

    def dispatch(self, end: int) -> tuple[float, float]:
        """(CPU, wall) seconds until everything before `end` is dispatched."""
        self._appended.advance(end)
        busy, started = busy_seconds(), time.perf_counter()
        while self._positions.get(Position.DISPATCHED) < end:
            self._agent.do_work()
        return busy_seconds() - busy, time.perf_counter() - started

    def entries(self) -> int:
        """In all queues."""
        ends = QueueEnds.open(self._runtime.queue_ends)
        try:
            return int(ends.max_offsets().sum())
        finally:
            ends.close()

    def close(self) -> None:
        """The store's queues and index go."""
        self._agent.on_close()
        self._positions.close()
        for directory in (self._store.consumequeue, self._store.index, self._runtime.root):
            shutil.rmtree(directory)


def _round(root: Path, plan: Plan, log: MadeLog, *, index: bool) -> dict[str, float]:
    reput = Reput(root, plan, log.end, index=index)
    try:
        made, _ = reput.dispatch(log.warm)
        busy, wall = reput.dispatch(log.end)
        opened = len(list(Path("/proc/self/fd").iterdir()))
        entries = reput.entries()
    finally:
        reput.close()
    if entries != log.total:
        raise BenchFailed(f"{entries} entries are in the queues of {log.total} records")
    return {"made_s": made, "busy_s": busy, "wall_s": wall, "descriptors": opened}


def _row(queues: int, index: bool, log: MadeLog, rounds: list[dict[str, float]]) -> dict[str, Any]:
    busy = median(each["busy_s"] for each in rounds)
    wall = median(each["wall_s"] for each in rounds)
    return {
        "queues": queues,
        "index": index,
        "records": log.records,
        "record_size": log.record_size,
        "per_core_s": log.records / busy,
        "per_s": log.records / wall,
        "gb_s": log.records * log.record_size / busy / 1e9,
        "ns": 1e9 * busy / log.records,
        "new_queues_per_s": queues / median(each["made_s"] for each in rounds),
        "descriptors": int(max(each["descriptors"] for each in rounds)),
    }


def _goals(rows: list[dict[str, Any]], lag: dict[str, Any]) -> list[dict[str, Any]]:
    few, few_indexed, many, many_indexed = rows
    reached = {
        "queues_per_s": few["per_core_s"],
        "with_index_per_s": few_indexed["per_core_s"],
        "few_of_many": few_indexed["per_core_s"] / many_indexed["per_core_s"],
        "lag_p99_ms": lag["p99_ms"],
        "few_of_many_queues": few["per_core_s"] / many["per_core_s"],
    }
    return [
        {"goal": goal, "bound": bound, "reached": reached[goal], "met": _met(goal, reached[goal])}
        for goal, bound in GOALS.items()
    ]


def _met(goal: str, reached: float) -> bool:
    return reached <= GOALS[goal] if goal in _AT_MOST else reached >= GOALS[goal]


@contextmanager
def descriptors(limit: int) -> Iterator[None]:
    """At most `limit` descriptors in this process, as where nobody raised the limit."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


# --- how far reput of a running node is behind


SHAPE: Final = Shape(500, 100)
REQUESTS_AT_ONCE: Final = 8
STEP_S: Final = 0.0005


def measure_lag(rate: int, seconds: float, segment_size: int) -> dict[str, Any]:
    """`rate` is messages a second, of 100 bytes with TAGS and UNIQ_KEY, index on. Lags in ms at the rate reached."""
    load = load_of(SHAPE)
    context = new_context()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="towline-bench-") as directory,
            bench_node(Path(directory), segment_size) as node,
        ):
            client = PutClient(context, node.put_endpoint("ipc"))
            try:
                client.make_topic()
                node.await_segments()
                return _sampled(node, client, load, rate, seconds)
            finally:
                client.close()
    finally:
        close_context(context)


def _sampled(node: BenchNode, client: PutClient, load: Load, rate: int, seconds: float) -> dict[str, Any]:
    lags: list[int] = []
    sent, started = 0, time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        if sent < passed * rate:
            client.send(load, REQUESTS_AT_ONCE)
            sent += REQUESTS_AT_ONCE * SHAPE.records
        else:
            select.select([], [], [], STEP_S)
        lags.append(node.lag())
    reached = sent / (time.monotonic() - started)
    left = node.await_dispatched()
    per_ms = reached * load.record_size / 1000
    halves = np.array_split(np.array(lags), 2)
    return {
        "rate": rate,
        "reached": reached,
        "seconds": seconds,
        "p50_ms": float(np.median(lags)) / per_ms,
        "p99_ms": float(np.quantile(lags, 0.99)) / per_ms,
        "max_ms": float(np.max(lags)) / per_ms,
        "first_half_p50_ms": float(np.median(halves[0])) / per_ms,
        "second_half_p50_ms": float(np.median(halves[1])) / per_ms,
        "caught_up_s": left,
    }
