"""A message of Towline's own protocol (`towline.format.wire`) in a frame of RocketMQ's: one port for both.

The frame has a header in the form ROCKETMQ without fields: code TOWLINE, flag ANSWER from the node, `opaque` 0, as the
message says itself which request it is or answers. Its body, all integers big-endian:

    at      len  field
     0       1   n      parts, 1 to PARTS_MAX
     1     4*n   sizes  bytes of each part
     1+4*n       parts  one behind the other; nothing follows the last
"""

import struct
from collections.abc import Sequence, Sized
from typing import Final, TypeVar

from towline.errors import MalformedFrame
from towline.format.wire.frames import Buffer
from towline.limits import PARTS_MAX

from .codes import RequestCode
from .command import ANSWER, FRAME_MAX, LENGTH, Command, Form, encode, frame_size


def _head(flag: int) -> bytes:
    """Of every frame, behind its length."""
    command = Command(RequestCode.TOWLINE, 0, flag, form=Form.ROCKETMQ, language="PYTHON")
    return bytes(encode(command)[0][LENGTH.size :])


REQUEST_HEAD: Final = _head(0)
ANSWER_HEAD: Final = _head(ANSWER)
HEAD_SIZE: Final = LENGTH.size + len(ANSWER_HEAD)  # of a frame, before its body
_SIZES: Final = tuple(struct.Struct(f">B{count}I") for count in range(PARTS_MAX + 1))
_HEADS: Final = tuple(struct.Struct(f">I{len(ANSWER_HEAD)}sB{count}I") for count in range(PARTS_MAX + 1))  # of a frame
Part = TypeVar("Part", bound=Sized)
_HEAD: Final = struct.Struct(f">I{len(ANSWER_HEAD)}s")
assert len(REQUEST_HEAD) == len(ANSWER_HEAD)


def encode_message(parts: Sequence[Part], *, from_node: bool) -> list[Part | bytes]:
    """The frame in parts, of which the first is made and the others, of whatever kind they are, are not touched."""
    sizes = list(map(len, parts))
    count = len(sizes)
    length = HEAD_SIZE - LENGTH.size + _SIZES[count].size + sum(sizes)
    return [
        _HEADS[count].pack(length, ANSWER_HEAD if from_node else REQUEST_HEAD, count, *sizes),
        *filter(len, parts),
    ]


def message_size(data: Buffer) -> int:
    """Bytes of the frame of a message from a node that `data` begins with, 0 while too little has come to know.

    Raises MalformedFrame for a frame of anything else.
    """
    if len(data) < HEAD_SIZE:
        frame_size(data)
        return 0
    length, mark = _HEAD.unpack_from(data)
    if mark != ANSWER_HEAD:
        raise MalformedFrame("a frame that holds no message of Towline's")
    return frame_size(data) if length > FRAME_MAX else int(LENGTH.size + length)


def decode_message(body: Buffer) -> list[Buffer]:
    """The parts: the first as bytes, the others as views. Raises MalformedFrame."""
    view = memoryview(body)
    count = view[0] if len(view) else 0
    if not 1 <= count <= PARTS_MAX or len(view) < _SIZES[count].size:
        raise MalformedFrame(f"a message of {count} parts in {len(view)} bytes; 1 to {PARTS_MAX} are allowed")
    _, *sizes = _SIZES[count].unpack_from(view)
    at = _SIZES[count].size
    if at + sum(sizes) != len(view):
        raise MalformedFrame(f"parts of {sum(sizes)} bytes where {len(view) - at} follow their sizes")
    parts: list[Buffer] = [bytes(view[at : at + sizes[0]])]
    at += sizes[0]
    for size in sizes[1:]:
        parts.append(view[at : at + size])
        at += size
    return parts
