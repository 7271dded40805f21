"""Bodies as their senders had them: decompressed by SYSFLAG (spec 2.4)."""

import importlib

import numpy as np
import pyarrow as pa

from towline.format.record.compression import DecompressedTooLarge, UnreadableBody
from towline.format.record.record import COMPRESSED
from towline.limits import DECOMPRESSED_SIZE_MAX

from .errors import BatchTooLarge, DamagedBody
from .heads import Heads
from .slices import VALUES_MAX, slices

Restored = dict[int, bytes]


def compressed_rows(heads: Heads) -> list[int]:
    return np.flatnonzero(heads.sys_flag & COMPRESSED).tolist()


def restored(heads: Heads, row: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """The body of one compressed record. Raises DamagedBody if it cannot be, within `size_max`."""
    # Loaded here: who reads no compressed bodies need not have lz4 and zstandard.
    decompress = importlib.import_module("towline.format.record.compression").decompress
    start = int(heads.parts.body_start[row])
    stored = heads.log[start : start + int(heads.parts.body_size[row])].tobytes()
    try:
        body: bytes = decompress(stored, int(heads.sys_flag[row]), size_max)
    except (DecompressedTooLarge, UnreadableBody) as problem:
        raise DamagedBody(heads.base + int(heads.positions[row]), problem.describe()) from None
    return body


def bodies(heads: Heads, restored: Restored) -> pa.BinaryArray:
    """The bodies, `restored` by row in place of what is stored. Raises BatchTooLarge."""
    starts = heads.parts.body_start
    stored = slices(heads.log, starts, starts + heads.parts.body_size, "body")
    if not restored:
        return stored
    total = sum(map(len, restored.values())) + int(heads.parts.body_size.sum())
    if total > VALUES_MAX:
        raise BatchTooLarge("body", total, VALUES_MAX)
    both = pa.concat_arrays([stored, pa.array(list(restored.values()), pa.binary())])
    source = np.arange(len(stored))
    source[list(restored)] = np.arange(len(stored), len(both))
    return both.take(pa.array(source))
