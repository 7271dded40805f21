"""The work of `towline store repair`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from towline.log.repair.repair import Repair
from towline.log.repair.repair_plan import RepairPlan, Step, make_plan
from towline.log.repair.verify import Verified, verify
from towline.log.repair.verify_report import Weight
from towline.node.process.context import runtime_of
from towline.node.store.pool_state import bytes_in_pool, drop_pool
from towline.node.store.store_access import exclusive_access
from towline.node.store.store_shape import shape_of
from towline.node.store.transient_pool import salvage
from towline.node.supervise.snapshot_store import discard_snapshots
from towline.places import Store

from .output import show
from .store_verify import document_of, reading, render_findings


def repair_store(root: Path, config: Path | None, skip: Sequence[int], yes: bool, as_json: bool) -> int:
    """Status 0: there is nothing to do any more; 1: --yes would do something; 2: something is refused, or left over.

    Raises StoreTaken or DutyTaken while a node runs, SyncFailed, DiskFull.
    """
    store = Store(root.resolve())
    settings, delays_ms = shape_of(store, config)
    done: list[Step] = []
    after: Verified | None = None
    runtime = runtime_of(store.root)
    with exclusive_access(store):
        pooled = bytes_in_pool(runtime)
        if yes and pooled:
            salvage(store, runtime)
            drop_pool(store, runtime)
        with reading(store, "verifying") as progress:
            plan = make_plan(store, settings, skip, delays_ms=delays_ms, progress=progress)
        if yes and plan.steps and not plan.refused:
            discard_snapshots(store, runtime)
            with reading(store, "repairing") as progress:
                done = Repair(store, settings, plan, delays_ms=delays_ms, progress=progress).run()
            with reading(store, "verifying") as progress:
                after = verify(store, settings, delays_ms=delays_ms, progress=progress)
    if pooled:
        told = "were committed" if yes else "stand in the pool of a killed node alone; --yes commits them first"
        plan.notes.append(f"{pooled} bytes behind the log's end {told}")
    status = int(after.weight) if after is not None else int(_weight(plan))
    result = _document(plan, done, after) | {"status": status}
    show(result, as_json, lambda console: _render(console, plan, done, after))
    return status


def _weight(plan: RepairPlan) -> Weight:
    if plan.refused:
        return Weight.DAMAGE
    return Weight.HEALS if plan.steps else Weight.NOTE


def _document(plan: RepairPlan, done: Sequence[Step], after: Verified | None) -> dict[str, Any]:
    return {
        "plan": [step.row() for step in plan.steps],
        "refused": [{"file": error.path, "byte": error.at, "sentence": error.describe()} for error in plan.refused],
        "notes": plan.notes,
        "done": [step.row() | {"kept": step.kept} for step in done],
        "verify": document_of(after if after is not None else plan.verified),
    }


def _render(console: Console, plan: RepairPlan, done: Sequence[Step], after: Verified | None) -> None:
    for note in plan.notes:
        console.print(note, markup=False)
    for error in plan.refused:
        console.print(f"refused: {error}", soft_wrap=True, markup=False)
    for step in done or plan.steps:
        kept = f"; kept in {step.kept}" if step.kept else ""
        told = f"{'done' if done else 'would do'}: {step.path} byte {step.at}: {step.sentence}{kept}"
        console.print(told, soft_wrap=True, markup=False)
    if after is not None:
        render_findings(console, after)
        console.print("the store is sound again" if not after.weight else "verify still finds something")
    elif plan.refused:
        console.print("nothing was done, and nothing is done while something is refused")
    elif plan.steps:
        console.print("nothing was done; --yes does it")
    else:
        console.print("there is nothing to repair")
