"""The benchmark of reput: the log it makes is a sound one, and a small run of all of it."""

import io

import numpy as np
import orjson
import pytest
from rich.console import Console

from towline.cli.bench_reput import GOAL_NAMES, render_reput
from towline.format.record import properties, record
from towline.kernels.scan.scan import CHECK_ALL, COUNT, WALK_STATE_SIZE, walk
from towline.limits import MIB
from towline.loadtest.bench.made_log import BODY, make_log
from towline.loadtest.bench.reput import GOALS, Plan, measure
from towline.log.commitlog.commit_log import CommitLogReader
from towline.places import Store

PLAN = Plan(
    records=20_000,
    rounds=1,
    few=10,
    many=200,
    segment_size=4 * MIB,
    lag_rate=20_000,
    lag_seconds=0.5,
    index_entries=100_000,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(directory))
        patch.setattr("tempfile.tempdir", None)
        made = measure(PLAN, lambda note: None)
    assert not list(directory.iterdir())
    return made


def test_the_log_is_one_that_recovery_would_accept(tmp_path):
    made = make_log(tmp_path, PLAN.records, 200, segment_size=PLAN.segment_size)
    log = CommitLogReader(Store(tmp_path).commitlog, PLAN.segment_size)
    log.load()
    state = np.zeros(WALK_STATE_SIZE, dtype=np.int64)
    seen, keys = 0, set()
    for base in range(0, made.end, PLAN.segment_size):
        walk(log.array(base), 0, PLAN.segment_size, base, CHECK_ALL, 1 << 40, state)
        seen += int(state[COUNT])
    assert seen == made.total == PLAN.records + 200
    for number in (0, 1, 199, 200, 20_199):
        per_segment = (PLAN.segment_size - 8) // made.record_size
        base, at = number // per_segment * PLAN.segment_size, number % per_segment * made.record_size
        one = record.decode(log.array(base).tobytes(), at)
        found = properties.decode(one.properties)
        assert (one.topic, one.queue_id, one.queue_offset) == (b"bench-0000", number % 200, number // 200)
        assert len(one.body) == BODY
        assert found["TAGS"] == "red"
        keys.add(found["UNIQ_KEY"])
    assert len(keys) == 5


def test_a_run_measures_few_and_many_queues_with_and_without_the_index(result):
    assert [(row["queues"], row["index"]) for row in result["rows"]] == [
        (10, False),
        (10, True),
        (200, False),
        (200, True),
    ]
    assert all(row["per_core_s"] > 0 and row["descriptors"] < result["descriptors"] for row in result["rows"])
    assert {goal["goal"] for goal in result["goals"]} == set(GOALS) == set(GOAL_NAMES)
    for goal in result["goals"]:
        below = goal["goal"] in ("few_of_many", "few_of_many_queues", "lag_p99_ms")
        assert goal["met"] == (goal["reached"] <= goal["bound"] if below else goal["reached"] >= goal["bound"])
    orjson.dumps(result)


def test_its_table_can_be_drawn(result):
    drawn = io.StringIO()
    render_reput(Console(file=drawn, width=200), result)
    assert "200 queues and the index" in drawn.getvalue()


def test_records_with_keys_have_the_size_that_was_asked_for_and_a_body_and_keys_of_their_own(tmp_path):
    made = make_log(tmp_path, 5000, 32, segment_size=MIB, body=30, per_topic=4, keys=True)
    assert made.record_size == 200
    log = CommitLogReader(Store(tmp_path).commitlog, MIB)
    log.load()
    per_segment = (MIB - 8) // 200
    bodies, keys = set(), set()
    for number in range(0, 5032, 37):
        base, at = number // per_segment * MIB, number % per_segment * 200
        one = record.decode(log.array(base).tobytes(), at)
        assert (one.topic, one.queue_id) == (b"bench-%04X" % (number % 32 // 4), number % 32 % 4)
        bodies.add(one.body)
        keys.add(properties.decode(one.properties)["KEYS"])
    assert len(bodies) == len(keys) == 136
