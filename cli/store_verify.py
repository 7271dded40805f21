"""Does the work of `towline store verify` and `towline store repair`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from towline.log.errors import RepairRefused
from towline.log.repair.repair import Repair
from towline.log.repair.repair_plan import RepairPlan, Step, make_plan
from towline.log.repair.verify import Verified, verify
from towline.log.repair.verify_report import Finding, Weight
from towline.node.process.context import runtime_of
from towline.node.store.pool_state import bytes_in_pool, drop_pool
from towline.node.store.store_access import exclusive_access, node_kept_away, verify_beside_node
from towline.node.store.store_shape import shape_of
from towline.node.store.transient_pool import salvage
from towline.node.supervise.snapshot_store import discard_snapshots
from towline.places import Store

from .output import add_row, progress_console, show, sized, table
from .remedies import completed

_WORDS: Final = {Weight.NOTE: "sound", Weight.HEALS: "to be healed", Weight.DAMAGE: "damaged"}
_MB: Final = 1_000_000


def verify_store(root: Path, config: Path | None, as_json: bool) -> int:
    """Status 0, 1 or 2. A store on which a node runs is read up to what it dispatched."""
    store = Store(root.resolve())
    settings, delays_ms = shape_of(store, config)
    with node_kept_away(store) as limit, reading(store, "verifying") as progress:
        found = verify_beside_node(lambda: verify(store, settings, delays_ms=delays_ms, limit=limit, progress=progress))
    show(document_of(found), as_json, lambda console: render(console, found))
    return int(found.weight)


@contextmanager
def reading(store: Store, what: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error: bytes of the log, speed, and the time that is left."""
    total = sum(path.stat().st_size for path in store.commitlog.iterdir()) if store.commitlog.is_dir() else 0
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task(what, total=total or None)
        yield lambda size: bar.advance(task, size)


def document_of(found: Verified) -> dict[str, Any]:
    log = found.log
    return {
        "status": int(found.weight),
        "verdict": _WORDS[found.weight],
        "up_to": found.limit,
        "log": {"min": log.log_min, "end": log.end, "records": log.records},
        "segments": [
            {"base": one.base, "verdict": one.verdict, "records": one.records, "used": one.used} for one in log.segments
        ],
        "findings": [row.row() | {"remedy": _typed(row, found)} for row in found.findings.rows],
        "not_shown": [
            {"file": path, "rule": rule, "count": count} for (path, rule), count in found.findings.dropped.items()
        ],
        "seconds": round(found.seconds, 3),
        "bytes": found.bytes,
        "bytes_per_second": round(found.bytes / found.seconds),
    }


def render(console: Console, found: Verified) -> None:
    log = found.log
    segments = table("segment", "#records", "#bytes used", "verdict")
    for one in log.segments:
        add_row(segments, f"{one.base:020d}", f"{one.records:,}", f"{one.used:,}", one.verdict)
    console.print(segments)
    render_findings(console, found)
    speed = found.bytes / found.seconds / _MB
    console.print(f"{log.records:,} records, {sized(found.bytes)} in {found.seconds:.2f} s ({speed:,.0f} MB/s)")
    if found.limit is not None:
        console.print(f"a node runs on the store: it was read up to {found.limit:,}, the end of what was dispatched")
    console.print(f"the store is {_WORDS[found.weight]}")


def render_findings(console: Console, found: Verified) -> None:
    for row in found.findings.rows:
        sentence = f"{row.path} bytes {row.at} to {row.end}: {row.rule}, {row.sentence}; {_typed(row, found)}"
        console.print(f"{row.weight.name.lower()}: {sentence}", soft_wrap=True, markup=False)
    for (path, rule), count in found.findings.dropped.items():
        console.print(f"{path}: {count:,} more of {rule}", markup=False)


def _typed(row: Finding, found: Verified) -> str:
    """The remedy with the store in it."""
    return completed(row.remedy, ("--store", str(found.findings.root)))


# --- repair


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
        fate = "were committed" if yes else "stand in the pool of a killed node alone; --yes commits them first"
        plan.notes.append(f"{pooled} bytes behind the log's end {fate}")
    status = int(after.weight) if after is not None else int(_weight(plan))
    result = _repair_document(plan, done, after) | {"status": status}
    show(result, as_json, lambda console: _print_repair(console, plan, done, after))
    return status


def _weight(plan: RepairPlan) -> Weight:
    if plan.refused:
        return Weight.DAMAGE
    return Weight.HEALS if plan.steps else Weight.NOTE


def _repair_document(plan: RepairPlan, done: Sequence[Step], after: Verified | None) -> dict[str, Any]:
    return {
        "plan": [step.row() for step in plan.steps],
        "refused": [
            {"file": error.path, "byte": error.at, "sentence": error.describe(), "remedy": _advice(error, plan)}
            for error in plan.refused
        ],
        "notes": plan.notes,
        "done": [step.row() | {"kept": step.kept} for step in done],
        "verify": document_of(after if after is not None else plan.verified),
    }


def _advice(error: RepairRefused, plan: RepairPlan) -> str:
    return completed(error.advice, ("--store", str(plan.verified.findings.root)))


def _print_repair(console: Console, plan: RepairPlan, done: Sequence[Step], after: Verified | None) -> None:
    for note in plan.notes:
        console.print(note, markup=False)
    for error in plan.refused:
        console.print(f"refused: {error.describe()}; {_advice(error, plan)}", soft_wrap=True, markup=False)
    for step in done or plan.steps:
        kept = f"; kept in {step.kept}" if step.kept else ""
        sentence = f"{'done' if done else 'would do'}: {step.path} byte {step.at}: {step.sentence}{kept}"
        console.print(sentence, soft_wrap=True, markup=False)
    if after is not None:
        render_findings(console, after)
        console.print("the store is sound again" if not after.weight else "verify still finds something")
    elif plan.refused:
        console.print("nothing was done, and nothing is done while something is refused")
    elif plan.steps:
        console.print("nothing was done; --yes does it")
    else:
        console.print("there is nothing to repair")
