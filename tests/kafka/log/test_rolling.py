"""The rule by which a segment ends."""

from dataclasses import replace

import pytest

from towline.kafka.log.rolling import Active, LogConfig, must_roll

CONFIG = LogConfig(segment_bytes=1_000, segment_ms=60_000, segment_index_bytes=120)
ACTIVE = Active(base=100, size=500, created_ms=0, first_timestamp=5_000, offset_entries=3, time_entries=3)


def rolls(active: Active = ACTIVE, size: int = 100, timestamp: int = 5_001, last: int = 200, now: int = 0) -> bool:
    return must_roll(active, CONFIG, size, timestamp, last, now)


def test_a_batch_that_fits_in_every_way_stays():
    assert not rolls()


@pytest.mark.parametrize(("size", "wanted"), [(500, False), (501, True)])
def test_by_size(size, wanted):
    assert rolls(size=size) is wanted


@pytest.mark.parametrize(("timestamp", "wanted"), [(65_000, False), (65_001, True), (0, False)])
def test_by_the_time_from_its_first_batch(timestamp, wanted):
    assert rolls(timestamp=timestamp, now=10**9) is wanted


def test_by_time_an_empty_segment_stays():
    assert not rolls(replace(ACTIVE, size=0, first_timestamp=-1), now=10**9)


def test_by_time_sooner_by_the_jitter():
    assert rolls(replace(ACTIVE, jitter_ms=10_000), timestamp=55_001)
    assert not rolls(replace(ACTIVE, jitter_ms=10_000), timestamp=55_000)


@pytest.mark.parametrize(("now", "wanted"), [(60_000, False), (60_001, True)])
def test_by_its_age_where_its_first_batch_has_no_time(now, wanted):
    assert rolls(replace(ACTIVE, first_timestamp=-1), timestamp=10**9, now=now) is wanted


def test_by_a_full_index_of_which_the_one_of_times_keeps_an_entry_for_the_roll():
    assert not rolls(replace(ACTIVE, offset_entries=14))
    assert rolls(replace(ACTIVE, offset_entries=15))
    assert not rolls(replace(ACTIVE, time_entries=8))
    assert rolls(replace(ACTIVE, time_entries=9))


@pytest.mark.parametrize(("last", "wanted"), [(100 + 2**31 - 1, False), (100 + 2**31, True), (99, True)])
def test_by_an_offset_that_four_bytes_do_not_hold(last, wanted):
    assert rolls(last=last) is wanted
