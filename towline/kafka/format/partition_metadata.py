"""`partition.metadata`: the id of the topic that a partition belongs to, as text.

version: 0
topic_id: <22 characters of base64 for 16 bytes, - and _ for + and />
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

from towline.kafka.errors import MalformedBytes, Rule

NAME: Final = "partition.metadata"
VERSION: Final = 0
_PADDING: Final = "=="
_FORM: Final = re.compile(r"version: ([0-9]{1,9})\ntopic_id: ([A-Za-z0-9_-]{22})\n?")


def encode(topic_id: UUID) -> bytes:
    """The whole file."""
    return f"version: {VERSION}\ntopic_id: {id_text(topic_id)}".encode()


def decode(data: bytes) -> UUID:
    """Raises MalformedBytes."""
    found = _FORM.fullmatch(data.decode(errors="replace"))
    if found is None:
        raise MalformedBytes(Rule.TEXT, 0, f"no version and topic_id: {data[:80]!r}")
    if int(found[1]) != VERSION:
        raise MalformedBytes(Rule.VERSION, 0, f"version {found[1]}")
    return id_of(found[2])


def id_text(value: UUID) -> str:
    """22 characters, as Kafka shows an id."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def id_of(text: str) -> UUID:
    """The id of 22 characters."""
    return UUID(bytes=urlsafe_b64decode(text + _PADDING))
