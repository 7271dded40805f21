"""Does the work of `towline stats`."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from .lazy import load_module
from .output import add_row, show, sized, table


def stats(store: Path, topic: str | None, interval: float, top: int, watch: bool, as_json: bool) -> None:
    statistics = load_module("towline.node.report.statistics", "server")
    before = _sample(store)
    while True:
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            if watch:  # the usual way to end it
                return
            raise
        after = _sample(store)
        found: dict[str, Any] = statistics.between(before, after, top=top, topic=topic)
        show(found, as_json, partial(_render, found))
        if not watch:
            return
        before = after


def _sample(store: Path) -> Any:
    """Raises NodeNotRunning."""
    status = load_module("towline.node.report.status", "server")
    status.node_facts(store)
    node = status.open_node(store)
    try:
        return load_module("towline.node.report.statistics", "server").take(node)
    finally:
        node.positions.close()


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
