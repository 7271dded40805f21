"""Offset ids of brokers and unique keys of clients."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import IllegalMessageId
from towline.format.record.message_id import (
    OffsetId,
    UniqueKey,
    UniqueKeyGenerator,
    decode_offset_id,
    decode_unique_key,
    encode_offset_id,
    month_bounds_ms,
)
from towline.format.record.record import Host

ADDRESS = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
MONTH = (1_000_000_000_000, 1_002_678_400_000)


def generator(now_ms: int, first: int = 0, address: bytes = bytes([10, 0, 0, 9])) -> UniqueKeyGenerator:
    return UniqueKeyGenerator(address, 4321, 0x5FFD2B27, lambda: now_ms, lambda now: MONTH, first)


class TestOffsetId:
    @pytest.mark.parametrize(
        ("host", "text"),
        [
            (Host(bytes([10, 0, 0, 1]), 10911), "0A00000100002A9F00000000000010A4"),
            (
                Host(bytes.fromhex("fe80000000000000 0000000000000001"), 10911),
                "FE80000000000000000000000000000100002A9F00000000000010A4",
            ),
        ],
        ids=["IPv4", "IPv6"],
    )
    def test_golden_ids(self, host, text):
        assert encode_offset_id(host, 4260) == text
        assert decode_offset_id(text) == decode_offset_id(text.lower()) == OffsetId(host, 4260)

    @given(st.builds(Host, ADDRESS, st.integers(-(2**31), 2**31 - 1)), st.integers(-(2**63), 2**63 - 1))
    def test_an_id_reads_back_as_it_was_written(self, host, physical_offset):
        assert decode_offset_id(encode_offset_id(host, physical_offset)) == OffsetId(host, physical_offset)


class TestUniqueKey:
    GOLDEN = "0A00000910E15FFD2B27055D4A800007"

    def test_the_golden_key(self):
        assert generator(MONTH[0] + 90_000_000, first=7).next() == self.GOLDEN

    def test_the_golden_key_taken_apart(self):
        assert decode_unique_key(self.GOLDEN) == UniqueKey(bytes([10, 0, 0, 9]), 4321, 0x5FFD2B27, 90_000_000, 7)

    @given(ADDRESS, st.integers(0, 10**9), st.integers(0, 10**6))
    def test_a_key_reads_back_as_it_was_made(self, address, month_ms, first):
        key = generator(MONTH[0] + month_ms, first, address).next()
        assert key == key.upper()
        assert decode_unique_key(key) == UniqueKey(address, 4321, 0x5FFD2B27, month_ms, first % 65536)

    def test_the_counter_wraps_at_65536(self):
        keys = generator(MONTH[0], first=65535)
        assert [decode_unique_key(keys.next()).counter for _ in range(2)] == [65535, 0]

    def test_only_the_low_bits_of_a_large_pid_count(self):
        keys = UniqueKeyGenerator(bytes(4), 0x54321, -1, lambda: MONTH[0], lambda now: MONTH)
        assert decode_unique_key(keys.next()) == UniqueKey(bytes(4), 0x4321, 0xFFFF_FFFF, 0, 0)

    def test_the_time_restarts_with_the_month(self):
        clock = iter([999, 1_000, 1_005])
        keys = UniqueKeyGenerator(
            bytes(4), 1, 1, lambda: next(clock), lambda now: (0, 1_000) if now < 1_000 else (1_000, 2_000)
        )
        assert [decode_unique_key(keys.next()).month_ms for _ in range(3)] == [999, 0, 5]

    def test_threads_never_get_the_same_key(self):
        keys = generator(MONTH[0])
        with ThreadPoolExecutor(4) as pool:
            made = [key for batch in pool.map(lambda _: [keys.next() for _ in range(2_000)], range(4)) for key in batch]
        assert len(set(made)) == 8_000


class TestMonthBounds:
    @pytest.mark.parametrize(
        ("moment", "start", "following"),
        [
            (datetime(2024, 2, 29, 23, 59, tzinfo=UTC), (2024, 2), (2024, 3)),
            (datetime(2025, 12, 1, tzinfo=UTC), (2025, 12), (2026, 1)),
        ],
        ids=["leap day", "December"],
    )
    def test_a_month_goes_from_its_first_day_to_the_first_day_of_the_next(self, moment, start, following):
        expected = tuple(int(datetime(*month, 1, tzinfo=UTC).timestamp() * 1000) for month in (start, following))
        assert month_bounds_ms(moment) == expected


@pytest.mark.parametrize("decode", [decode_offset_id, decode_unique_key], ids=["offset id", "unique key"])
@pytest.mark.parametrize("text", ["", "0A", "0" * 31, "0" * 34, "G" * 32, "0" * 57, "00 " * 16], ids=repr)
def test_a_text_that_is_no_id_is_refused_and_shown(decode, text):
    with pytest.raises(IllegalMessageId) as caught:
        decode(text)
    assert caught.value.text == text
