"""The benchmark itself: every row is there, every figure is one, nothing of the node is left."""

from pathlib import Path

import orjson
import pytest
from rich.console import Console

from towline.cli.bench_put import render_put
from towline.format.record import record
from towline.format.wire.frames import decode_put
from towline.limits import MIB
from towline.loadtest.bench.put import Plan, measure
from towline.loadtest.bench.shapes import WINDOW, Shape, load_of

PLAN = Plan(
    seconds=0.02,
    rounds=2,
    shapes=(Shape(1, 100), Shape(40, 1024)),
    segment_size=8 * MIB,
    kernel_segment_size=2 * MIB,
    copy_size=MIB,
    turn_bytes=MIB,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(directory))
        notes: list[str] = []
        measured = measure(PLAN, notes.append)
    assert notes[-1] == "put, round 2 of 2"
    assert list(Path(directory).iterdir()) == []
    return measured


def figures(value: object) -> list[float]:
    if isinstance(value, dict):
        return [found for each in value.values() for found in figures(each)]
    if isinstance(value, list):
        return [found for each in value for found in figures(each)]
    return [] if isinstance(value, bool | str) else [value]  # type: ignore[list-item]


def test_every_row_has_its_figures_and_its_limits(result):
    assert [(row["records"], row["body"]) for row in result["kernel"]] == [(40, 100), (40, 1024)]
    for row in result["kernel"]:
        assert set(row["limits"]) == {"copy_gb_s", "crc_ns", "crc_gb_s"}
        share = row["crc_checked"].pop("share_of_crc_check")  # of so short a run it may be anything below 1
        assert share < 1
    rows = [(row["transport"], row["records"], row["body"]) for row in result["put"]]
    assert rows == [("ipc", 1, 100), ("ipc", 40, 1024), ("tcp", 1, 100), ("tcp", 40, 1024)]
    for row in result["put"]:
        assert set(row["burst"]) == {"msgs_per_s", "mb_per_s", "of_raw", "put_cpu_ns_per_msg"}
        assert set(row["whole_node"]) == {"msgs_per_s", "mb_per_s", "of_raw", "dispatched_after_ms"}
        assert set(row["limits"]) == {"raw_msgs_per_s", "raw_mb_per_s", "copy_gb_s"}
    assert all(figure >= 0 for figure in figures(result))
    assert all(figure > 0 for figure in figures(result["kernel"]))
    assert [goal["goal"] for goal in result["goals"]] == ["plain_of_copy", "checked_of_crc"]


def test_the_result_is_one_json_document_and_a_table(result):
    assert orjson.loads(orjson.dumps(result)) == result
    for row in result["kernel"]:
        row["crc_checked"].setdefault("share_of_crc_check", 0.5)
    console = Console(width=200)
    with console.capture() as captured:
        render_put(console, result)
    text = captured.get()
    for name in ("ipc 1 x 100 B", "tcp 40 x 1024 B", "40 x 100 B, CRC check", "memory copy", "at least"):
        assert name in text


def test_requests_are_as_the_producer_encodes_them():
    load = load_of(Shape(3, 100))
    assert len(load.heads) == 2 * WINDOW
    ids = set()
    for head in load.heads:
        request_id, _, _, groups = decode_put(head, 1)
        ids.add(request_id)
        assert [(group.count, group.size) for group in groups] == [(3, len(load.records))]
    assert len(ids) == len(load.heads)
    found = [record.decode(load.records, number * load.record_size) for number in range(3)]
    assert {len(each.body) for each in found} == {100}
    assert all(b"UNIQ_KEY\x01" in each.properties and b"TAGS\x01red" in each.properties for each in found)
