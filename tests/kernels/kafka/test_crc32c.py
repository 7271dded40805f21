"""CRC-32C: the values of RFC 3720, and the same by tables as by the instruction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.base.entries import entry
from towline.kernels.jit.compiled import I64, READ
from towline.kernels.kafka.crc32c import crc32c_by_tables, crc32c_each


@entry(I64(READ, I64, I64))
def by_tables(buffer, start, length):
    return crc32c_by_tables(buffer, start, length)


def of(data: bytes) -> int:
    result = np.zeros(1, np.int64)
    crc32c_each(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.full(1, len(data)), result)
    return int(result[0])


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
    ids=["empty", "digits", "zeros", "ones", "rising", "falling"],
)
def test_known_values(data, crc):
    assert of(data) == crc
    assert by_tables(np.frombuffer(data, np.uint8), 0, len(data)) == crc


@given(st.binary(max_size=200), st.integers(0, 20))
def test_tables_and_instruction_agree_at_every_length(data, start):
    held = np.frombuffer(data, np.uint8)
    start = min(start, len(data))
    result = np.zeros(2, np.int64)
    starts, lengths = np.array([start, 0]), np.array([len(data) - start, start])
    assert crc32c_each(held, starts, lengths, result) == 2
    assert result.tolist() == [by_tables(held, start, len(data) - start), by_tables(held, 0, start)]
