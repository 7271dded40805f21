"""The queues of each member, as RocketMQ divides them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.wire.allocation import AVERAGE, CIRCLE, STRATEGIES, allocate


@pytest.mark.parametrize(
    ("strategy", "queues", "members", "shares"),
    [
        (AVERAGE, 8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (AVERAGE, 4, 4, [[0], [1], [2], [3]]),
        (AVERAGE, 2, 3, [[0], [1], []]),
        (CIRCLE, 8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (CIRCLE, 2, 3, [[0], [1], []]),
        (AVERAGE, 0, 1, [[]]),
    ],
)
def test_shares(strategy: str, queues: int, members: int, shares: list[list[int]]):
    names = [f"m{number}" for number in range(members)]
    assert [allocate(strategy, range(queues), names, name) for name in names] == shares


@given(st.sampled_from(STRATEGIES), st.integers(0, 200), st.integers(1, 50))
def test_every_queue_has_one_owner_and_shares_differ_by_one_at_most(strategy: str, queues: int, members: int):
    names = sorted(f"m{number}" for number in range(members))
    shares = [allocate(strategy, range(queues), names, name) for name in names]
    assert sorted(queue for share in shares for queue in share) == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_stranger_has_none():
    assert allocate(AVERAGE, range(4), ["a"], "b") == []


def test_an_unknown_strategy_is_named():
    with pytest.raises(ValueError, match="'random'"):
        allocate("random", range(4), ["a"], "a")
