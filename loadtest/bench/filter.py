"""`towline bench filter`: a filter that keeps 1% of a queue, at the node and at the client.

At the client: everything is read and compared there. At the node by tag: entries of the queue are compared, and only
records of the tag are read. At the node by SQL: the properties of every record are evaluated; with bitmaps, only of
those that the bitmap leaves. Everything takes its turn in each round, ratios are taken per round.
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

from towline.client.admin import AdminClient
from towline.client.columns import Columns
from towline.client.message import Message
from towline.errors import BenchFailed
from towline.filter.bloom import Bloom
from towline.filter.sql import TYPE
from towline.filter.subscriptions import loads
from towline.format.wire.frames import Group, encode_put
from towline.limits import GIB, MIB
from towline.link.context import close_context, new_context

from .client import PutClient
from .node import BenchNode, await_, bench_node
from .reading import Pass, fill, read_all
from .shapes import NEVER, TOPIC, Load, Shape, topic_encoder

SHAPE: Final = Shape(500, 100)
EVERY: Final = 100  # one message of so many is kept
KEPT, OTHER = "kept", "other"
SQL: Final = "a = 1"
GROUP: Final = "readers"
BITMAPS: Final[dict[str, Any]] = {
    "enable_property_filter": True,
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
}
RATIOS: Final = {
    "tag_of_client": ("tag", "client"),
    "tag_of_unfiltered": ("tag", "unfiltered"),
    "bitmap_of_sql": ("bitmap", "sql"),
}
GOALS: Final = {"tag_of_client": 10.0, "bitmap_of_sql": 10.0}

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`messages` in the queue; SQL without bitmaps reads `evaluated` of them."""

    messages: int = 2_000_000
    evaluated: int = 500_000
    rounds: int = 5
    segment_size: int = GIB


QUICK: Final = Plan(messages=200_000, evaluated=100_000, rounds=2, segment_size=256 * MIB)


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """The whole document. `note` is called with each step, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-bench-")))
        note("two masters start, one with bitmaps")
        for name in ("plain", "mapped"):
            (directory / name).mkdir()
        plain = stack.enter_context(bench_node(directory / "plain", plan.segment_size))
        mapped = stack.enter_context(bench_node(directory / "mapped", plan.segment_size, **BITMAPS))
        _subscribe(mapped, directory / "mapped" / "store")
        note("messages are put")
        count = _fill(plain, plan)
        _fill(mapped, plan)
        rows: dict[str, list[Pass]] = {}
        for number in range(plan.rounds + 1):
            note(f"read, round {number} of {plan.rounds}" if number else "read, warming up")
            for name, found in _round(plain.serve_endpoint, mapped.serve_endpoint, count, plan).items():
                if found.used != -(-found.over // EVERY):
                    raise BenchFailed(f"{name}: {found.used} messages were kept of {found.over}")
                rows.setdefault(name, []).append(found)
    ratios = {name: _ratio(rows, *pair) for name, pair in RATIOS.items()}
    return {
        "messages": count,
        "kept_of": EVERY,
        "read": {name: _row(passes[1:]) for name, passes in rows.items()},
        **ratios,
        "goals": [
            {"goal": name, "at_least": least, "reached": ratios[name], "met": ratios[name] >= least}
            for name, least in GOALS.items()
        ],
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.perf_counter() - started,
    }


def _ratio(rows: dict[str, list[Pass]], name: str, other: str) -> float:
    """Median over the rounds; the first only warmed up."""
    return median(one.rate / two.rate for one, two in zip(rows[name][1:], rows[other][1:], strict=True))


def _subscribe(node: BenchNode, store: Path) -> None:
    """A group takes the expression, and reput says that it evaluates it: later messages have its bits."""
    facts = {
        "group": GROUP,
        "member": GROUP,
        "model": "clustering",
        "topics": {TOPIC: {"expression": SQL, "type": TYPE}},
        "from": "first",
        "strategy": "average",
        "generation": 0,
    }
    context = new_context()
    try:
        client = PutClient(context, node.put_endpoint("ipc"))
        client.make_topic()
        client.close()
    finally:
        close_context(context)
    with AdminClient(node.serve_endpoint) as admin:
        admin.ask("group_join", **facts)
    bloom = Bloom()
    path = store / "config" / "consumerFilter.json"

    def born() -> bool:
        data = loads(path.read_text(), bloom, str(path)).get(TOPIC, GROUP) if path.exists() else None
        return data is not None and data.born_time < time.time_ns() // 1_000_000

    await_(born, "reput did not take the subscription")


def _round(plain: str, mapped: str, count: int, plan: Plan) -> dict[str, Pass]:
    """Each way once."""
    some = min(count, plan.evaluated)
    return {
        "unfiltered": read_all(plain, _every, until=count),
        "client": read_all(plain, _compared, until=count),
        "tag": read_all(plain, len, until=count, tags=KEPT),
        "sql": read_all(mapped, len, until=some, sql=SQL),
        "bitmap": read_all(mapped, len, until=count, sql=SQL, group=GROUP),
    }


def _every(columns: Columns) -> int:
    """Nothing is compared: what reading alone costs."""
    first = int(columns.queue_offset[0])
    return -(-(first + len(columns)) // EVERY) + -first // EVERY


def _compared(columns: Columns) -> int:
    """The tag of every message, compared as the consumer compares it."""
    wanted = KEPT.encode()
    return sum(tag == wanted for tag in columns.tags())


def _fill(node: BenchNode, plan: Plan) -> int:
    context = new_context()
    try:
        client = PutClient(context, node.put_endpoint("ipc"))
        try:
            client.make_topic()
            return fill(client, node, _load(), plan.messages)
        finally:
            client.close()
    finally:
        close_context(context)


def _load() -> Load:
    """A request in which one message of EVERY has the tag, and a property of its own."""
    encoder = topic_encoder()
    records = [
        encoder.encode(
            Message(
                TOPIC,
                os.urandom(SHAPE.body),
                tags=OTHER if number % EVERY else KEPT,
                properties={"a": str(number % EVERY + 1)},
            ),
            0,
        )[0]
        for number in range(SHAPE.records)
    ]
    data = b"".join(records)
    group = Group(TOPIC.encode(), 0, SHAPE.records, len(data))
    return Load(SHAPE, data, [encode_put(number, 0, NEVER, [group]) for number in range(2 * SHAPE.window)])


def _row(passes: list[Pass]) -> dict[str, float]:
    """Messages gone over per second, whether they came or not."""
    rates = [each.rate for each in passes]
    return {"msgs_per_s": median(rates), "least": min(rates), "most": max(rates), "kept": passes[0].used}
