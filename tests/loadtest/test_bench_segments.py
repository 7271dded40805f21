"""The benchmark of segment switches: what is counted as crossing one, and a small run of all of it."""

from pathlib import Path

import numpy as np
import orjson
import pytest
from rich.console import Console

from towline.cli.bench_segments import render_segments
from towline.limits import KIB, MIB
from towline.loadtest.bench.latency import Timings
from towline.loadtest.bench.segments import Plan, measure
from towline.loadtest.bench.shapes import Shape
from towline.loadtest.bench.switches import WAYS, Switches

PLAN = Plan(
    rounds=1,
    switches=Switches(segment_size=2 * MIB, count=2, request_size=4 * KIB),
    segment_size=4 * MIB,
    shape=Shape(32, KIB),
    share=0.2,
    rate_max=200,
    seconds=2.0,
)
FIGURES = {"p50_us", "p99_us", "p99_9_us", "p99_99_us", "max_us"}


def timings(*rows: tuple[int, int, int]) -> Timings:
    """Of (sent, acknowledged, offset)."""
    columns = np.array(rows, dtype=np.int64).T
    return Timings(*columns)


class TestCrossing:
    def test_the_request_that_begins_a_segment_crosses(self):
        found = timings((0, 5, 10), (10, 15, 90), (20, 25, 100), (30, 35, 110))
        assert found.switches(100).tolist() == [2]
        assert found.crossed(100).tolist() == [False, False, True, False]

    def test_so_do_those_that_were_on_their_way_when_it_was_acknowledged(self):
        found = timings((0, 5, 10), (10, 20, 50), (11, 30, 100), (12, 31, 110), (30, 32, 120), (31, 33, 130))
        assert found.crossed(100).tolist() == [False, False, True, True, True, False]

    def test_without_a_switch_nothing_crosses(self):
        found = timings((0, 5, 110), (1, 6, 120))
        assert not len(found.switches(100))
        assert not found.crossed(100).any()

    def test_every_switch_counts(self):
        found = timings((0, 1, 99), (2, 3, 100), (4, 5, 150), (6, 7, 200), (8, 9, 300))
        assert found.switches(100).tolist() == [1, 3, 4]
        assert found.us.tolist() == [0.001] * 5
        assert found.seconds == 9e-9


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(directory))
        notes: list[str] = []
        measured = measure(PLAN, notes.append)
    assert notes[-1] == "a node, warmed, round 1 of 1"
    assert list(Path(directory).iterdir()) == []
    return measured


@pytest.mark.timeout(120)
def test_every_way_and_both_nodes_have_their_figures(result):
    assert [row["way"] for row in result["writer"]["ways"]] == [way.name for way in WAYS]
    for row in result["writer"]["ways"]:
        assert set(row) == FIGURES | {"way", "switch_max_us", "turns", "mb_per_s"}
        assert row["turns"] == 3 * (2 * MIB // (4 * KIB + 8)) - 1
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["p99_99_us"] <= row["max_us"]
        assert row["switch_max_us"] <= row["max_us"]
    assert [node["warmed"] for node in result["node"]] == [False, True]
    for node in result["node"]:
        assert node["switches"] >= 1
        assert node["crossed"]["requests"] >= node["began"]["requests"] == node["switches"]
        total = node["crossed"]["requests"] + node["others"]["requests"]
        assert total == int(node["rate"] * PLAN.seconds)
        assert 0 < node["others"]["p50_us"] <= node["others"]["max_us"]
    assert result["node"][0]["rate"] == result["node"][1]["rate"] <= 200


def test_the_goals_say_whether_they_are_met(result):
    assert [goal["goal"] for goal in result["goals"]] == ["added_p99_99_us", "added_p50_us"]
    for goal in result["goals"]:
        assert goal["reached"] == result["node"][1][goal["goal"]]
        assert goal["met"] == (goal["reached"] < goal["below"] == 1000)


@pytest.mark.parametrize(("reached", "said"), [(250.0, "reached 0.25 ms: met"), (1500.0, "reached 1.50 ms: NOT met")])
def test_the_result_is_one_json_document_and_a_table(result, reached, said):
    document = orjson.loads(orjson.dumps(result))
    assert document == result
    document["goals"][0] |= {"reached": reached, "met": reached < 1000}
    console = Console(width=200)
    with console.capture() as captured:
        render_segments(console, document)
    text = captured.get()
    for name in (
        "posix_fadvise WILLNEED",
        "warmed, and populated",
        "not warmed, others",
        "warmed, crossed a switch",
        said,
    ):
        assert name in text
