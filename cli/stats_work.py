"""Does the work of `towline stats`."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from .endpoints import ask_node, named_node
from .lazy import load_module
from .output import add_row, show, sized, table
from .remedies import complete_all, words_of


def stats(
    endpoint: str | None,
    store: Path | None,
    topic: str | None,
    interval: float,
    top: int,
    watch: bool,
    as_json: bool,
) -> None:
    endpoint, store = named_node(endpoint, store)
    reports = _of_store(store, interval, top, topic) if store is not None else _asked(endpoint, interval, top, topic)
    try:
        for report in reports:
            found = complete_all(report, words_of(endpoint, store))
            show(found, as_json, partial(_render, found))
            if not watch:
                return
    except KeyboardInterrupt:
        if not watch:  # else the usual way to end it
            raise


def _of_store(store: Path, interval: float, top: int, topic: str | None) -> Iterator[dict[str, Any]]:
    """Read from the node's shared memory, without a question. Raises NodeNotRunning."""
    statistics = load_module("towline.node.report.statistics", "server")
    before = statistics.sample(store)
    while True:
        time.sleep(interval)
        after = statistics.sample(store)
        yield statistics.between(before, after, top=top, topic=topic)
        before = after


def _asked(endpoint: str | None, interval: float, top: int, topic: str | None) -> Iterator[dict[str, Any]]:
    assert endpoint is not None
    with ask_node(endpoint) as admin:
        while True:
            yield admin.node_stats(round(1_000 * interval), top=top, topic=topic)


def _render(found: dict[str, Any], console: Console) -> None:
    put, get, times = found["put"], found["get"], found["put"]["time_ms"]
    made = table("", "#messages", "#bytes", "#messages/s", "#bytes/s")
    for name, side in (("put", put), ("get", get)):
        add_row(made, name, *_columns(side))
    console.print(made)
    said = f"{put['requests']:,} put requests, {put['requests_per_s']:,.1f}/s"
    took = f"mean {times['mean']} ms, max {times['max']} ms, {put['slow']} above {put['slow_above_ms']} ms"
    console.print(f"{said}: {took}", markup=False)
    shown = [f"{_bucket(row)}: {row['requests']:,}" for row in times["buckets"] if row["requests"]]
    if shown:
        console.print("  " + ", ".join(shown), markup=False)
    console.print(f"{get['answers']:,} answers with messages, {get['empty']:,} without")
    segments = found["segments"]
    made_by = f"{segments['made']} segments made, {segments['by_writer']} of them by the log's writer while it waited"
    console.print(f"{made_by}; {segments['slow']} took more than {segments['slow_above_ms']} ms")
    refused = found["refused"]
    console.print(f"{refused['total']:,} requests refused, {refused['per_s']:,.1f}/s", markup=False)
    for row in refused["causes"]:
        console.print(f"  {row['cause']}: {row['count']:,}; {row['remedy']}", markup=False)
    for name, side in (("put", put), ("get", get)):
        if side["uncounted"]:
            console.print(f"{name}: {side['uncounted']:,} messages of queues for which no row is left until a restart")
    console.print(_rows(found))


def _rows(found: dict[str, Any]) -> Any:
    """The busiest topics, or the queues of one."""
    by_topic = "topics" in found
    made = table("topic" if by_topic else "#queue", "#put", "#put/s", "#put bytes", "#get", "#get/s", "#get bytes")
    for row in found["topics"] if by_topic else found["queue_rows"]:
        put, get = row["put"], row["get"]
        name = row["topic"] if by_topic else row["queue_id"]
        cells = [
            cell
            for side in (put, get)
            for cell in (f"{side['messages']:,}", f"{side['messages_per_s']:,.1f}", sized(side["bytes"]))
        ]
        add_row(made, name, *cells)
    return made


def _columns(side: dict[str, Any]) -> tuple[str, str, str, str]:
    rates = f"{side['messages_per_s']:,.1f}", f"{sized(side['bytes_per_s'])}/s"
    return f"{side['messages']:,}", sized(side["bytes"]), *rates


def _bucket(row: dict[str, Any]) -> str:
    if row["below_ms"] is None:
        return f"{row['from_ms']:,} ms and more"
    return f"below {row['below_ms']:,} ms"
