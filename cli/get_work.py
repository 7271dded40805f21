"""Does the work of `towline get`."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

import typer

from towline.client.consumer import Consumer
from towline.client.errors import FilterRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.group.subscription import Sql
from towline.client.lookup import describe
from towline.client.message import ANY_TAG, ReceivedMessage
from towline.client.read.reader import Start

from .endpoints import endpoint_of
from .interrupts import Interrupts
from .messages import parse_template, print_messages, shown_body
from .output import people, progress_console, show, write_json

_COUNT = 10
_POLL_MS = 500
_SHOWN_BEFORE = 40  # characters of an expression


def get(
    topic: str,
    queue: int | None,
    start: str,
    count: int | None,
    tags: str,
    sql: str,
    follow: bool,
    group: str | None,
    check_crcs: bool,
    format_: str | None,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    place, offset = parse_start(start)
    written = _writer(format_, as_json)
    limit = count if count is not None or follow else _COUNT
    with _caret(sql, as_json):
        if group is not None:
            _check_member(follow, queue, tags, sql)
            _check_place(topic, group, offset)
            where = endpoint_of("serve", endpoint, store)
            wanted = {topic: Sql(sql) if sql else tags}
            with Interrupts(), GroupConsumer(where, group, wanted, start=place, check_crcs=check_crcs) as member:
                _follow(member, limit, written or _line(as_json))
            return
        consumer = Consumer(
            endpoint_of("serve", endpoint, store),
            topic,
            tags=tags,
            sql=sql,
            queues=None if queue is None else [queue],
            start=place,
            max_count=min(limit or 1000, 1000),
            suspend_ms=15_000 if follow else 0,
            check_crcs=check_crcs,
            name="towline get",
        )
        with consumer:
            if offset is not None:
                _seek(consumer, offset)
            if follow:
                _follow(consumer, limit, written or _line(as_json))
            elif written is not None:
                for message in _read(consumer, limit or _COUNT):
                    written(message)
            else:
                _show(consumer, limit or _COUNT, as_json)


@contextmanager
def _caret(sql: str, as_json: bool) -> Iterator[None]:
    """Shows people where an expression goes wrong."""
    try:
        yield
    except FilterRefused as error:
        if not as_json and error.position >= 0:
            progress_console().print(pointed(sql, error.position), markup=False, soft_wrap=True)
        raise


def _check_member(follow: bool, queue: int | None, tags: str, sql: str) -> None:
    """Raises BadParameter for what a member of a group cannot do."""
    if not follow:
        raise typer.BadParameter("--group goes with --follow: a member of a group reads until it is ended")
    if queue is not None:
        raise typer.BadParameter("leave --queue away: the members of a --group share the queues out among them")
    if sql and tags != ANY_TAG:
        raise typer.BadParameter("with --group give --tags or --sql, not both")


def _check_place(topic: str, group: str, offset: int | None) -> None:
    """Raises BadParameter for an offset, which is the group's and no member's."""
    if offset is not None:
        set_it = f"`towline group reset-offset {quote(group)} {quote(topic)} --queue QUEUE --to {offset}`"
        raise typer.BadParameter(f"--group goes on where the group stands: {set_it} sets an offset")


def _seek(consumer: Consumer, offset: int) -> None:
    """Every queue of every group of nodes."""
    for name in consumer.groups:
        for queue_id in consumer.position(name):
            consumer.seek(queue_id, offset, name)


def _show(consumer: Consumer, limit: int, as_json: bool) -> None:
    found = [describe(message) for message in _read(consumer, limit)]
    moved = [f"queue {m.queue_id} went on at {m.to_offset} instead of {m.from_offset}" for m in consumer.moved]
    result: dict[str, Any] = {"topic": consumer.topic, "messages": found, "moved": moved}
    show(result, as_json, lambda console: print_messages(console, found, moved))


def pointed(expression: str, position: int) -> str:
    """The line of an expression that goes wrong behind so many characters, as much as a terminal shows, and a caret."""
    first = max(expression.rfind("\n", 0, position) + 1, position - _SHOWN_BEFORE)
    line = expression[first : first + 2 * _SHOWN_BEFORE].partition("\n")[0]
    return f"  {line.replace(chr(9), ' ')}\n  {' ' * (position - first)}^"


def parse_start(text: str) -> tuple[Start, int | None]:
    """Where a consumer begins, and the offset to seek to if one was given."""
    if text in ("first", "last"):
        return ("first" if text == "first" else "last"), None
    if re.fullmatch(r"\d+", text):
        return "first", int(text)
    try:
        return datetime.fromisoformat(text), None
    except ValueError:
        raise typer.BadParameter(
            f"--from {text} is not first, last, an offset, or a time as 2026-01-31T12:00"
        ) from None


def _read(consumer: Consumer, limit: int) -> Iterator[ReceivedMessage]:
    """Up to the end that the node knows of now."""
    while True:
        messages = consumer.poll(0 if consumer.at_end else _POLL_MS)
        yield from messages[:limit]
        limit -= len(messages)
        if limit <= 0 or (not messages and consumer.at_end):
            return


def _follow(
    messages: Iterable[ReceivedMessage], limit: int | None, written: Callable[[ReceivedMessage], object]
) -> None:
    """Each message as it comes. Of a group, one is finished when it is written and the next is asked for."""
    for seen, message in enumerate(messages, 1):
        written(message)
        if seen == limit:
            return


def _writer(template: str | None, as_json: bool) -> Callable[[ReceivedMessage], None] | None:
    """What writes a message by a template, for who wants that."""
    if template is None:
        return None
    if as_json:
        raise typer.BadParameter("give --format or --json, not both")
    try:
        render = parse_template(template)
    except ValueError as error:
        raise typer.BadParameter(f"--format: {error}") from None

    def write(message: ReceivedMessage) -> None:
        sys.stdout.write(render(message))
        sys.stdout.flush()

    return write


def _line(as_json: bool) -> Callable[[ReceivedMessage], None]:
    """What writes a message in a line of its own."""
    console = people()

    def write(message: ReceivedMessage) -> None:
        described = describe(message)
        if as_json:
            write_json(described)
            return
        where = f"{described['queue_id']}/{described['queue_offset']} {described['tags'] or '-'}"
        console.print(f"{where} {shown_body(described['body'])}", markup=False, soft_wrap=True)

    return write
