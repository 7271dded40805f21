"""Zigzag varints: seven bits a byte from the lowest on, the eighth set where another byte follows.

The sign stands in the lowest bit, so that small numbers of either sign are short: 0, -1, 1, -2 are 0, 1, 2, 3. An int
has 5 bytes at most, a long 10. Numbers of many records are read by `towline.kernels.kafka.records`.
"""

from typing import Final

from towline.kafka.errors import MalformedBytes, Rule

INT_BYTES: Final = 5
LONG_BYTES: Final = 10
_MORE: Final = 0x80


def encode(value: int) -> bytes:
    """1 to 10 bytes for a value of 64 bits with sign."""
    raw = (value << 1) ^ (value >> 63)
    found = bytearray()
    while raw >= _MORE:
        found.append(raw & 0x7F | _MORE)
        raw >>= 7
    found.append(raw)
    return bytes(found)


def decode(buffer: bytes | memoryview, at: int = 0, size_max: int = LONG_BYTES) -> tuple[int, int]:
    """The value at byte `at`, and the byte behind it. Raises MalformedBytes where it does not end in time."""
    raw = 0
    for number, byte in enumerate(buffer[at : at + size_max]):
        raw |= (byte & 0x7F) << 7 * number
        if byte < _MORE:
            return (raw >> 1) ^ -(raw & 1), at + number + 1
    raise MalformedBytes(Rule.RECORDS, at, f"a number does not end within {size_max} bytes")
