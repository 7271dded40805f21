"""Java's `String.hashCode`, on which tags, keys and the order of properties depend (spec 2.8, 4.2)."""

import struct
from typing import Final

_WORD: Final = 0xFFFF_FFFF


def string_hash(text: str) -> int:
    """The hash of the UTF-16 code units of `text`, signed 32 bits. A character beyond the BMP counts as two units."""
    return signed_32(unsigned_hash(text))


def unsigned_hash(text: str) -> int:
    """The same hash in [0, 2**32)."""
    hashed = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            hashed = (31 * hashed + unit) & _WORD
    else:
        for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
            hashed = (31 * hashed + unit) & _WORD
    return hashed


def index_hash(key: str) -> int:
    """The absolute value of the hash, as an index entry holds it. Java's abs(-2**31) is negative, so that gives 0."""
    hashed = string_hash(key)
    return 0 if hashed == -(2**31) else abs(hashed)


def signed_32(word: int) -> int:
    """The low 32 bits of `word`, read as Java reads an int."""
    return ((word & _WORD) ^ 0x8000_0000) - 0x8000_0000
