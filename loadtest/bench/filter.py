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

from towline.client.columns import Columns
from towline.client.compression import Compressor
from towline.client.encoding import TopicEncoder
from towline.client.keys import KeySource
from towline.client.message import Message
from towline.errors import BenchFailed
from towline.format.frames import Group, encode_put
from towline.format.record import Host
from towline.limits import GIB, MESSAGE_BODY_MAX, MIB
from towline.link.context import close_context, new_context

from .client import PutClient
from .node import BenchNode, bench_node
from .reading import Pass, fill, read_all
from .shapes import LOOPBACK, NEVER, TOPIC, Load, Shape

SHAPE: Final = Shape(500, 100)
EVERY: Final = 100  # one message of so many is kept
KEPT, OTHER = "kept", "other"
SQL: Final = "a = 1"
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
    """The whole document. `note` is told what is being done, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-bench-")))
        note("a master starts")
        node = stack.enter_context(bench_node(directory, plan.segment_size, enable_property_filter=True))
        note("messages are put")
        count = _fill(node, plan)
        rows: dict[str, list[Pass]] = {}
        for number in range(plan.rounds + 1):
            note(f"read, round {number} of {plan.rounds}" if number else "read, warming up")
            for name, found in _round(node.serve_endpoint, count, min(count, plan.evaluated)).items():
                if found.used != -(-found.over // EVERY):
                    raise BenchFailed(f"{name}: {found.used} messages were kept of {found.over}")
                rows.setdefault(name, []).append(found)
    measured = {name: _row(passes[1:]) for name, passes in rows.items()}
    ratio = median(tag.rate / client.rate for tag, client in zip(rows["tag"][1:], rows["client"][1:], strict=True))
    return {
        "messages": count,
        "kept_of": EVERY,
        "read": measured,
        "tag_of_client": ratio,
        "tag_of_unfiltered": median(
            tag.rate / other.rate for tag, other in zip(rows["tag"][1:], rows["unfiltered"][1:], strict=True)
        ),
        "goals": [
            {
                "goal": "tag_of_client",
                "at_least": GOALS["tag_of_client"],
                "reached": ratio,
                "met": ratio >= GOALS["tag_of_client"],
            }
        ],
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.perf_counter() - started,
    }


def _round(endpoint: str, count: int, evaluated: int) -> dict[str, Pass]:
    """Each way once."""
    return {
        "unfiltered": read_all(endpoint, _every, until=count),
        "client": read_all(endpoint, _compared, until=count),
        "tag": read_all(endpoint, len, until=count, tags=KEPT),
        "sql": read_all(endpoint, len, until=evaluated, sql=SQL),
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
    encoder = TopicEncoder(
        TOPIC,
        Host(LOOPBACK, 0),
        KeySource(LOOPBACK),
        Compressor(None),
        store_host_ipv6=False,
        body_size_max=MESSAGE_BODY_MAX,
    )
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
