"""CRCs of many bodies: by zlib and numpy, or by the compiled kernel in a process that computes many."""

import time
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from towline.format.record.columns import Bytes, Integers
from towline.format.record.crcs import Crcs, crcs

from .kernels import loaded, spent


def body_crcs(data: Bytes, starts: Integers, sizes: Integers, items: Sequence[bytes] | None = None) -> Crcs:
    """The CRC of data[start : start + size] for each pair.

    `items`: the same stretches as objects, where the caller has them; zlib takes those faster.
    """
    kernels = loaded()
    if kernels is not None:
        return crcs(data, starts, sizes, kernels.crc32_each)
    began = time.monotonic()
    found = crcs(data, starts, sizes) if items is None else np.fromiter(map(crc32, items), np.uint32, len(items))
    spent(began)
    return found
