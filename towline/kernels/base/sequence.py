"""The place of an idempotent producer's record (`towline.format.record.sequence`), for the append."""

from typing import Final

from towline.format.record import sequence
from towline.format.record.rules import Rule
from towline.kernels.jit.compiled import Bytes, Numbers, helper

from .shape import (
    HEAD_SIZE,
    MAGIC,
    NAME_END,
    PAIR_END,
    PROPERTY_CRC_SIZE,
    SIZE_MIN,
    SYS_FLAG,
    TOTAL_SIZE,
    hosts_more,
    parts,
    same_bytes,
)
from .words import load_i32, load_u8, load_u32, raw_i64

SEQUENCE_SIZE: Final = sequence.SIZE
_NAME: Final = int.from_bytes(sequence.HEAD[:8], "little")
_NAME_SIZE: Final = 8
_VALUE_AT: Final = sequence.PRODUCER_AT
_WHOSE_SIZE: Final = sequence.NUMBER_AT - _VALUE_AT  # producer and epoch
_NUMBER_AT: Final = sequence.NUMBER_AT
_NUMBER_DIGITS: Final = sequence.NUMBER_DIGITS
_ZERO: Final = ord("0")
assert _VALUE_AT == _NAME_SIZE + 1
assert SIZE_MIN >= SEQUENCE_SIZE + PROPERTY_CRC_SIZE  # so what may be one lies inside the record

# Where `sequence_rule` keeps what it knows of a request, among the numbers of `put.stamp`.
FIRST: Final = 3  # byte of the frame where the first record's place begins, 0 before it
LAST: Final = 4  # the last record's number
SEQUENCE_NUMBERS: Final = 2


@helper
def ends_with_sequence(buffer: Bytes, at: int, end: int) -> bool:
    """Whether the properties in [at, end) end with a place, by its name and size."""
    start = end - SEQUENCE_SIZE
    if start < at or raw_i64(buffer, start) != _NAME:
        return False
    if load_u8(buffer, start + _NAME_SIZE) != NAME_END or load_u8(buffer, end - 1) != PAIR_END:
        return False
    return start == at or load_u8(buffer, start - 1) == PAIR_END


@helper
def is_sequenced(frame: Bytes, crc_size: int) -> bool:
    """Whether the first record of a request has a place, before `crc_size` bytes of a property CRC. One comparison for
    those of others."""
    size = load_i32(frame, TOTAL_SIZE)
    if size < SIZE_MIN or size > frame.size:
        return False
    end = size - crc_size
    if raw_i64(frame, end - SEQUENCE_SIZE) != _NAME:
        return False
    body_at = HEAD_SIZE + hosts_more(load_u32(frame, SYS_FLAG))
    if body_at > size:
        return False
    rule, _, _, _, properties_at = parts(frame, 0, size, load_u32(frame, MAGIC), body_at)
    return rule == Rule.OK and ends_with_sequence(frame, properties_at, end)


@helper
def sequence_rule(frame: Bytes, end: int, numbers: Numbers) -> int:
    """The rule that the place which ends at `end` breaks: it is the one after the last one's, of the same sender."""
    at = end - SEQUENCE_SIZE
    number = 0
    for place in range(_NUMBER_DIGITS):
        digit = load_u8(frame, at + _NUMBER_AT + place) - _ZERO
        if digit < 0 or digit > 9:
            return Rule.SEQUENCE_ORDER.value
        number = 10 * number + digit
    if numbers[FIRST] == 0:
        numbers[FIRST] = at
    elif number != numbers[LAST] + 1 or not same_bytes(
        frame, at + _VALUE_AT, frame, numbers[FIRST] + _VALUE_AT, _WHOSE_SIZE
    ):
        return Rule.SEQUENCE_ORDER.value
    numbers[LAST] = number
    return Rule.OK.value
