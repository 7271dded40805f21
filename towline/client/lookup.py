"""Searches a node for messages by one of five means, and says of each message what there is to know.

`towline query` and `towline web` show what is found here.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from towline.errors import DecompressedTooLarge, UnreadableBody

from .admin import ALWAYS_MS, FOUND_MAX, AdminClient, Found
from .message import ReceivedMessage

Time = datetime | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is searched for: one of `key`, `unique_key`, `id`, `offset` and `time` is given.

    `begin` and `end` bound the time of storing. An id or an offset needs no topic.
    """

    topic: str = ""
    key: str | None = None
    unique_key: str | None = None
    id: str | None = None
    offset: int | None = None
    time: Time | None = None
    begin: Time = 0
    end: Time = ALWAYS_MS
    max_count: int = FOUND_MAX


def find(admin: AdminClient, wanted: Wanted) -> tuple[list[ReceivedMessage], list[str]]:
    """The messages, and what the search says of itself. Raises UnknownTopic, and what AdminClient's calls raise."""
    found: list[ReceivedMessage]
    if wanted.id is not None:
        found = _one(admin.by_id(wanted.id))
    elif wanted.offset is not None:
        found = _one(admin.by_offset(wanted.offset))
    elif wanted.time is not None:
        found = admin.by_time(wanted.topic, wanted.time, end=wanted.end, max_count=wanted.max_count)
    else:
        bounds: dict[str, Any] = {"begin": wanted.begin, "end": wanted.end, "max_count": wanted.max_count}
        if wanted.key is not None:
            found = admin.by_key(wanted.topic, wanted.key, **bounds)
        else:
            assert wanted.unique_key is not None, "one of them is given"
            found = admin.by_unique_key(wanted.topic, wanted.unique_key, **bounds)
    if not found and wanted.topic:
        admin.ask("route", topic=wanted.topic)  # an unknown topic has its own error
    return found, _remarks(found)


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


def describe(message: ReceivedMessage) -> dict[str, Any]:
    """For JSON; the body as bytes, and as None with the reason (`body_error`) where it cannot be decompressed."""
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
