"""Zigzag varints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.kafka.errors import MalformedBytes
from towline.kafka.format import varints


@pytest.mark.parametrize(
    ("value", "golden"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_golden_numbers(value, golden):
    assert varints.encode(value).hex() == golden
    assert varints.decode(bytes.fromhex(golden)) == (value, len(golden) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_a_number_reads_back_and_ends_where_it_does(value, behind):
    encoded = varints.encode(value)
    assert varints.decode(b"x" + encoded + behind, 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 5 + b"\x01"], ids=["none", "cut", "6 bytes"])
def test_a_number_that_does_not_end_is_refused(data):
    with pytest.raises(MalformedBytes, match=r"byte 0: .* does not end within 5 bytes"):
        varints.decode(data, 0, varints.INT_BYTES)
