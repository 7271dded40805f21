"""The test that distinguishes a record cut off by the end of the written bytes from a damaged one."""

import struct
from typing import Final

from .record import LAYOUT, MAGIC_V1, MAGIC_V2, layout_of

_HEAD: Final = struct.Struct(">iI")
_INT: Final = struct.Struct(">i")
_WORD: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")
_LENGTH_MAX: Final = 2  # bytes of the length of a topic, or of the properties


def is_torn(data: memoryview, at: int) -> bool:
    """Whether the record at byte `at` reaches past the end of `data`, by its size and by the sum of its parts.

    On a slave the durable offset may lie inside a record, whose rest never arrived. A whole record with one damaged
    length is not taken for that: its size and its parts do not both say so.
    """
    room = len(data) - at
    if room < LAYOUT.size:
        return True
    size, magic = _HEAD.unpack_from(data, at)
    if magic not in (MAGIC_V1, MAGIC_V2) or size <= room:
        return False
    (sys_flag,) = _WORD.unpack_from(data, at + LAYOUT.offset["sys_flag"])
    layout = layout_of(sys_flag)
    if room < layout.size:
        return True
    (body_size,) = _INT.unpack_from(data, at + layout.offset["body_size"])
    if body_size < 0:
        return False
    topic_at = layout.size + body_size
    if topic_at + _LENGTH_MAX > room:
        return True
    if magic == MAGIC_V1:
        properties_at = topic_at + 1 + data[at + topic_at]
    else:
        properties_at = topic_at + _SHORT.size + _SHORT.unpack_from(data, at + topic_at)[0]
    if properties_at + _LENGTH_MAX > room:
        return True
    return bool(properties_at + _SHORT.size + _SHORT.unpack_from(data, at + properties_at)[0] > room)
