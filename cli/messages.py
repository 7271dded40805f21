"""Renders messages as tables and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from towline.client.message import ReceivedMessage
from towline.errors import DecompressedTooLarge, UnreadableBody

from .output import add_row, progress_console, table

_BODY_SHOWN = 120


def describe(message: ReceivedMessage) -> dict[str, Any]:
    """For JSON; a body that is not UTF-8 comes as hex, one that cannot be decompressed as None with the reason."""
    described: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "message_id": message.message_id,
        "unique_key": message.unique_key,
        "tags": message.tags,
        "keys": list(message.keys),
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "properties": message.properties,
    }
    try:
        return described | {"body": message.body}
    except (DecompressedTooLarge, UnreadableBody) as error:
        return described | {"body": None, "body_error": str(error)}


def print_messages(console: Console, described: list[dict[str, Any]], remarks: Sequence[str] = ()) -> None:
    """A table, and the remarks beside it, which are no results."""
    made = table("#queue", "#offset", "tag", "keys", "unique key", "body")
    for message in described:
        add_row(
            made,
            message["queue_id"],
            message["queue_offset"],
            message["tags"] or "",
            " ".join(message["keys"]),
            message["unique_key"] or "",
            shown_body(message["body"]),
        )
    console.print(made)
    for remark in remarks:
        progress_console().print(remark, markup=False, soft_wrap=True)


def shown_body(body: bytes | None) -> str:
    """The beginning of a body, as text."""
    if body is None:
        return "(not readable)"
    text = body[:_BODY_SHOWN].decode("utf-8", "backslashreplace")
    return text + ("..." if len(body) > _BODY_SHOWN else "")
