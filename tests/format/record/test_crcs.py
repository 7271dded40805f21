"""CRCs of many stretches are zlib's, whatever their lengths and places."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.record.crcs import LOCK_STEP_MAX, crcs
from towline.kernels.base.crc import crc32_each

both_ways = pytest.mark.parametrize("kernel", [None, crc32_each], ids=["numpy and zlib", "kernel"])


@both_ways
@given(
    data=st.binary(max_size=400),
    places=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=20),
)
def test_any_stretches(kernel, data, places):
    places = [(min(start, len(data)), size) for start, size in places]
    places = [(start, min(size, len(data) - start)) for start, size in places]
    starts, sizes = (
        np.array([place[0] for place in places], np.int64),
        np.array([place[1] for place in places], np.int64),
    )
    found = crcs(np.frombuffer(data, np.uint8), starts, sizes, kernel)
    assert found.tolist() == [zlib.crc32(data[start : start + size]) for start, size in places]


@both_ways
@pytest.mark.parametrize("size", [*range(9), LOCK_STEP_MAX - 1, LOCK_STEP_MAX, LOCK_STEP_MAX + 1, 5000])
def test_each_length_up_to_the_last_byte(kernel, size):
    data = np.frombuffer(np.random.default_rng(size).bytes(5000), np.uint8)
    starts = np.array([0, 1, 2, 3, 5000 - size]).clip(max=5000 - size)
    found = crcs(data, starts, np.full(5, size), kernel)
    assert found.tolist() == [zlib.crc32(data[start : start + size].tobytes()) for start in starts.tolist()]
