"""The benchmark of delays: a small run of all of it, as JSON and as tables."""

import io

import orjson
import pytest
from rich.console import Console

from towline.cli.bench_delay import render_delay
from towline.loadtest.bench.delay import Plan, measure

PLAN = Plan(rate=200, seconds=1, burst=300, rounds=1, lead_ms=4000)


def test_a_small_run_of_all_of_it():
    notes: list[str] = []
    result = measure(PLAN, notes.append)
    assert orjson.loads(orjson.dumps(result)) == result
    rows = {row["kind"]: row for row in result["rows"]}
    assert {kind: row["messages"] for kind, row in rows.items()} == {"times": 200, "level": 200, "burst": 300}
    assert all(row["early"] == 0 and 0 <= row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows.values())
    out = io.StringIO()
    render_delay(Console(file=out, width=120), result)
    assert "due in one second" in out.getvalue()
    assert len(notes) == 3


@pytest.mark.slow
def test_a_hundred_thousand_due_in_one_second_come_once_each():
    measure(
        Plan(rate=1000, seconds=1, burst=100_000, rounds=1), lambda note: None
    )  # it fails for a missing or double one
