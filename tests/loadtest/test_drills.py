"""Three drills, short, on real nodes; and 100 failovers by etcd in `make soak`. The rest is in `make drills`."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.faults.noting import note_drill
from tests.processes.nodes import processes_of
from tests.processes.waiting import await_
from tests.requirements import need
from towline.loadtest.drill.ground import Shape
from towline.loadtest.drill.history import EVENTS, SAMPLES, STORES
from towline.loadtest.drill.run import DRILLS, DrillPlan, run_drill
from towline.loadtest.drill.timeline import PAGE, PNG, draw
from towline.node.process.context import runtime_of
from towline.runtime.settings import Settings

GONE_S = 20.0
PNG_HEAD = b"\x89PNG\r\n"


def need_etcd(shape: Shape) -> None:
    if shape.etcd and shutil.which("etcd") is None:
        need({"etcd": "there is no etcd (Debian: etcd-server)"})


def drilled(plan: DrillPlan, keep: Path) -> dict:
    result = run_drill(plan, keep, print, nullcontext)
    print(json.dumps(result["verdict"]))
    note_drill(len(result["events"]), result)
    assert result["passed"], result["faults"]
    assert result["lost"] == 0
    assert result["identical"]
    assert result["compared_bytes"] > 0
    stores = json.loads((keep / STORES).read_bytes())["stores"].values()
    assert not [store for store in stores if runtime_of(Path(store)).root.exists()]
    return result


@pytest.mark.parametrize(
    ("rounds", "shape", "plain"),
    [
        (1, Shape(), False),
        (2, Shape(3, 2, etcd=True), False),
        pytest.param(2, Shape(2, 1, etcd=True), True, marks=pytest.mark.slow),
    ],
    ids=["1+2, by hand", "1+2, by etcd", "1+1, by etcd, plain producers"],
)
def test_five_masters_are_killed(temporary, tmp_path, rounds, shape, plain):
    need_etcd(shape)
    plan = DrillPlan("kill-master", rounds=rounds, rate=1000, shape=shape, plain=plain)
    result = drilled(plan, tmp_path / "kept")
    assert len(result["events"]) == rounds
    assert all(event["end"] > event["healed"] > event["service"] > event["begin"] for event in result["events"])
    assert result["acknowledged"] > 400
    assert result["without_service_s"] > 0


def test_a_master_that_diverged_comes_back(temporary, tmp_path):
    result = drilled(DrillPlan("rejoin-diverged", rate=1000), tmp_path / "kept")
    assert result["facts"]["kept_records"] >= 200


def test_a_cut_network(temporary, tmp_path):
    """In a network namespace where that can be had, else through the proxy."""
    kept = tmp_path / "kept"
    result = drilled(DrillPlan("partition", seconds=0.5, rate=1000), kept)
    assert result["events"][0]["facts"]["new_master"] != result["events"][0]["facts"]["node"]
    draw(kept, result)
    assert (kept / PNG).read_bytes().startswith(PNG_HEAD)
    assert "partition: passed" in (kept / PAGE).read_text()
    assert (kept / EVENTS).exists()
    roles = [json.loads(line)["roles"] for line in (kept / SAMPLES).read_text().splitlines()]
    assert len({json.dumps(each) for each in roles}) >= 2


def test_a_master_that_may_be_alone_goes_on_alone(temporary, tmp_path):
    """With min_in_sync_replicas 1 it is degraded, and the absence of slaves is no answer to a put."""
    result = drilled(DrillPlan("kill-slave", seconds=1.5, rate=1000, shape=Shape(2, 1)), tmp_path / "kept")
    assert "SLAVE_NOT_AVAILABLE" not in result["not_acknowledged"]


def test_an_interrupted_drill_leaves_nothing(temporary, tmp_path):
    command = [sys.executable, "-c", "import sys; from towline.start import main; sys.exit(main())"]
    command += ["drill", "kill-slave", "--out", str(tmp_path / "out")]
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    said = ""
    while "kill -9 of node" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 130, said + err
    assert out == ""
    await_(lambda: not processes_of(temporary), GONE_S, "every process of the drill is gone")


def test_every_drill_has_a_name_and_a_sentence():
    assert all((function.__doc__ or "").strip().endswith(".") for function in DRILLS.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", [Shape(3, 2, etcd=True), Shape(2, 1, etcd=True)], ids=["1+2", "1+1"])
def test_a_hundred_failovers_by_etcd(temporary, tmp_path, shape):
    need_etcd(shape)
    lease_s = Settings().lease_ms / 1000
    result = drilled(DrillPlan("kill-master", rounds=100, shape=shape), tmp_path / "kept")
    print(f"without service at most {result['service_back_s']} s in 100 rounds")
    assert result["service_back_s"] <= lease_s + 1
