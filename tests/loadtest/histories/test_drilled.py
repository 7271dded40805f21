"""What happened in real drills is accepted by Porcupine."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import need
from towline.loadtest.drill.ground import Shape
from towline.loadtest.drill.operations import OPERATIONS
from towline.loadtest.drill.run import DrillPlan, run_drill

from .checking import ACCEPTED, REFUSED, Checked, Checker


def drilled(porcupine: Checker, plan: DrillPlan, kept: Path) -> tuple[dict[str, Any], Checked]:
    result = run_drill(plan, kept, print, nullcontext)
    assert result["passed"], result["faults"]
    checked = porcupine.check(kept / OPERATIONS)
    print(json.dumps(checked.said))
    assert checked.status == ACCEPTED, checked
    assert checked.said["operations"] == result["facts"]["operations"]
    return result, checked


def test_a_killed_master_leaves_a_history_that_is_accepted(porcupine, temporary, tmp_path):
    """And with an acknowledged append, or a write, taken out of what was read, it is refused."""
    kept = tmp_path / "kept"
    result, checked = drilled(porcupine, DrillPlan("kill-master", rate=500, history=True), kept)
    assert (checked.said["lists"], checked.said["registers"]) == (8, 4)
    rows = [json.loads(line) for line in (kept / OPERATIONS).read_text().splitlines()]
    by = {kind: [row for row in rows if row["Metadata"].startswith(kind)] for kind in ("producer", "reader", "keeper")}
    assert len([row for row in by["producer"] if row["Output"]]) == result["acknowledged"]
    assert sum(len(row["Output"]["values"]) for row in by["reader"]) > result["acknowledged"]  # two of them
    assert {row["Input"]["f"] for row in by["keeper"]} == {"read", "write"}
    lost = next(row for row in by["producer"] if row["Output"])["Input"]["value"]
    for row in rows:
        if "values" in (row["Output"] or {}):
            row["Output"]["values"] = [value for value in row["Output"]["values"] if value != lost]
    refused = porcupine.check_lines(tmp_path, rows)
    assert refused.status == REFUSED
    assert lost in refused.fault


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "plan",
    [
        DrillPlan("kill-master", rounds=5, shape=Shape(etcd=True), history=True),
        DrillPlan("partition", history=True),
        DrillPlan("partition", by="proxy", history=True),
        DrillPlan("rejoin-diverged", history=True),
        DrillPlan("rolling-restart", history=True),
        DrillPlan("kill-process", target="put", rounds=3, history=True),
        DrillPlan("pause-slave", history=True),
    ],
    ids=lambda plan: f"{plan.label} {plan.by}",
)
def test_drills_leave_histories_that_are_accepted(porcupine, temporary, tmp_path, plan):
    if plan.shape.etcd and shutil.which("etcd") is None:
        need({"etcd": "there is no etcd (Debian: etcd-server)"})
    drilled(porcupine, plan, tmp_path / "kept")
