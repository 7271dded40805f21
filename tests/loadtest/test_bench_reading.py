"""The benches of the reading side: every row is there, what was kept is right, nothing of the nodes is left."""

from pathlib import Path

import orjson
import pytest
from rich.console import Console

from towline.cli.bench_reading import render_consume, render_filter
from towline.limits import MIB
from towline.loadtest.bench import consume, filter, replay


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def rendered(render, result) -> str:
    assert orjson.loads(orjson.dumps(result)) == result
    console = Console(width=200)
    with console.capture() as captured:
        render(console, result)
    return captured.get()


def test_consume(directory):
    plan = consume.Plan(messages=5_000, objects=1_000, rounds=1, segment_size=8 * MIB, replay=0)
    result = consume.measure(plan)
    assert set(result["read"]) == {"answers", "columns", "objects"}
    assert all(row["msgs_per_s"] > 0 for row in result["read"].values())
    assert [goal["goal"] for goal in result["goals"]] == ["columns", "objects"]
    text = rendered(render_consume, result)
    assert "5,000 messages of 100 B" in text
    assert "one columnar consumer" in text
    assert list(directory.iterdir()) == []


def test_filter(directory):
    plan = filter.Plan(messages=5_000, evaluated=2_000, rounds=1, segment_size=8 * MIB)
    result = filter.measure(plan)
    assert set(result["read"]) == {"unfiltered", "client", "tag", "sql", "bitmap"}
    assert result["read"]["tag"]["kept"] == result["read"]["bitmap"]["kept"] == 50
    assert [goal["goal"] for goal in result["goals"]] == ["tag_of_client", "bitmap_of_sql"]
    assert "with bitmaps" in rendered(render_filter, result)
    assert list(directory.iterdir()) == []


@pytest.mark.slow
def test_replay(directory):
    result = replay.measure(replay.QUICK)
    assert result["cold_in_memory_most"] < replay.QUICK.size
    assert result["during"]["requests"] > 0
    assert list(directory.iterdir()) == []
