"""`towline bench consume`: how fast one consumer reads a queue from the page cache, as columns and as Python objects.

Beside it, in the same rounds: pulls whose answers are thrown away, which is what node and link can give at most. With a
cold store: what producers notice while one is replayed from the disk.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from towline.client.columns import Columns
from towline.errors import BenchFailed
from towline.format.wire.frames import PULL_ANSWER, Pull, encode_pull, expect
from towline.format.wire.status import GetStatus
from towline.limits import GIB, MIB
from towline.link.context import Context, close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller

from . import replay
from .client import PutClient
from .node import BenchNode, bench_node
from .reading import BATCH_BYTES, BATCH_COUNT, SILENT_MS, Pass, fill, read_all
from .shapes import TOPIC, Shape, load_of

BODY: Final = 100
RECORDS: Final = 500
OBJECTS_BYTES: Final = MIB  # what a consumer asks for by default
GOALS: Final = {"columns": 3_000_000.0, "objects": 300_000.0}
FACTS: Final = {"role": "consumer", "cluster": "", "store": "", "name": "bench"}

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`messages` are read in each round as columns, a part of them as objects."""

    messages: int = 4_000_000
    objects: int = 500_000
    rounds: int = 5
    segment_size: int = GIB
    replay: int = 2 * GIB  # bytes of a cold store; 0: none is replayed


QUICK: Final = Plan(messages=400_000, objects=100_000, rounds=2, segment_size=256 * MIB, replay=0)


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """The whole document. `note` is called with each step, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-bench-")))
        note("a master starts")
        node = stack.enter_context(bench_node(directory, plan.segment_size))
        context = new_context()
        stack.callback(close_context, context)
        note("messages are put")
        count = _fill(context, node, plan)
        rows: dict[str, list[Pass]] = {"answers": [], "columns": [], "objects": []}
        for number in range(plan.rounds + 1):
            note(f"read, round {number} of {plan.rounds}" if number else "read, warming up")
            rows["answers"].append(_answers(context, node.serve_endpoint, count))
            rows["columns"].append(read_all(node.serve_endpoint, columnar, until=count))
            rows["objects"].append(_objects(node.serve_endpoint, min(count, plan.objects)))
    found = {name: _row(passes[1:]) for name, passes in rows.items()}
    replayed = {"replay": replay.measure(replay.Plan(size=plan.replay), note)} if plan.replay else {}
    return {
        "body": BODY,
        "messages": count,
        "read": found,
        **replayed,
        "goals": [
            {
                "goal": name,
                "at_least": least,
                "reached": found[name]["msgs_per_s"],
                "met": found[name]["msgs_per_s"] >= least,
            }
            for name, least in GOALS.items()
        ],
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.perf_counter() - started,
    }


def columnar(columns: Columns) -> int:
    """What a columnar consumer reads: where the bodies stand, offsets and times."""
    return int(columns.body_size.sum()) + int(columns.queue_offset[-1]) + int(columns.store_timestamp[-1])


def objects(columns: Columns) -> int:
    """Every message as a Python object, its body and properties decoded."""
    used = 0
    for message in columns.each():
        used += len(message.body) + len(message.properties)
    return used


def _fill(context: Context, node: BenchNode, plan: Plan) -> int:
    client = PutClient(context, node.put_endpoint("ipc"))
    try:
        client.make_topic()
        return fill(client, node, load_of(Shape(RECORDS, BODY)), plan.messages)
    finally:
        client.close()


def _objects(endpoint: str, until: int) -> Pass:
    return read_all(endpoint, objects, until=until, batch=OBJECTS_BYTES)


def _answers(context: Context, endpoint: str, until: int) -> Pass:
    """Pulls one after the other, and nothing is done with what comes."""
    link = Link(context, endpoint, FACTS)
    poller = Poller(link)
    try:
        link.greet(SILENT_MS)
        started = time.perf_counter()
        offset = messages = size = 0
        while offset < until:
            link.send(encode_pull(Pull(0, TOPIC.encode(), 0, offset, BATCH_COUNT, BATCH_BYTES, 0)))
            while (parts := link.receive()) is None:
                if link.lost or not poller.poll(SILENT_MS):
                    raise BenchFailed("the serve process does not answer")
            _, status, _, _, count, offset, *_ = expect(PULL_ANSWER, parts[0])
            if status != GetStatus.FOUND:
                raise BenchFailed(f"a pull found {GetStatus(status).name}")
            messages += count
            size += len(parts[2])
        return Pass(messages, size, time.perf_counter() - started, 0, offset)
    finally:
        link.close()


def _row(passes: list[Pass]) -> dict[str, float]:
    rates = [each.rate for each in passes]
    return {
        "msgs_per_s": median(rates),
        "least": min(rates),
        "most": max(rates),
        "mb_per_s": median(each.size / each.seconds / 1e6 for each in passes),
    }
