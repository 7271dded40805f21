"""CRC-32 against zlib."""

import random
import zlib

import numpy as np
import pytest

from towline.kernels import crc

BYTES = random.Random(7).randbytes(70_000)


@pytest.mark.parametrize("start", [0, 1, 7])
def test_every_short_length(start: int) -> None:
    buffer = np.frombuffer(BYTES, np.uint8)
    for length in range(301):
        assert crc.crc32(buffer, start, length) == zlib.crc32(BYTES[start : start + length]), length


def test_long_lengths() -> None:
    buffer = np.frombuffer(BYTES, np.uint8)
    pick = random.Random(11)
    for _ in range(300):
        start = pick.randrange(5_000)
        length = pick.randrange(len(BYTES) - start)
        assert crc.crc32(buffer, start, length) == zlib.crc32(BYTES[start : start + length]), (start, length)


def test_uniform_bytes() -> None:
    for byte in (0x00, 0xFF):
        for length in (1, 15, 16, 17, 63, 64, 127, 128, 129, 1_000):
            text = bytes([byte]) * length
            assert crc.crc32(np.frombuffer(text, np.uint8), 0, length) == zlib.crc32(text)


def test_golden_values() -> None:
    assert crc.crc32(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF4_3926
    assert crc.crc32(np.frombuffer(b"hello", np.uint8), 0, 5) == 0x3610_A686
    assert crc.crc32(np.zeros(0, np.uint8), 0, 0) == 0
