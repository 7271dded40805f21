"""The body of SEND_BATCH_MESSAGE: messages back to back, each in this shape, big-endian (spec 2.10).

i4 size of all of it | i4 0 | i4 0 | i4 flag | i4 length, body | i2 length, properties
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from towline.errors import MalformedFrame

from .stored import member_properties

_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES: Final = struct.Struct(">H")
_RULE: Final = "the sizes of a message of a batch do not add up"


class BatchMember(NamedTuple):
    """One message of a batch, as it is stored."""

    flag: int
    body: bytes
    properties: bytes


def member(flag: int, body: bytes, properties: bytes) -> bytes:
    """One message of a batch."""
    size = _HEAD.size + len(body) + _PROPERTIES.size + len(properties)
    return _HEAD.pack(size, 0, 0, flag, len(body)) + body + _PROPERTIES.pack(len(properties)) + properties


def members_of(body: bytes) -> Iterator[BatchMember]:
    """The messages of a batch. Raises MalformedFrame at the first that is not whole."""
    at = 0
    while at < len(body):
        if len(body) - at < _HEAD.size + _PROPERTIES.size:
            raise MalformedFrame(f"a batch of {len(body)} bytes ends inside the message at byte {at}")
        size, _, _, flag, body_size = _HEAD.unpack_from(body, at)
        begin, end = at + _HEAD.size, at + size
        properties_at = begin + body_size + _PROPERTIES.size
        if body_size < 0 or end > len(body) or properties_at > end:
            raise MalformedFrame(_RULE)
        (properties_size,) = _PROPERTIES.unpack_from(body, begin + body_size)
        if properties_at + properties_size != end:
            raise MalformedFrame(_RULE)
        yield BatchMember(flag, body[begin : begin + body_size], member_properties(body[properties_at:end]))
        at = end
