"""Records back to back, as a broker sends them: their lengths."""

import struct
from typing import Final

from towline.errors import MalformedFrame
from towline.format.record.record import SIZE_MIN
from towline.format.wire.frames import Buffer

_SIZE: Final = struct.Struct(">I")


def sizes_of(records: Buffer) -> bytes:
    """The part `sizes` of an answer with these records. Raises MalformedFrame where they do not fit together."""
    at, end, found = 0, len(records), []
    while at < end:
        if end - at < SIZE_MIN:
            raise MalformedFrame(f"{end - at} bytes behind the last record are none")
        size = _SIZE.unpack_from(records, at)[0]
        if not SIZE_MIN <= size <= end - at:
            raise MalformedFrame(f"a record of {size} bytes where {end - at} are left")
        found.append(bytes(records[at : at + _SIZE.size]))
        at += size
    return b"".join(found)
