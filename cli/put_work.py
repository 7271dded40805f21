"""Does the work of `towline put` and `towline cancel`."""

import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture, SendResult
from towline.errors import TowlineError

from .endpoints import endpoint_of
from .output import FAILED, progress_console, show

_LOOK_EVERY = 1000  # messages between two checks of the statistics
_ROOM_MS = 30_000  # a line waits so long for those before it
_FROM_NOW = re.compile(r"\+(\d+)([smhd])")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def put(
    topic: str,
    body: str | None,
    file: Path | None,
    lines: Path | None,
    tags: str | None,
    key: list[str] | None,
    queue: int | None,
    sharding_key: str | None,
    property_: list[str] | None,
    key_separator: str | None,
    delay_level: int | None,
    deliver_at: str | None,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> int:
    if sum(source is not None for source in (body, file, lines)) != 1:
        raise typer.BadParameter("give one of BODY, --file and --lines")
    if key_separator is not None and (lines is None or not key_separator):
        raise typer.BadParameter("--key-separator goes with --lines, and is not empty")
    if delay_level is not None and deliver_at is not None:
        raise typer.BadParameter("give --delay-level or --deliver-at, not both")
    common: dict[str, Any] = {
        "tags": tags,
        "keys": tuple(key or ()),
        "queue_id": queue,
        "sharding_key": sharding_key,
        "properties": _properties(property_ or []) or None,
        "delay_level": delay_level,
        "deliver_at": None if deliver_at is None else _epoch_ms(deliver_at),
    }
    with Producer(endpoint_of("put", endpoint, store), name="towline put") as producer:
        if lines is None:
            data = file.read_bytes() if file is not None else (body or "").encode()
            return _show_one(producer.send(Message(topic, data, **common)), as_json)
        return _show_many(producer, (_of_line(topic, line, key_separator, common) for line in _lines(lines)), as_json)


def cancel(handle: str, broker_name: str | None, endpoint: str | None, store: Path | None, as_json: bool) -> int:
    with Producer(endpoint_of("put", endpoint, store), name="towline cancel") as producer:
        status = producer.cancel(handle, broker_name=broker_name).status
    facts = {"status": status.name, "handle": handle}
    show(facts, as_json, lambda console: console.print(f"{status.name}: {handle} is taken back", markup=False))
    return 0 if status.acknowledged else FAILED


def _epoch_ms(text: str) -> int:
    """Of a time as people write it, in this machine's zone unless it names another."""
    found = _FROM_NOW.fullmatch(text)
    if found:
        return time.time_ns() // 1_000_000 + int(found[1]) * _UNITS_MS[found[2]]
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"--deliver-at {text} is no time such as 2026-01-31T12:00, +90s or +3d") from None


def _properties(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark:
            raise typer.BadParameter(f"--property {pair} is not NAME=VALUE")
        found[name] = value
    return found


def _of_line(topic: str, line: bytes, separator: str | None, common: dict[str, Any]) -> Message:
    """A line without the separator has no key."""
    key, mark, body = line.partition(separator.encode()) if separator else (b"", b"", b"")
    if not mark:
        return Message(topic, line, **common)
    named = key.decode("utf-8", "backslashreplace")
    keys = (*common["keys"], named) if named and " " not in named else common["keys"]
    return Message(topic, body, **common | {"sharding_key": named or None, "keys": keys})


def _lines(path: Path) -> Iterator[bytes]:
    """Without their ends; empty lines are messages too."""
    if str(path) == "-":
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    else:
        with path.open("rb") as opened:
            yield from (line.rstrip(b"\r\n") for line in opened)


def _show_one(result: SendResult, as_json: bool) -> int:
    facts = {
        "status": result.status.name,
        "topic": result.topic,
        "queue_id": result.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
        "unique_key": result.unique_key,
        "offset_message_id": result.offset_message_id,
        "handle": result.handle or None,
    }
    place = f"{result.topic}/{result.queue_id} at {result.queue_offset}"
    text = f"{result.status.name}: {place}, unique key {result.unique_key}"
    text += f"\nto take it back: towline cancel {result.handle}" if result.handle else ""
    show(facts, as_json, lambda console: console.print(text, markup=False))
    return 0 if result.acknowledged else FAILED


def _show_many(producer: Producer, messages: Iterator[Message], as_json: bool) -> int:
    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn())
    futures: list[SendFuture] = []
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("put", total=None)
        for message in messages:
            futures.append(producer.send_async(message, max_block_ms=_ROOM_MS))
            if len(futures) % _LOOK_EVERY == 0:
                progress.update(task, completed=producer.statistics.acknowledged)
        producer.flush()
    statuses: dict[str, int] = {}
    errors: list[TowlineError] = []
    for future in futures:
        error = future.exception()
        name = type(error).__name__ if error else future.result().status.name
        statuses[name] = statuses.get(name, 0) + 1
        errors += [error] if error else []
    acked = statuses.get("PUT_OK", 0)
    facts = {
        "sent": len(futures),
        "acked": acked,
        "statuses": statuses,
        "first_error": str(errors[0]) if errors else None,
    }
    text = f"{acked} of {len(futures)} acknowledged" + (f"; the first error: {errors[0]}" if errors else "")
    show(facts, as_json, lambda console: console.print(text, markup=False))
    return 0 if acked == len(futures) else FAILED
