"""Checks of records in a form (`towline.format.record.forms`), by form and by queue.

Byte by byte: what is delayed, timed or half is a small part of what is put.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.format.record import forms, properties
from towline.format.record.forms import CHECK_ROOM, Form
from towline.format.record.rules import Rule
from towline.kernels.jit.compiled import (
    NUMBERS_READ,
    QUEUES_READ,
    READ,
    WORDS_READ,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    types,
)
from towline.limits import PROPERTIES_SIZE_MAX

from .directory import NONE, QueueDirectory, find
from .ownership import NO_NAME, RESERVED_NAMES, is_taken, row_of
from .shape import NAME_END, PAIR_END
from .words import load_u8, raw_u32

Reals = tuple[Words, Rows, Bytes, Words, Numbers]
# Of a RealTopics: a directory's arrays, the topics' queues, and [0] now, [1] the latest time that is taken, epoch ms.
_tuple_of: Any = types.Tuple
REALS: Final = _tuple_of((WORDS_READ, QUEUES_READ, READ, WORDS_READ, NUMBERS_READ))

_DIGITS_MAX: Final = 18
_CARRIED: Final[npt.NDArray[np.int64]] = np.array(
    [int(forms.CARRIED.get(name, Form.PLAIN)) for name in RESERVED_NAMES], dtype=np.int64
)
_REAL_TOPIC: Final = RESERVED_NAMES.index(properties.REAL_TOPIC)
_REAL_QID: Final = RESERVED_NAMES.index(properties.REAL_QID)
_DELAY: Final = RESERVED_NAMES.index(properties.DELAY)
_TRAN_MSG: Final = RESERVED_NAMES.index(properties.TRANSACTION_PREPARED)
_DELIVER: Final = RESERVED_NAMES.index(forms.TIMER_DELIVER_MS)
_OUT: Final = RESERVED_NAMES.index(forms.TIMER_OUT_MS)
_CANCELLED: Final = RESERVED_NAMES.index(forms.TIMER_DEL_UNIQKEY)
_TRUE: Final = int.from_bytes(b"true", "little")
_GROUP: Final = int.from_bytes(properties.PRODUCER_GROUP[:4].encode(), "little")
_GROUP_LAST: Final = int.from_bytes(properties.PRODUCER_GROUP[2:].encode(), "little")
_DELAYED: Final = int(Form.DELAYED)
_HALF: Final = int(Form.HALF)
_CANCEL: Final = int(Form.CANCEL)
assert len(properties.PRODUCER_GROUP) == 6


@helper
def number_in(buffer: Bytes, at: int, end: int) -> int:
    """The decimal number in [at, end), -1 for anything else."""
    if at >= end or end - at > _DIGITS_MAX:
        return -1
    number = 0
    for place in range(at, end):
        digit = load_u8(buffer, place) - 0x30
        if digit < 0 or digit > 9:
            return -1
        number = 10 * number + digit
    return number


@helper
def _is_group(buffer: Bytes, at: int, length: int) -> bool:
    return length == 6 and raw_u32(buffer, at) == _GROUP and raw_u32(buffer, at + 2) == _GROUP_LAST


@helper
def _real_rule(buffer: Bytes, at: int, size: int, queue: int, reals: Any) -> int:
    slots, queues, names, counts, _ = reals
    number = find(slots, queues, names, buffer, at, size, 0)[0] if size > 0 else NONE
    if number == NONE or counts[number] == 0:
        return Rule.REAL_TOPIC.value
    if queue < 0 or queue >= counts[number]:
        return Rule.REAL_QUEUE.value
    return Rule.OK.value


@helper
def _time_rule(form: int, deliver: int, out: int, cancels: bool, reals: Any) -> int:
    times = reals[4]
    if deliver < 0 or out != deliver:
        return Rule.TIMER_FORM.value
    if deliver > times[1]:
        return Rule.TIMER_TOO_FAR.value
    if form == _CANCEL and not cancels:
        return Rule.CANCEL_FORM.value
    if form == _CANCEL and deliver <= times[0]:
        return Rule.CANCEL_TOO_LATE.value
    return Rule.OK.value


@helper
def _own_rule(
    form: int, queue_id: int, level: int, half: int, deliver: int, out: int, cancels: bool, reals: Any
) -> int:
    """What a form wants beside the real queue. `half` counts a TRAN_MSG of true and a PGROUP."""
    if form == _DELAYED:
        return Rule.OK.value if level == queue_id + 1 else Rule.DELAY_LEVEL.value
    if form == _HALF:
        return Rule.OK.value if half == 3 else Rule.HALF_FORM.value
    return _time_rule(form, deliver, out, cancels, reals)


@helper
def form_rule(buffer: Bytes, at: int, end: int, own: Bytes, form: int, queue_id: int, reals: Any) -> tuple[int, int]:
    """The rule that the sound properties in [at, end) of a record in this form break, and where a bad name begins.

    `queue_id` is the record's own, `own` are this broker's `own_values`, `reals` a RealTopics' arrays.
    """
    if form == _HALF and end - at > PROPERTIES_SIZE_MAX - CHECK_ROOM:
        return Rule.HALF_TOO_LARGE.value, 0
    item = at
    topic_at = topic_size = half = 0
    queue = level = deliver = out = -1
    cancels = False
    while at < end:
        byte = load_u8(buffer, at)
        if byte == NAME_END:
            stop = at + 1
            while stop < end and load_u8(buffer, stop) != PAIR_END:
                stop += 1
            row = row_of(buffer, item, at)
            if row != NO_NAME and _CARRIED[row] & form == 0:
                rule = is_taken(buffer, row, at, end, own)
                if rule != Rule.OK:
                    return rule, item
            elif row == _REAL_TOPIC:
                topic_at = at + 1
                topic_size = stop - topic_at
            elif row == _REAL_QID:
                queue = number_in(buffer, at + 1, stop)
            elif row == _DELAY:
                level = number_in(buffer, at + 1, stop)
            elif row == _TRAN_MSG:
                half |= stop - at == 5 and raw_u32(buffer, at + 1) == _TRUE
            elif row == _DELIVER:
                deliver = number_in(buffer, at + 1, stop)
            elif row == _OUT:
                out = number_in(buffer, at + 1, stop)
            elif row == _CANCELLED:
                cancels = stop - at > 1
            elif _is_group(buffer, item, at - item) and stop - at > 1:
                half |= 2
            at = stop
            item = stop + 1
        elif byte == PAIR_END:
            item = at + 1
        at += 1
    rule = _own_rule(form, queue_id, level, half, deliver, out, cancels, reals)
    if rule == Rule.OK:
        rule = _real_rule(buffer, topic_at, topic_size, queue, reals)
    return rule, 0


class RealTopics:
    """The topics that clients may write to, as the append looks them up."""

    def __init__(self) -> None:
        self._counts: Words = np.zeros(1, dtype=np.int32)
        self._times: Numbers = np.zeros(2, dtype=np.int64)
        self._directory = QueueDirectory()

    def replace(self, write_queues: Mapping[bytes, int]) -> None:
        """Topic -> its queues, from now on."""
        self._directory = QueueDirectory()
        self._counts = np.zeros(max(1, len(write_queues)), dtype=np.int32)
        for topic, count in write_queues.items():
            if count > 0:
                self._counts[self._directory.add(topic, 0)] = count

    def at(self, now_ms: int, latest_ms: int) -> Reals:
        """For a request that is stored now; later than `latest_ms` nothing is to be delivered (both epoch ms)."""
        self._times[0] = now_ms
        self._times[1] = latest_ms
        return (*self._directory.arrays, self._counts, self._times)
