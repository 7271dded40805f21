"""The recovery benchmark on small stores: every figure is there, nothing of the nodes is left."""

from pathlib import Path

import orjson
import pytest
import typer
from rich.console import Console

from towline.cli.bench_recovery import render_recovery, sizes_of
from towline.limits import GIB, MIB
from towline.loadtest.bench.recovery import Plan, measure

PLAN = Plan(
    sizes=(6 * MIB, 10 << 50),
    rounds=1,
    unflushed_s=2.0,
    unflushed_rate=8 * MIB,
    queues=40,
    segment_size=4 * MIB,
    index_entries=40_000,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(directory))
        measured = measure(PLAN)
    assert list(Path(directory).iterdir()) == []
    return measured


def test_every_start_has_its_stages_and_they_add_up(result):
    row, skipped = result["sizes"]
    assert "bytes are free" in skipped["skipped"]
    for start in (row["clean"], row["killed"], result["queues"]["clean"], result["queues"]["killed"]):
        assert sum(start["stages"].values()) == pytest.approx(start["first_ack_s"])
        assert list(start["stages"])[-1] == "first_ack"
        assert list(start["recovery"]) == ["load", "resume", "reserve"]  # what is known of the node before fits
        assert (start["resumed"], start["starts"], start["notes"]) == (1, 1, [])
        assert 0 <= start["starved_s"] < start["first_ack_s"]
        assert sum(start["recovery"].values()) < start["first_ack_s"]
    assert row["killed"]["unflushed"] > MIB
    assert result["queues"]["queues"] == 40


def test_a_walk_reads_the_whole_log(result):
    walk = result["sizes"][0]["walk"]
    assert walk["bytes"] % PLAN.segment_size == 0
    assert 6 * MIB < walk["end"] <= walk["bytes"]
    assert walk["of_read"] == pytest.approx(walk["walk_s"] / walk["read_s"])


def test_the_result_is_one_json_document_and_a_table(result):
    assert orjson.loads(orjson.dumps(result)) == result
    console = Console(width=250)
    with console.capture() as captured:
        render_recovery(console, result)
    text = captured.get()
    assert text.count("at most") == len(result["goals"]) == 4
    for name in ("6.0 MiB, clean", "6.0 MiB, killed", "40 queues, killed", "full walk", "skipped"):
        assert name in text


def test_sizes_are_read_in_gib():
    assert sizes_of("1,0.5") == (GIB, GIB // 2)
    for wrong in ("", "a", "0"):
        with pytest.raises(typer.BadParameter):
            sizes_of(wrong)
