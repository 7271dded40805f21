"""The STORETIMESTAMP of one record, read from the log: searches by time and index repair ask for it."""

import struct
from typing import Final

from towline.errors import NotInLog
from towline.format.record.record import LAYOUT, layout_of

from .commit_log import CommitLogReader

_WORD: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">q")
_HEAD_MAX: Final = 128  # bytes that hold the field whatever the hosts' families


def store_time(log: CommitLogReader, physical_offset: int) -> int:
    """Epoch ms of the record that begins there, which is not checked; -1 if the log does not hold it."""
    try:
        head = log.slice(physical_offset, physical_offset + _HEAD_MAX)
    except NotInLog:
        return -1
    if len(head) < LAYOUT.size:
        return -1
    (sys_flag,) = _WORD.unpack_from(head, LAYOUT.offset["sys_flag"])
    at = layout_of(sys_flag).offset["store_timestamp"]
    if len(head) < at + _TIME.size:
        return -1
    (timestamp,) = _TIME.unpack_from(head, at)
    return int(timestamp)
