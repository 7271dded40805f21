"""The benchmark of replication: what is made of looks at two logs, and a small run of all of it."""

import io

import numpy as np
import pytest
from rich.console import Console

from towline.cli.bench_ha import GOAL_NAMES, render_ha
from towline.errors import BenchFailed
from towline.limits import MIB
from towline.loadtest.bench.ha import GOALS, Plan, measure
from towline.loadtest.bench.ha_pair import lags_ms, rate_of
from towline.loadtest.bench.round_trip import round_trips

MS = 1_000_000


def looks(*rows):
    return np.array([(at * MS, end, held) for at, end, held in rows], dtype=np.int64)


def test_a_lag_is_the_age_of_the_oldest_byte_that_is_missing():
    rows = looks((0, 0, 0), (5, 100, 0), (9, 200, 0), (12, 200, 100), (20, 200, 200), (21, 300, 200))
    assert lags_ms(rows).tolist() == [0, 0, 4, 3, 0, 0]


def test_a_rate_is_of_the_way_between_two_offsets():
    rows = looks((0, 900, 0), (10, 900, 100), (20, 900, 300), (30, 900, 900))
    assert rate_of(rows, 100, 900) == pytest.approx(800 / 0.020)
    with pytest.raises(BenchFailed):
        rate_of(rows, 100, 901)


def test_raw_round_trips_are_asked_for_at_their_rate():
    taken = round_trips(1_000, 200.0, 0.1)
    assert len(taken) == 20
    assert taken.min() > 0


@pytest.mark.slow
def test_a_small_run():
    plan = Plan(
        rounds=1, stream=64 * MIB, seconds=0.5, rate=20_000_000, behind=128 * MIB, batches=20, segment_size=64 * MIB
    )
    result = measure(plan)
    assert {goal["goal"] for goal in result["goals"]} == set(GOALS) == set(GOAL_NAMES)
    assert result["stream"]["gb_s"] > 0
    assert result["catch_up"]["behind"] >= plan.behind
    waiting = result["waiting"]
    assert waiting["allowed_p50_us"] == waiting["round_trip"]["p50_us"] + waiting["slave_turn"]["p50_us"]
    assert waiting["slave_turn"]["p50_us"] > 0
    text = io.StringIO()
    render_ha(Console(file=text, width=200), result)
    assert "catches up" in text.getvalue()
    assert "a raw round trip and the slave's turn take" in text.getvalue()
