"""Whether damage is the end of a log, which a crash leaves, or has whole batches behind it, which nobody cuts away."""

from typing import Final

import numpy as np

from towline.kafka.errors import Rule
from towline.kafka.format import batch, message_set
from towline.kafka.format.records import Bytes, Numbers
from towline.limits import MIB

from .rolling import OFFSETS_MAX
from .scan import Scan, scan

_WINDOW: Final = MIB  # bytes that are looked at together
_TORN: Final = (Rule.TORN_BATCH, Rule.CRC)


def is_torn(data: Bytes, found: Scan, base: int) -> bool:
    """Whether the walk over a segment from offset `base` on ended at a batch that was cut off, nothing behind it.

    The size that a damaged batch names may be wrong itself, so whatever stands behind is searched for a batch.
    """
    if found.fault is None:
        return True
    end = int(found.batches["last_offset"][-1]) + 1 if len(found.batches) else base
    return found.fault.rule in _TORN and not _follows(data, found.end + 1, end, base + OFFSETS_MAX)


def _follows(data: Bytes, start: int, first: int, last: int) -> bool:
    """Whether a whole batch with a CRC that fits begins at or behind `start`, with an offset in [first, last]."""
    for at in range(start, len(data), _WINDOW):
        for position in _candidates(data, at, min(at + _WINDOW, len(data)), first, last).tolist():
            size = int.from_bytes(data[position + 8 : position + batch.OVERHEAD].tobytes(), "big") + batch.OVERHEAD
            if len(scan(data, position, position + size, check_crcs=True).batches):
                return True
    return False


def _candidates(data: Bytes, start: int, end: int, first: int, last: int) -> Numbers:
    """Where in [start, end) a batch might begin, by its magic, its offset and its size."""
    behind = min(end, len(data) - message_set.SIZE_MIN + 1)
    likely = np.flatnonzero(data[start + batch.MAGIC_AT : max(behind, start) + batch.MAGIC_AT] <= batch.MAGIC) + start
    for field, width, least, most in ((8, 4, message_set.SIZE_MIN - batch.OVERHEAD, None), (0, 8, first, last)):
        gathered = np.ascontiguousarray(data[likely[:, None] + field + np.arange(width)])
        numbers = gathered.view(f">i{width}").reshape(-1).astype(np.int64)
        room = len(data) - likely - batch.OVERHEAD if most is None else most
        likely = likely[(numbers >= least) & (numbers <= room)]
    return likely
