"""Java's `String.hashCode` over UTF-8 bytes (spec 2.8), and the hash of an index entry (spec 4.2).

The hash runs over UTF-16 units, so bytes are decoded on the way; ASCII goes eight bytes at a time. Bytes that are not
UTF-8 count as U+FFFD, once for each longest beginning of a character, as Java and Python replace them.
"""

from typing import Final

from towline.kernels.jit.compiled import Bytes, helper

from .words import load_u8, raw_i64

_P1: Final = 31
_P2: Final = 31**2
_P3: Final = 31**3
_P4: Final = 31**4
_P5: Final = 31**5
_P6: Final = 31**6
_P7: Final = 31**7
_P8: Final = 31**8
_HIGH_BITS: Final = -0x7F7F_7F7F_7F7F_7F80  # 0x80 in each of eight bytes
_REPLACEMENT: Final = 0xFFFD
_WORD: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


@helper
def signed_32(word: int) -> int:
    """The low 32 bits, read as Java reads an int."""
    return ((word & _WORD) ^ _SIGN) - _SIGN


@helper
def index_hash(hashed: int) -> int:
    """Its absolute value; 0 for -2**31, whose absolute value Java cannot hold."""
    signed = signed_32(hashed)
    if signed == -_SIGN:
        return 0
    return -signed if signed < 0 else signed


@helper
def continue_hash(buffer: Bytes, start: int, length: int, hashed: int) -> int:
    """The hash of a string whose beginning hashed to `hashed`; only the low 32 bits of the result count."""
    at = start
    end = start + length
    while at + 8 <= end:
        word = raw_i64(buffer, at)
        if word & _HIGH_BITS:
            break
        first = (word & 0xFF) * _P7 + ((word >> 8) & 0xFF) * _P6 + ((word >> 16) & 0xFF) * _P5
        middle = ((word >> 24) & 0xFF) * _P4 + ((word >> 32) & 0xFF) * _P3 + ((word >> 40) & 0xFF) * _P2
        hashed = hashed * _P8 + (first + middle + ((word >> 48) & 0xFF) * _P1 + (word >> 56))
        at += 8
    while at < end:
        byte = load_u8(buffer, at)
        if byte < 0x80:
            hashed = hashed * _P1 + byte
            at += 1
        else:
            at, hashed = _wide(buffer, at, end, hashed)
    return hashed


@helper
def _wide(buffer: Bytes, at: int, end: int, hashed: int) -> tuple[int, int]:
    """Hashes the character that begins with a byte above 0x7F; returns where the next one begins, and the hash."""
    lead = load_u8(buffer, at)
    more = _continuation_bytes(lead)
    low, high = _second_byte(lead)
    point = lead & (0x3F >> more)
    at += 1
    for _ in range(more):
        if at >= end or not low <= load_u8(buffer, at) <= high:
            return at, hashed * _P1 + _REPLACEMENT
        point = (point << 6) | (load_u8(buffer, at) & 0x3F)
        low, high = 0x80, 0xBF
        at += 1
    if more == 0:
        point = _REPLACEMENT
    if point >= 0x1_0000:
        point -= 0x1_0000
        hashed = hashed * _P1 + (0xD800 | (point >> 10))
        point = 0xDC00 | (point & 0x3FF)
    return at, hashed * _P1 + point


@helper
def _continuation_bytes(lead: int) -> int:
    """How many bytes follow this one; 0 for a byte that cannot lead."""
    if 0xC2 <= lead <= 0xDF:
        return 1
    if 0xE0 <= lead <= 0xEF:
        return 2
    if 0xF0 <= lead <= 0xF4:
        return 3
    return 0


@helper
def _second_byte(lead: int) -> tuple[int, int]:
    """The range of the byte after `lead`: narrower where it would be overlong, a surrogate, or above U+10FFFF."""
    if lead == 0xE0:
        return 0xA0, 0xBF
    if lead == 0xED:
        return 0x80, 0x9F
    if lead == 0xF0:
        return 0x90, 0xBF
    if lead == 0xF4:
        return 0x80, 0x8F
    return 0x80, 0xBF
