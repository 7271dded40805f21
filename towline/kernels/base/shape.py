"""One record's shape: where its parts stand, and whether topic and properties hold what they may (spec 2.1, 2.3).

`towline.format.record.record.decode` keeps the same rules in the same order.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.record import properties, property_crc, record
from towline.format.record.rules import Rule
from towline.kernels.jit.compiled import Bytes, helper
from towline.limits import PROPERTIES_SIZE_MAX, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX

from .crc import crc_of
from .words import BLOCK, below, equal, load_i32, load_u8, load_u16, raw_i64, raw_u32, trailing_zeros

TOTAL_SIZE: Final = record.LAYOUT.offset["total_size"]
MAGIC: Final = record.LAYOUT.offset["magic"]
BODY_CRC: Final = record.LAYOUT.offset["body_crc"]
QUEUE_ID: Final = record.LAYOUT.offset["queue_id"]
QUEUE_OFFSET: Final = record.LAYOUT.offset["queue_offset"]
PHYSICAL_OFFSET: Final = record.LAYOUT.offset["physical_offset"]
SYS_FLAG: Final = record.LAYOUT.offset["sys_flag"]
STORE_TIMESTAMP: Final = record.LAYOUT.offset["store_timestamp"]  # with an IPv4 born host
STORE_HOST: Final = record.LAYOUT.offset["store_address"]  # with an IPv4 born host
HEAD_SIZE: Final = record.LAYOUT.size  # with IPv4 hosts
SIZE_MIN: Final = record.SIZE_MIN
IPV6_MORE: Final = record.IPV6_SIZE - record.IPV4_SIZE
BORN_SHIFT: Final = record.BORN_HOST_IPV6.bit_length() - 1
STORE_SHIFT: Final = record.STORE_HOST_IPV6.bit_length() - 1
MAGIC_V1: Final = record.MAGIC_V1
MAGIC_V2: Final = record.MAGIC_V2
CRC_MASK: Final = property_crc.CRC_MASK
PROPERTY_CRC_SIZE: Final = property_crc.SIZE
DIGITS_AT: Final = len(property_crc.HEAD)  # from the first of the 20 bytes
NAME_END: Final = 1
PAIR_END: Final = 2
SEPARATORS: Final = 3  # bytes below are NUL and the two separators
_PROPERTY_CRC_NAME: Final = int.from_bytes(property_crc.HEAD[:8], "little")
_DIGITS: Final = property_crc.DIGITS
_HALF: Final = 10 ** (property_crc.DIGITS // 2)
_ZERO: Final = ord("0")
_DOT: Final = ord(".")
_SLASH: Final = ord("/")
_RESERVED_MIN: Final = min(map(len, properties.RESERVED))
_SUSPECTS: Final[npt.NDArray[np.int64]] = np.zeros(256, dtype=np.int64)  # 1 for the first byte of a reserved name
_SUSPECTS[[ord(name[0]) for name in (*properties.RESERVED, properties.TRANSIENT_PREFIX)]] = 1
assert DIGITS_AT == 9
assert property_crc.DIGITS % 2 == 0
assert SIZE_MIN >= BLOCK  # so a block may end where the topic or the properties end


@helper
def born_more(sys_flag: int) -> int:
    """Bytes by which the born host moves what stands behind it."""
    return ((sys_flag >> BORN_SHIFT) & 1) * IPV6_MORE


@helper
def hosts_more(sys_flag: int) -> int:
    """Bytes by which both hosts move what stands behind them."""
    return born_more(sys_flag) + ((sys_flag >> STORE_SHIFT) & 1) * IPV6_MORE


@helper
def parts(buffer: Bytes, at: int, end: int, magic: int, body_at: int) -> tuple[int, int, int, int, int]:
    """Rule, body size, start and size of the topic, start of the properties, of the record that spans [at, end).

    PROPERTIES_TOO_LARGE comes last, with the numbers of a record that is sound otherwise.
    """
    two_bytes = 1 if magic == MAGIC_V2 else 0
    body_size = load_i32(buffer, body_at - 4)
    topic_at = body_at + body_size + 1 + two_bytes
    if body_size < 0 or topic_at > end:
        return Rule.PARTS_DO_NOT_ADD_UP.value, 0, 0, 0, 0
    topic_size = load_u8(buffer, topic_at - 1)
    topic_max = TOPIC_SIZE_MAX
    if two_bytes:
        topic_size = load_u16(buffer, topic_at - 2)
        topic_max = RETRY_TOPIC_SIZE_MAX
    if topic_size == 0 or topic_size > topic_max:
        return Rule.TOPIC_LENGTH.value, 0, 0, 0, 0
    properties_at = topic_at + topic_size + 2
    if properties_at > end:
        return Rule.PARTS_DO_NOT_ADD_UP.value, 0, 0, 0, 0
    properties_size = load_u16(buffer, properties_at - 2)
    if properties_at + properties_size != end:
        return Rule.PARTS_DO_NOT_ADD_UP.value, 0, 0, 0, 0
    rule = Rule.PROPERTIES_TOO_LARGE.value if properties_size > PROPERTIES_SIZE_MAX else Rule.OK.value
    return rule, body_size, topic_at, topic_size, properties_at


@helper
def same_bytes(left: Bytes, at: int, right: Bytes, start: int, length: int) -> bool:
    """Whether both arrays hold the same `length` bytes there."""
    if length >= 8:
        last = length - 8
        for step in range(0, last, 8):
            if raw_i64(left, at + step) != raw_i64(right, start + step):
                return False
        return raw_i64(left, at + last) == raw_i64(right, start + last)
    if length >= 4:
        last = length - 4
        first = raw_u32(left, at) == raw_u32(right, start)
        return first and raw_u32(left, at + last) == raw_u32(right, start + last)
    same = True
    for step in range(length):
        same = same and load_u8(left, at + step) == load_u8(right, start + step)
    return same


@helper
def block_below(buffer: Bytes, at: int, end: int, limit: int) -> int:
    """Bit n is set where byte at + n is before `end` and below `limit`. It may read before `at`, not from `end` on."""
    room = end - at
    if room >= BLOCK:
        return below(buffer, at, limit)
    return below(buffer, end - BLOCK, limit) >> (BLOCK - room)


@helper
def topic_sound(buffer: Bytes, at: int, end: int) -> bool:
    """Whether the topic in [at, end), which is not empty, can be a directory: no NUL, no slash, not "." nor ".."."""
    size = end - at
    if size <= 2 and load_u8(buffer, at) == _DOT and load_u8(buffer, end - 1) == _DOT:
        return False
    while at < end:
        room = end - at
        slashes = equal(buffer, at, _SLASH) if room >= BLOCK else equal(buffer, end - BLOCK, _SLASH) >> (BLOCK - room)
        if slashes or block_below(buffer, at, end, 1):
            return False
        at += BLOCK
    return True


@helper
def properties_form(buffer: Bytes, at: int, end: int) -> tuple[bool, int]:
    """Whether each non-empty item between 0x02 has a name before its first 0x01, and no NUL byte stands there.

    And 1 if one of the names may be reserved, by its length and first byte, else 0.
    """
    item = at
    named = False
    suspect = 0
    while at < end:
        found = block_below(buffer, at, end, SEPARATORS)
        while found:
            place = at + trailing_zeros(found)
            found &= found - 1
            byte = load_u8(buffer, place)
            if byte == PAIR_END:
                if place > item and not named:
                    return False, 0
                item = place + 1
                named = False
            elif byte == NAME_END and (named or place > item):
                named = True
                suspect |= _SUSPECTS[load_u8(buffer, item)] & (place - item >= _RESERVED_MIN)
            else:
                return False, 0
        at += BLOCK
    return named or item == end, suspect


@helper
def properties_sound(buffer: Bytes, at: int, end: int) -> bool:
    """The first of `properties_form` alone."""
    return properties_form(buffer, at, end)[0]


@helper
def store_digits_of(buffer: Bytes, at: int, crc: int) -> None:
    """Writes the ten digits of this CRC from `at` on, least significant first."""
    low = crc % _HALF
    high = crc // _HALF  # two halves, so that one division need not wait for the nine before it
    for place in range(_DIGITS // 2):
        buffer[at + place] = _ZERO + low % 10
        buffer[at + place + _DIGITS // 2] = _ZERO + high % 10
        low //= 10
        high //= 10


@helper
def ends_with_crc(buffer: Bytes, at: int, end: int) -> bool:
    """Whether the properties in [at, end) end with a property CRC, by its form."""
    crc_at = end - PROPERTY_CRC_SIZE
    if raw_i64(buffer, crc_at) != _PROPERTY_CRC_NAME or crc_at < at:
        return False
    if load_u8(buffer, crc_at + DIGITS_AT - 1) != NAME_END or load_u8(buffer, end - 1) != PAIR_END:
        return False
    return crc_at == at or load_u8(buffer, crc_at - 1) == PAIR_END


@helper
def holds_digits_of(buffer: Bytes, at: int, crc: int) -> bool:
    """Whether the ten bytes from `at` on are the digits of this CRC, least significant first."""
    value = 0
    weight = 1
    digits = True
    for place in range(_DIGITS):
        digit = load_u8(buffer, at + place) - _ZERO
        digits = digits and 0 <= digit <= 9
        value += weight * digit
        weight *= 10
    return digits and value == crc


@helper
def crc_fits(buffer: Bytes, at: int, end: int) -> bool:
    """Whether the property CRC that ends the record in [at, end) is that of the bytes before it."""
    crc_at = end - PROPERTY_CRC_SIZE
    return holds_digits_of(buffer, crc_at + DIGITS_AT, crc_of(buffer, at, crc_at - at) & CRC_MASK)


@helper
def broken_property_crc(buffer: Bytes, at: int, properties_at: int, end: int) -> int:
    """What the record in [at, end) breaks for who insists: it does not end with a property CRC, or with another's."""
    if not ends_with_crc(buffer, properties_at, end):
        return Rule.PROPERTY_CRC_MISSING.value
    return Rule.OK.value if crc_fits(buffer, at, end) else Rule.PROPERTY_CRC.value
