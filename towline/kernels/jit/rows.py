"""Rows that callers and kernels share: numpy structured arrays, native byte order, aligned.

Plain numpy, so that a process may hold these arrays without loading a kernel.
"""

from enum import IntEnum
from typing import Final

import numpy as np

# One (topic, queue) group of a put request (spec 5.3). `topic_start` counts in the arena that holds the topics' bytes.
GROUP: Final = np.dtype(
    [
        ("size", "i8"),  # bytes of its records
        ("count", "i8"),  # its records
        ("next_offset", "i8"),  # in: queue offset of the first record; out: of the record after the last
        ("topic_start", "i8"),
        ("topic_length", "i4"),
        ("queue_id", "i4"),
        ("form", "i8"),  # of its records: a Form of `towline.format.record.forms`
    ],
    align=True,
)

# What reput must know of one record. Positions ending in `_start` count in the scanned array, `phy` in the log.
DISPATCH: Final = np.dtype(
    [
        ("phy", "i8"),
        ("queue_offset", "i8"),
        ("tags_code", "i8"),
        ("store_timestamp", "i8"),
        ("topic_start", "i8"),
        ("size", "i4"),
        ("topic_length", "i4"),
        ("queue_index", "i4"),  # as the directory numbers queues
        ("transaction", "i4"),  # SYSFLAG & TRANSACTION_MASK
        ("key_start", "i4"),  # first of its rows in KEY
        ("key_count", "i4"),
    ],
    align=True,
)

# One key to index: UNIQ_KEY first, then the words of KEYS.
KEY: Final = np.dtype([("start", "i8"), ("length", "i4"), ("record", "i4")], align=True)

# One (topic, queue id) pair of a QueueDirectory; its number is its place in the array.
QUEUE: Final = np.dtype(
    [("hashed", "i8"), ("topic_start", "i8"), ("topic_length", "i4"), ("queue_id", "i4")], align=True
)

# The entries of one queue that a scan touched: `count` entries from byte `start` on, the first for `queue_offset`.
RUN: Final = np.dtype(
    [("start", "i8"), ("queue_offset", "i8"), ("phy_end", "i8"), ("count", "i4"), ("queue_index", "i4")], align=True
)

# A record in a form, and where it belongs. Places count in the array that holds the record, 0 and no bytes if missing.
RESTORED: Final = np.dtype(
    [
        ("size", "i8"),  # bytes of the record that is delivered
        ("time", "i8"),  # TIMER_OUT_MS, -1 if missing
        ("topic_start", "i8"),  # REAL_TOPIC
        ("key_start", "i8"),  # UNIQ_KEY
        ("cancelled_start", "i8"),  # TIMER_DEL_UNIQKEY
        ("properties_start", "i8"),
        ("topic_length", "i4"),
        ("key_length", "i4"),
        ("cancelled_length", "i4"),
        ("properties_size", "i4"),  # without a property CRC
        ("topic", "i4"),  # number of REAL_TOPIC in the directory, or -1
        ("queue_id", "i4"),  # REAL_QID, -1 if missing
        ("rule", "i4"),  # that the record breaks: then nothing else is filled
        ("unused", "i4"),
    ],
    align=True,
)

for _dtype in (GROUP, DISPATCH, KEY, QUEUE, RUN, RESTORED):
    assert _dtype.itemsize % 8 == 0


class Stop(IntEnum):
    """Why a walk over records stopped, where it was not a bad record: those are the `Rule`, above 0."""

    DONE = 0  # every byte was walked
    BLANK = -1  # at the blank that ends the segment
    END = -2  # at a TOTALSIZE of 0
    FULL = -3  # the next record does not fit the arrays
    UNKNOWN_QUEUE = -4  # the next record's queue is not in the directory
