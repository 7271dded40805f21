"""The wheel gives what waits back in the order of time, whatever came when; the lowest offset is known to a block."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from master.wheel import ROW, Blocks, Wheel


def rows(pairs):
    made = np.zeros(len(pairs), dtype=ROW)
    for place, (due, offset) in enumerate(pairs):
        made[place] = (due, offset, 10 * offset, 100, 0)
    return made


@given(st.lists(st.lists(st.integers(0, 9000), max_size=20), max_size=8), st.integers(1, 7))
def test_what_is_taken_is_due_and_in_order(batches: list[list[int]], count: int) -> None:
    wheel, model, offset = Wheel(), [], 0
    for turn, dues in enumerate(batches):
        added = [(due, offset + place) for place, due in enumerate(dues)]
        offset += len(dues)
        model += added
        wheel.add(rows(added))
        until = 1200 * turn
        ready = sorted(pair for pair in model if pair[0] <= until)[:count]
        taken = wheel.take(until, count)
        assert list(zip(taken["due"].tolist(), taken["offset"].tolist(), strict=True)) == ready
        assert taken["position"].tolist() == [10 * number for _, number in ready]
        model = [pair for pair in model if pair not in ready]
        assert len(wheel) == len(model)
        following = wheel.next_due()
        assert (following is None) == (not model)
        assert following is None or following <= min(model)[0]
        assert {pair for pair in model if pair[0] <= until} <= set(
            zip(wheel.near()["due"].tolist(), wheel.near()["offset"].tolist(), strict=True)
        )


def test_a_million_far_away_are_cheap_to_add() -> None:
    made = np.zeros(1_000_000, dtype=ROW)
    made["due"] = np.random.default_rng(1).integers(0, 3 * 86_400_000, len(made))
    wheel = Wheel()
    wheel.add(made)
    assert len(wheel) == 1_000_000
    assert wheel.next_due() == int(made["due"].min()) // 1000 * 1000


def test_the_lowest_of_offsets_that_come_and_go() -> None:
    blocks = Blocks()
    assert blocks.lowest() is None
    blocks.add(np.array([5000, 9000, 9001]))
    assert blocks.lowest() == 4096
    blocks.remove(np.array([5000]))
    assert blocks.lowest() == 8192
    blocks.remove(np.array([9000, 9001]))
    assert blocks.lowest() is None
