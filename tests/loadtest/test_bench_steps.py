"""The benchmark that follows messages: a small run of all of it, as JSON and as tables."""

import io
import os

import numpy as np
import orjson
import pytest
from rich.console import Console

from towline.cli.bench_steps import render_steps
from towline.errors import BenchFailed
from towline.loadtest.bench.steps import PULLED, STEPS, Plan, first_from, measure
from towline.runtime.failpoints import ENVIRONMENT


@pytest.mark.parametrize(("transport", "reads_files"), [("ipc", True), ("ipc", False), ("tcp", True), ("tcp", False)])
def test_a_small_run_of_all_of_it(transport, reads_files):
    names = [name for name in STEPS if not (reads_files and name in PULLED)]
    notes: list[str] = []
    result = measure(Plan(rates=(100,), seconds=1.0, transport=transport, reads_files=reads_files), notes.append)
    assert orjson.loads(orjson.dumps(result)) == result
    (one,) = result["rates"]
    assert (one["rate"], one["messages"]) == (100, 100)
    steps = {row["step"]: row for row in one["steps"]}
    assert len(steps) == len(names) + 2
    assert all(0 < row["p50_us"] <= row["p99_us"] <= row["max_us"] for row in steps.values())
    medians = [steps[meaning]["p50_us"] for meaning in map(STEPS.__getitem__, names)]
    assert medians == sorted(medians), "a message goes from step to step"
    assert {"put", "reput", "serve"} <= one["cpu_percent"].keys()
    out = io.StringIO()
    render_steps(Console(file=out, width=160), result)
    assert "the consumer has it" in out.getvalue()
    assert len(notes) == 1
    assert ENVIRONMENT not in os.environ, "later nodes write no trace"


def test_a_step_is_the_first_event_behind_the_one_before():
    found = first_from([10, 20, 30], np.array([1, 10, 11, 30, 99]))
    assert found.tolist() == [10, 10, 20, 30, 30]
    with pytest.raises(BenchFailed, match="written no trace"):
        first_from([], np.array([1]))
