"""How long stages take: each batch in one bucket, and ends of the log that wait until they are passed."""

from pathlib import Path

import pytest

from towline.runtime import stage_times
from towline.runtime.positions import STAGES_AT, STAGES_LINES, Positions
from towline.runtime.stage_times import BOUNDS_US, Crossings, Stage, StageTimes


@pytest.fixture
def positions(tmp_path: Path) -> Positions:
    return Positions.create(tmp_path / "positions", 1)


@pytest.mark.parametrize(
    ("ns", "bucket"),
    [
        *((0, 0), (1, 0), (1_000, 0), (1_001, 1), (4_000, 1), (4_001, 2), (64_000, 3), (64_001, 4)),
        *((1_000 * BOUNDS_US[-1], len(BOUNDS_US) - 1), (1_000 * BOUNDS_US[-1] + 1, len(BOUNDS_US)), (1 << 50, 12)),
    ],
)
def test_a_time_is_in_the_bucket_whose_bound_it_does_not_exceed(positions: Positions, ns: int, bucket: int) -> None:
    times = StageTimes(positions, Stage.FLUSH)
    times.add(ns)
    assert times.counts() == [int(place == bucket) for place in range(len(BOUNDS_US) + 1)]
    assert times.sum_ns == ns


def test_one_that_is_timed_may_stand_for_several(positions: Positions) -> None:
    times = StageTimes(positions, Stage.APPEND)
    times.add(2_000, 8)
    assert (times.counts()[1], times.sum_ns) == (8, 16_000)


def test_stages_share_no_word_and_none_of_others(positions: Positions) -> None:
    before = bytes(positions.words[: STAGES_AT * 8])
    for number, stage in enumerate(Stage, 1):
        for _ in range(number):
            StageTimes(positions, stage).add(1 << 40)
    for number, stage in enumerate(Stage, 1):
        times = StageTimes(positions, stage)
        assert (sum(times.counts()), times.sum_ns) == (number, number << 40)
    assert bytes(positions.words[: STAGES_AT * 8]) == before
    behind = (STAGES_AT + STAGES_LINES) * 8
    assert not any(positions.words[behind:]), "a line of a slave"


def test_an_end_counts_once_when_it_is_passed(positions: Positions, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000, 100_000, 1_000))
    monkeypatch.setattr(stage_times.time, "monotonic_ns", lambda: next(clock))
    times = StageTimes(positions, Stage.REPLICATE)
    crossings = Crossings(times)
    crossings.saw(10)  # at 1 us
    crossings.saw(10)
    crossings.saw(20)  # at 2 us
    crossings.passed(9)
    assert times.sum_ns == 0
    crossings.passed(15)  # at 3 us
    assert times.sum_ns == 2_000
    crossings.passed(20)  # at 4 us
    crossings.passed(30)
    assert (times.sum_ns, sum(times.counts())) == (4_000, 2)
