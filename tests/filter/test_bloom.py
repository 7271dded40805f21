"""Bitmaps of subscriptions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.filter.bloom import Bloom, mark

from .bits import may_match

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)


@pytest.mark.parametrize(
    ("error", "n", "k", "m"),
    [(20, 32, 3, 112), (20, 64, 3, 216), (10, 128, 4, 616)],
    ids=["of a default broker", "more subscriptions", "fewer errors"],
)
def test_the_shape_follows_from_the_settings(error, n, k, m):
    bloom = Bloom(n, error)
    assert (bloom.k, bloom.m, bloom.size) == (k, m, m // 8)


@pytest.mark.parametrize(
    ("group", "topic", "positions", "bitmap"),
    [
        ("g1", "TopicA", (19, 13, 46), "0020080000400000000000000000"),
        ("cg", "TopicTest", (51, 88, 13), "0020000000000800000000010000"),
    ],
)
def test_golden_positions_and_bitmaps(group, topic, positions, bitmap):
    bloom = Bloom()
    assert bloom.positions(group, topic) == positions
    rows = bloom.rows(3)
    mark(rows, np.array([False, True, False]), positions)
    assert [row.tobytes().hex() for row in rows] == ["00" * 14, bitmap, "00" * 14]


@given(st.lists(st.tuples(NAMES, NAMES), max_size=6), st.data())
def test_a_subscription_that_was_marked_is_always_found_again(subscriptions, data):
    bloom = Bloom()
    count = 5
    rows = bloom.rows(count)
    hits = [np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count))) for _ in subscriptions]
    for (group, topic), hit in zip(subscriptions, hits, strict=True):
        mark(rows, hit, bloom.positions(group, topic))
    for (group, topic), hit in zip(subscriptions, hits, strict=True):
        assert may_match(rows, bloom.positions(group, topic))[hit].all()


@given(NAMES, NAMES)
def test_an_empty_bitmap_matches_nobody(group, topic):
    bloom = Bloom()
    assert not may_match(bloom.rows(2), bloom.positions(group, topic)).any()
