"""Rows that callers and kernels share: numpy structured arrays, native byte order, aligned.

Plain numpy, so that a process may hold these arrays without loading a kernel.
"""

import ctypes
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

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

# A put request on its way into the log, whichever way it came. Addresses are of this process's memory.
REQUEST: Final = np.dtype(
    [
        ("head", "i8"),  # address of the PUT frame's head
        ("head_size", "i8"),
        ("records", "i8"),  # address of its records
        ("records_size", "i8"),
        ("received_ms", "i8"),  # monotonic
        ("stamp", "i8"),  # of a put ring's entry: when its client wrote it
        ("memory", "i8"),  # bytes that it occupies while it waits
        ("answer_at", "i8"),  # of PUT_OK in the answers
        ("answer_size", "i8"),
        ("log_end", "i8"),  # of the log behind it
        ("sender", "i4"),  # a `Sender`
        ("status", "i4"),  # a `RequestStatus`
        ("rule", "i4"),  # of BROKEN: the rule
        ("record", "i4"),  # of BROKEN: the index of the record that breaks it
        ("name_at", "i4"),  # of BROKEN: byte of the records where a bad property's name begins, or 0
        ("peer_size", "i4"),  # bytes of the socket's name for its sender
        ("parts", "i4"),  # of its ZeroMQ message without that name; 3 if more of it is still to be received
        ("unused", "i4"),
    ],
    align=True,
)

# The state of an append: where the log ends, what it compares with, and what it has done.
APPEND: Final = np.dtype(
    [
        ("clock_s", "i8"),  # room for the time that the system's clock says, here as it is written to the row's address
        ("clock_ns", "i8"),  # behind the second
        ("base", "i8"),  # log offset of the segment's first byte
        ("at", "i8"),  # the log's end in the segment
        ("end", "i8"),  # the segment may be written up to here
        ("store_timestamp", "i8"),  # epoch ms
        ("now_ms", "i8"),  # epoch ms
        ("clock", "i8"),  # address of the system's `clock_gettime`; 0: both stay what the caller set
        ("ahead_ms", "i8"),  # of the system's wall clock
        ("oldest_ms", "i8"),  # monotonic: requests that were received before have waited too long
        ("shut", "i8"),  # 1: the gate is shut, nothing is stored
        ("judged", "i8"),  # 1: the places of the next request's records (`base.sequence`) were judged
        ("request_limit", "i8"),  # bytes of records of a request
        ("bytes_max", "i8"),  # of records in one call
        ("body_max", "i8"),
        ("checks", "i8"),  # of `put.stamp`
        ("appended_at", "i8"),  # byte of APPENDED in the positions
        ("stamped_at", "i8"),  # byte of STORE_TIMESTAMP
        ("failpoint", "i8"),  # address of the function that is called at each failpoint, or 0
        ("serial", "i8"),  # of the request that was looked at last
        # What was stored since the caller set these to 0.
        ("requests", "i8"),
        ("records", "i8"),
        ("size", "i8"),  # bytes of records
        ("touched", "i8"),  # queues
        ("memory", "i8"),  # that the requests occupied
        ("scheduled", "i8"),  # requests that the schedule process must see
        ("written", "i8"),  # bytes of answers
    ],
    align=True,
)

# A queue that put writes to; its number is that of the queue directory.
PUT_QUEUE: Final = np.dtype(
    [
        ("next_offset", "i8"),  # of its next record
        ("messages", "i8"),  # since the caller set these to 0: what was stored
        ("size", "i8"),
        ("requests", "i8"),
        ("seen", "i8"),  # serial of the last request that named it
        ("form", "i4"),  # of its records: a Form of `towline.format.record.forms`
        ("access", "i4"),  # who may write to it, as far as is known: `Sender`s, added up
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

for _dtype in (GROUP, REQUEST, APPEND, PUT_QUEUE, DISPATCH, KEY, QUEUE, RUN, RESTORED):
    assert _dtype.itemsize % 8 == 0


def fields_of(rows: npt.NDArray[np.void]) -> Any:
    """The rows of an array with their fields as attributes, which the interpreter reads faster than numpy's."""
    row = _structure(rows.dtype)
    return (row * rows.size).from_buffer(rows)


def _structure(dtype: np.dtype[np.void]) -> Any:
    """As numpy's own, which sets `_pack_`: from Python 3.14 on that is deprecated. Aligned rows need none."""
    type_of: Any = np.ctypeslib.as_ctypes_type
    places = {name: dtype[name] for name in dtype.names or ()}
    made = type("Row", (ctypes.Structure,), {"_fields_": [(name, type_of(each)) for name, each in places.items()]})
    assert ctypes.sizeof(made) == dtype.itemsize, "the rows are not aligned"
    return made


class Stop(IntEnum):
    """Why a walk over records stopped, where it was not a bad record: those are the `Rule`, above 0."""

    DONE = 0  # every byte was walked
    BLANK = -1  # at the blank that ends the segment
    END = -2  # at a TOTALSIZE of 0
    FULL = -3  # the next record does not fit the arrays
    UNKNOWN_QUEUE = -4  # the next record's queue is not in the directory


class Sender(IntEnum):
    """Who sent a put request."""

    CLIENT = 1
    NODE = 2  # a process of this node, which may write what no client may (H23)


class RequestStatus(IntEnum):
    """What became of a put request so far."""

    WAITING = 0
    STORED = 1
    UNKNOWN_QUEUE = 2  # put has not allowed its sender to write to one of its queues
    SEGMENT_END = 3  # it does not fit the part of the segment that may be written
    BROKEN = 4  # it breaks a rule: its row says which and where
    QUEUE_TWICE = 5  # two of its groups are for the same queue
    TOO_LARGE = 6  # above `request_limit`
    EXPIRED = 7  # its deadline has passed
    WAITED = 8  # it waited too long for its turn
    SHUT = 9  # the gate is shut
    MALFORMED = 10  # its head is no PUT frame's
    UNGREETED = 11  # its sender had not greeted, and was told so
    CLOSED = 12  # its memory was released
    SEQUENCED = 13  # its records have the places of an idempotent producer, which nobody has judged yet
