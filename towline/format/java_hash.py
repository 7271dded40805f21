"""Java's `String.hashCode`, on which tags, keys and the order of properties depend (spec 2.8, 4.2)."""

import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

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


def index_hashes(keys: Sequence[str]) -> NDArray[np.int32]:
    """`index_hash` of each key, a unit of all keys of one length at a time."""
    hashes = np.zeros(len(keys), np.uint32)
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    encoded = [key.encode("utf-16-be", "surrogatepass") for key in keys]
    for number, units in enumerate(encoded):
        by_length[len(units)].append(number)
    for length, numbers in by_length.items():
        joined = b"".join(encoded[number] for number in numbers)
        table = np.frombuffer(joined, ">u2").reshape(len(numbers), length // 2)
        hashed = np.zeros(len(numbers), np.uint32)
        for column in table.T:
            hashed = hashed * np.uint32(31) + column
        hashes[numbers] = hashed
    signed = hashes.view(np.int32)
    lowest = signed == np.iinfo(np.int32).min
    return np.where(lowest, 0, np.abs(np.where(lowest, 0, signed))).astype(np.int32)


def signed_32(word: int) -> int:
    """The low 32 bits of `word`, read as Java reads an int."""
    return ((word & _WORD) ^ 0x8000_0000) - 0x8000_0000
