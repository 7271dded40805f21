"""Locust's users, headless and distributed, while a master is killed; bounds that end a run with status 1; shapes."""

import json
import os
import subprocess
import sys

import pytest

from tests.etcd_server import running
from tests.processes.electing import ElectingGroup
from tests.processes.nodes import ended
from tests.processes.waiting import await_
from towline.loadtest.load.plan import LoadPlan, users_at
from towline.loadtest.load.summary import Row, broken

SECONDS = 30
COMMAND = [sys.executable, "-c", "import sys; from towline.start import main; sys.exit(main())", "loadtest"]
ROW = Row("PUT", "t", 100, 0, 100, 1.0, 2.0, 3.0, 4.0, 10.0)


@pytest.fixture
def pair(tmp_path):
    """Master and slave under an etcd; either goes on alone, visibly."""
    directory = tmp_path / "etcd"
    directory.mkdir()
    for etcd in running(directory):
        alone = {"min_in_sync_replicas": 1, "enable_auto_in_sync_replicas": "true", "slave_timeout": 1000}
        made = ElectingGroup(tmp_path, 2, etcd, **alone)
        ending = ended(*made.nodes)
        next(ending)
        made.start()
        yield made
        next(ending, None)


def serves(group):
    return ",".join(f"ipc://{node.runtime / 'serve.sock'}" for node in group.nodes)


def test_two_workers_lose_nothing_acknowledged_while_the_master_is_killed(pair, tmp_path):
    files = ["--csv", str(tmp_path / "found"), "--html", str(tmp_path / "found.html"), "--out", str(tmp_path / "out")]
    load = ["--put", pair.endpoint, "--serve", serves(pair), "--user", "put", "--user", "batch", "--user", "pull"]
    load += ["--workers", "2", "--users", "6", "--per-user", "20", "--time", str(SECONDS), "--verify", "--json"]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen([*COMMAND, *load, *files], stdout=subprocess.PIPE, stderr=said)
        try:
            await_(lambda: acknowledged(tmp_path) > 500, 30.0, "the load is under way")
            victim = pair.master()
            pair.nodes[victim].kill_all(seed=7)
            assert pair.await_master(1 - victim) == 1 - victim
            before = acknowledged(tmp_path)
            await_(lambda: acknowledged(tmp_path) > before + 500, 30.0, "the load goes on with the other")
            pair.nodes[victim].start()
            out, _ = process.communicate(timeout=2 * SECONDS)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, (tmp_path / "said").read_text() + out.decode()
    found = json.loads(out)
    assert found["verified"]["lost"] == 0
    assert found["verified"]["acknowledged"] > 1000
    rows = {row["kind"]: row for row in found["rows"]}
    assert rows["PUT_BATCH"]["messages"] > rows["PUT_BATCH"]["requests"] > 0
    assert rows["PUT"]["messages"] + rows["PUT_BATCH"]["messages"] == found["verified"]["acknowledged"]
    assert rows["END_TO_END"]["requests"] > 0
    assert (tmp_path / "found_stats.csv").stat().st_size > 0
    assert (tmp_path / "found.html").stat().st_size > 0
    # A bound that cannot be kept, on the same pair.
    short = ["--put", pair.endpoint, "--serve", serves(pair), "--time", "2", "--max-p99", "0.000001", "--json"]
    strict = subprocess.run([*COMMAND, *short], capture_output=True, timeout=60, check=False)
    assert strict.returncode == 1
    assert "above --max-p99" in json.loads(strict.stdout)["broken"][0]


def acknowledged(directory) -> int:
    return sum(path.read_bytes().count(b"\n") for path in (directory / "out").glob("acknowledged-*.txt"))


def test_a_node_that_does_not_answer_is_named_before_anybody_is_started(tmp_path):
    out = tmp_path / "out"
    load = ["--put", "ipc:///nowhere/put.sock", "--serve", "ipc:///nowhere/serve.sock", "--out", str(out)]
    refused = subprocess.run([*COMMAND, *load, "--json"], capture_output=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"] == "NoAnswer"


def test_a_bound_is_broken_by_a_kind_of_request_and_named():
    assert broken([ROW], 0, -1) == []
    assert broken([ROW], 3.0, 0.0) == []
    assert broken([ROW], 2.9, -1) == ["PUT t: p99 is 3.0 ms, above --max-p99 2.9"]
    failing = Row("PUT", "t", 100, 2, 98, 1.0, 2.0, 3.0, 4.0, 10.0)
    assert broken([failing], 0, 0.02) == []
    assert broken([failing], 0, 0.019) == ["PUT t: 0.0200 of the requests failed, above --max-fail 0.019"]
    assert broken([], 5.0, -1) == ["nothing was asked, so no bound can be kept"]


def test_the_wait_of_a_pull_is_no_slowness():
    assert broken([Row("PULL", "t", 1, 0, 5, 500.0, 500.0, 500.0, 500.0, 1.0)], 1.0, -1) == []


@pytest.mark.parametrize(
    ("shape", "seen"),
    [("ramp", [1, 25, 50, 75, 100]), ("plateau", [1, 100, 100, 100, 100]), ("soak", [1, 42, 83, 100, 100])],
)
def test_shapes_follow_their_curves(shape, seen):
    plan = LoadPlan(shape=shape, users=100, seconds=100.0)
    assert [users_at(plan, second) for second in (0, 25, 50, 75, 99.9)] == seen
    assert users_at(plan, 100.0) is None


def test_a_burst_is_all_users_a_quarter_of_each_period():
    plan = LoadPlan(shape="burst", users=100, seconds=100.0)
    assert [users_at(plan, second) for second in (0, 14.9, 15, 19.9, 20, 35, 99.9)] == [10, 10, 100, 100, 10, 100, 100]


def test_a_plan_goes_through_the_environment_unchanged():
    plan = LoadPlan("tcp://a:1", "tcp://b:2", "t", 7, 8, 1.5, "burst", 3, 2.5, 9.0, 4.0, 0.5, os.fspath("d"))
    assert LoadPlan.read(plan.environment()) == plan
    assert LoadPlan.read({}) == LoadPlan()
