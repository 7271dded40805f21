"""The wheel gives what waits back in the order of time, whatever came when; the lowest offset is known to a block."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from towline.master.schedule.wheel import ROW, Blocks, Wheel


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
        taken = wheel.pop(until, count)
        assert list(zip(taken["due"].tolist(), taken["offset"].tolist(), strict=True)) == ready
        assert taken["position"].tolist() == [10 * number for _, number in ready]
        model = [pair for pair in model if pair not in ready]
        assert len(wheel) == len(model)
        following = wheel.next_due()
        assert (following is None) == (not model)
        assert following is None or following <= min(model)[0]
        due, at = until // 2, offset // 2
        late = [number for when, number in model if (when, number) <= (due, at)]
        assert wheel.lowest_until(due, at) == min(late, default=None)


def test_a_million_far_away_are_cheap_to_add() -> None:
    made = np.zeros(1_000_000, dtype=ROW)
    made["due"] = np.random.default_rng(1).integers(0, 3 * 86_400_000, len(made))
    wheel = Wheel()
    wheel.add(made)
    assert len(wheel) == 1_000_000
    assert wheel.next_due() == int(made["due"].min())
    taken = wheel.pop(3 * 86_400_000, 100_000)
    assert taken["due"].tolist() == np.sort(made["due"])[:100_000].tolist()


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(0, 60), st.integers(-1, 60), st.integers(0, 50)
)
def test_what_is_dropped_is_due_last(dues: list[int], count: int, after: int, taken: int) -> None:
    wheel, model = Wheel(), sorted((due, offset) for offset, due in enumerate(dues))
    wheel.add(rows([(due, offset) for offset, due in enumerate(dues)]))
    model = model[len(wheel.pop(taken, 5)) :]
    since = wheel.keep(count, after)
    left = wheel.pop(1 << 40, 100)
    found = list(zip(left["due"].tolist(), left["offset"].tolist(), strict=True))
    if since is None:
        assert found == model
    else:
        assert since > after
        assert found == [pair for pair in model if pair[0] < since]
        assert len(found) < len(model)


def test_many_that_come_while_few_are_near_are_in_order() -> None:
    draw = np.random.default_rng(2)
    wheel, offset, expected = Wheel(), 0, []
    wheel.add(rows([(1_000_000, -1)]))
    assert len(wheel.pop(0, 1)) == 0
    wheel.pop(1_000_000, 1)  # from here on all is near
    for _ in range(30):
        dues = draw.integers(0, 1_000_000, 4096)
        made = np.zeros(4096, dtype=ROW)
        made["due"], made["offset"] = dues, np.arange(offset, offset + 4096)
        offset += 4096
        wheel.add(made)
        expected.append(made)
    model = np.concatenate(expected)
    model = model[np.lexsort((model["offset"], model["due"]))]
    assert wheel.pop(1 << 40, offset)["offset"].tolist() == model["offset"].tolist()


def test_what_stands_before_an_offset_is_forgotten() -> None:
    wheel = Wheel()
    wheel.add(rows([(due, offset) for offset, due in enumerate([5, 900, 7, 800])]))
    assert wheel.pop(5, 1)["offset"].tolist() == [0]
    wheel.add(rows([(6, 4), (10_000, 5)]))
    wheel.drop_below(3)
    assert wheel.pop(1 << 40, 9)["offset"].tolist() == [4, 3, 5]
    assert (len(wheel), wheel.next_due()) == (0, None)


def test_the_lowest_of_offsets_that_come_and_go() -> None:
    blocks = Blocks()
    assert blocks.lowest() is None
    blocks.add(np.array([5000, 9000, 9001]))
    assert blocks.lowest() == 4096
    blocks.remove(np.array([5000]))
    assert blocks.lowest() == 8192
    blocks.remove(np.array([9000, 9001]))
    assert blocks.lowest() is None
    blocks.add(np.array([5000, 9000, 9001]))
    assert blocks.total == 3
    assert blocks.cut(8192) == 1
    blocks.remove(np.array([5000, 9000]))
    assert (blocks.total, blocks.lowest()) == (1, 8192)
