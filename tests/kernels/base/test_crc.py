"""CRC-32 against zlib."""

import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.base import entries
from towline.kernels.base import crc

Kernel = Callable[[np.ndarray, int, int], int]
CopyKernel = Callable[[np.ndarray, int, np.ndarray, int, int], int]
BYTES = random.Random(7).randbytes(70_000)


KERNELS = [entries.crc32, entries.crc32_by_tables]


@pytest.mark.parametrize("kernel", KERNELS, ids=["chosen", "tables"])
@pytest.mark.parametrize("start", [0, 1, 7])
def test_every_short_length(kernel: Kernel, start: int) -> None:
    buffer = np.frombuffer(BYTES, np.uint8)
    for length in range(301):
        assert kernel(buffer, start, length) == zlib.crc32(BYTES[start : start + length]), length


@pytest.mark.parametrize("kernel", KERNELS, ids=["chosen", "tables"])
def test_long_lengths(kernel: Kernel) -> None:
    buffer = np.frombuffer(BYTES, np.uint8)
    pick = random.Random(11)
    for _ in range(300):
        start = pick.randrange(5_000)
        length = pick.randrange(len(BYTES) - start)
        assert kernel(buffer, start, length) == zlib.crc32(BYTES[start : start + length]), (start, length)


@pytest.mark.parametrize("kernel", KERNELS, ids=["chosen", "tables"])
def test_uniform_bytes(kernel: Kernel) -> None:
    for byte in (0x00, 0xFF):
        for length in (1, 15, 16, 17, 63, 64, 127, 128, 129, 1_000):
            text = bytes([byte]) * length
            assert kernel(np.frombuffer(text, np.uint8), 0, length) == zlib.crc32(text)


@pytest.mark.parametrize("kernel", [entries.crc32_copy, entries.crc32_copy_by_tables], ids=["chosen", "tables"])
@pytest.mark.parametrize(("at", "start"), [(0, 0), (3, 1), (16, 7)])
def test_the_copy_is_whole_and_writes_nothing_else(kernel: CopyKernel, at: int, start: int) -> None:
    buffer = np.frombuffer(BYTES, np.uint8)
    for length in [*range(301), 1_000, 1_024, 4_097, 60_000]:
        target = np.full(at + length + 80, 0xA5, np.uint8)
        text = BYTES[start : start + length]
        assert kernel(target, at, buffer, start, length) == zlib.crc32(text), length
        assert target.tobytes() == b"\xa5" * at + text + b"\xa5" * 80, length


def test_many_at_once() -> None:
    starts, lengths = np.array([0, 5, 9_000, 3]), np.array([0, 100, 1_024, 7])
    result = np.zeros(4, np.int64)
    assert crc.crc32_each(np.frombuffer(BYTES, np.uint8), starts, lengths, result) == 4
    assert result.tolist() == [zlib.crc32(BYTES[at : at + size]) for at, size in zip(starts, lengths, strict=True)]


def test_golden_values() -> None:
    assert entries.crc32(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF4_3926
    assert entries.crc32(np.frombuffer(b"hello", np.uint8), 0, 5) == 0x3610_A686
    assert entries.crc32(np.zeros(0, np.uint8), 0, 0) == 0


def test_a_cpu_without_the_instruction_takes_the_tables() -> None:
    text = "from towline.kernels.base import folding; assert not folding.available()"
    subprocess.run([sys.executable, "-c", text], env={**os.environ, "NUMBA_CPU_NAME": "generic"}, check=True)
