import os
from datetime import datetime

import pytest

from towline.client.link import keys as module
from towline.client.link.keys import COUNTER_RANGE, KeySource, bounds_ms, now_ms
from towline.format.record.message_id import decode_unique_key

ADDRESS = bytes([10, 0, 0, 9])


def test_a_key_says_where_and_when_it_was_made() -> None:
    now = now_ms()
    key = decode_unique_key(KeySource(ADDRESS).next(now))
    assert (key.address, key.pid) == (ADDRESS, os.getpid() & 0xFFFF)
    assert key.month_ms == now - bounds_ms(now)[0]


def test_keys_are_unique_one_at_a_time_and_many_at_once_and_among_sources() -> None:
    made: list[str] = []
    for source in (KeySource(ADDRESS), KeySource(ADDRESS)):
        now = now_ms()
        made += [source.next(now) for _ in range(1_000)]
        for _ in range(3):
            many = source.next_many(COUNTER_RANGE).decode()
            made += [many[at : at + 32] for at in range(0, len(many), 32)]
    assert len(set(made)) == len(made) == 2 * (1_000 + 3 * COUNTER_RANGE)


def test_many_keys_look_like_single_ones() -> None:
    many = KeySource(ADDRESS).next_many(3).decode()
    first, second = decode_unique_key(many[:32]), decode_unique_key(many[32:64])
    assert (first.address, first.pid, first.counter, second.counter) == (ADDRESS, os.getpid() & 0xFFFF, 0, 1)
    assert abs(first.month_ms - (now_ms() - bounds_ms(now_ms())[0])) < 60_000


def test_a_clock_that_goes_back_makes_no_key_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 4_000, 4_000, 5_001])
    monkeypatch.setattr(module, "now_ms", lambda: next(times))
    source = KeySource(ADDRESS)
    made = [source.next_many(40_000) for _ in range(4)]
    assert len({many[at : at + 32] for many in made for at in range(0, len(many), 32)}) == 160_000


def test_a_month_reaches_from_its_first_day_to_the_next_ones() -> None:
    at = int(datetime(2024, 2, 29, 12).timestamp() * 1000)
    assert bounds_ms(at) == (
        int(datetime(2024, 2, 1).timestamp() * 1000),
        int(datetime(2024, 3, 1).timestamp() * 1000),
    )
