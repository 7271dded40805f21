"""One record's shape: where its parts stand, and whether topic and properties hold what they may (spec 2.1, 2.3).

`towline.format.record.decode` keeps the same rules in the same order.
"""

from typing import Final

from towline.format import property_crc, record
from towline.format.rules import Rule
from towline.limits import PROPERTIES_SIZE_MAX, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX

from .compiled import Bytes, helper
from .crc import crc_of
from .words import BLOCK, below, load_i32, load_u8, load_u16, raw_i64, raw_u32, trailing_zeros

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
_ZERO: Final = ord("0")
assert DIGITS_AT == 9
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
    """Rule, body size, start and size of the topic, start of the properties, of the record that spans [at, end)."""
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
    if properties_size > PROPERTIES_SIZE_MAX:
        return Rule.PROPERTIES_TOO_LARGE.value, 0, 0, 0, 0
    if properties_at + properties_size != end:
        return Rule.PARTS_DO_NOT_ADD_UP.value, 0, 0, 0, 0
    return Rule.OK.value, body_size, topic_at, topic_size, properties_at


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
def holds_nul(buffer: Bytes, at: int, end: int) -> bool:
    """Whether a NUL byte stands in [at, end), the end of which is at least a block into its record."""
    while at < end:
        if block_below(buffer, at, end, 1):
            return True
        at += BLOCK
    return False


@helper
def properties_sound(buffer: Bytes, at: int, end: int) -> bool:
    """Whether each non-empty item between 0x02 has a name before its first 0x01, and no NUL byte stands there."""
    item = at
    named = False
    while at < end:
        found = block_below(buffer, at, end, SEPARATORS)
        while found:
            place = at + trailing_zeros(found)
            found &= found - 1
            byte = load_u8(buffer, place)
            if byte == PAIR_END:
                if place > item and not named:
                    return False
                item = place + 1
                named = False
            elif byte == NAME_END and (named or place > item):
                named = True
            else:
                return False
        at += BLOCK
    return named or item == end


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
    same = True
    for place in range(_DIGITS):
        same = same and load_u8(buffer, at + place) == _ZERO + crc % 10
        crc //= 10
    return same


@helper
def crc_fits(buffer: Bytes, at: int, end: int) -> bool:
    """Whether the property CRC that ends the record in [at, end) is that of the bytes before it."""
    crc_at = end - PROPERTY_CRC_SIZE
    return holds_digits_of(buffer, crc_at + DIGITS_AT, crc_of(buffer, at, crc_at - at) & CRC_MASK)
