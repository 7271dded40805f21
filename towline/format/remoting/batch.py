"""The body of SEND_BATCH_MESSAGE: messages back to back, each in this shape, big-endian (spec 2.10).

i4 size of all of it | i4 0 | i4 0 | i4 flag | i4 length, body | i2 length, properties
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from towline.errors import MalformedFrame

from .stored import member_properties

HEAD: Final = struct.Struct(">iiiii")
FLAG_AT: Final = 12
BODY_SIZE_AT: Final = 16
LENGTH: Final = struct.Struct(">H")  # of the properties
_RULE: Final = "the sizes of a message of a batch do not add up"


class BatchMember(NamedTuple):
    """One message of a batch, as it is stored."""

    flag: int
    body: bytes
    properties: bytes


def member(flag: int, body: bytes, properties: bytes) -> bytes:
    """One message of a batch."""
    size = HEAD.size + len(body) + LENGTH.size + len(properties)
    return HEAD.pack(size, 0, 0, flag, len(body)) + body + LENGTH.pack(len(properties)) + properties


def members_of(body: bytes) -> Iterator[BatchMember]:
    """The messages of a batch. Raises MalformedFrame at the first that is not whole."""
    at = 0
    while at < len(body):
        if len(body) - at < HEAD.size + LENGTH.size:
            raise MalformedFrame(f"a batch of {len(body)} bytes ends inside the message at byte {at}")
        size, _, _, flag, body_size = HEAD.unpack_from(body, at)
        begin, end = at + HEAD.size, at + size
        properties_at = begin + body_size + LENGTH.size
        if body_size < 0 or end > len(body) or properties_at > end:
            raise MalformedFrame(_RULE)
        (properties_size,) = LENGTH.unpack_from(body, begin + body_size)
        if properties_at + properties_size != end:
            raise MalformedFrame(_RULE)
        yield BatchMember(flag, body[begin : begin + body_size], member_properties(body[properties_at:end]))
        at = end
