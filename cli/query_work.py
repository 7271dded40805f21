"""Does the work of `towline query`."""

from datetime import datetime
from pathlib import Path

import typer

from towline.client.admin import ALWAYS_MS, AdminClient, Found
from towline.client.message import ReceivedMessage

from .endpoints import endpoint_of
from .messages import describe, print_messages
from .output import show


def query(
    topic: str | None,
    key: str | None,
    unique_key: str | None,
    id_: str | None,
    offset: int | None,
    time: str | None,
    begin: str | None,
    end: str | None,
    count: int,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    if sum(asked is not None for asked in (key, unique_key, id_, offset, time)) != 1:
        raise typer.BadParameter("give one of --key, --unique-key, --id, --offset and --time")
    if topic is None and id_ is None and offset is None:
        raise typer.BadParameter("--key, --unique-key and --time need --topic")
    if begin is not None and key is None and unique_key is None:
        raise typer.BadParameter("--begin goes with --key and --unique-key")
    if end is not None and (id_ is not None or offset is not None):
        raise typer.BadParameter("--end goes with --key, --unique-key and --time")
    first, last = _time("--begin", begin) if begin else 0, _time("--end", end) if end else ALWAYS_MS
    stored = _time("--time", time) if time else 0
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline query") as admin:
        found: list[ReceivedMessage]
        if id_ is not None:
            found = _one(admin.by_id(id_))
        elif offset is not None:
            found = _one(admin.by_offset(offset))
        elif key is not None:
            found = admin.by_key(topic or "", key, begin=first, end=last, max_count=count)
        elif unique_key is not None:
            found = admin.by_unique_key(topic or "", unique_key, begin=first, end=last, max_count=count)
        else:
            found = admin.by_time(topic or "", stored, end=last, max_count=count)
        if not found and topic is not None:
            admin.ask("route", topic=topic)  # an unknown topic has its own error
    described = [describe(message) for message in found]
    remarks = _remarks(found)
    result = {"count": len(described), "messages": described, "remarks": remarks}
    show(result, as_json, lambda console: print_messages(console, described, remarks))


def _one(message: ReceivedMessage | None) -> list[ReceivedMessage]:
    return [] if message is None else [message]


def _remarks(found: list[ReceivedMessage]) -> list[str]:
    """What a lookup by key says of itself."""
    if not isinstance(found, Found):
        return []
    truncated = "there may be older ones: ask with --max, or with an --end before the first of these"
    behind = "the node's index is behind, so the newest messages may be missing: ask again, or look at its status"
    damaged = f"{found.damaged} with this key, or with its hash, are damaged: run `towline store verify` on the node"
    remarks = ((truncated, found.truncated), (behind, not found.complete), (damaged, bool(found.damaged)))
    return [text for text, holds in remarks if holds]


def _time(option: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text} is not a time as 2026-01-31T12:00") from None
