"""Does the work of `towline drill`: runs drills one after the other, shows their figures and draws them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console

from towline.loadtest.drill.errors import DrillImpossible, end_of_logs
from towline.loadtest.drill.ground import Shape
from towline.loadtest.drill.run import DRILLS, PROCESSES, DrillPlan, run_drill
from towline.loadtest.drill.timeline import PAGE, PNG, draw

from .interrupts import Interrupts
from .output import FAILED, SKIPPED, add_row, people, progress_console, sized, table, write_json

RESULT: Final = "result.json"  # what `towline web --reports` shows
_SHAPES: Final = ("nodes", "least", "etcd")


def run(names: Sequence[str], out: Path, as_json: bool, asked: dict[str, Any]) -> int:
    """Exit status 1 where anything acknowledged was lost, or any other promise was broken.

    One JSON line per drill. Without names every drill, and one that is not possible here is skipped; a single one that
    is not possible raises DrillImpossible.
    """
    shape = Shape(**{key: asked.pop(key) for key in _SHAPES if key in asked})
    plans = [DrillPlan(name, shape=shape, **asked) for name in names] or _all(shape, asked)
    results: list[dict[str, Any]] = []
    console = progress_console()
    with Interrupts() as interrupts:
        for plan in plans:
            try:
                results.append(_one(plan, out, console, interrupts))
            except DrillImpossible as error:
                if names:
                    raise
                results.append({"drill": plan.label, "skipped": error.why})
                console.print(f"{plan.label}: skipped: {error.why}", markup=False)
            if as_json:
                write_json(results[-1])
    if not as_json:
        _render(people(), results)
        for result in results:
            write_json(result)
    return status_of(results)


def status_of(results: Sequence[dict[str, Any]]) -> int:
    """0: every drill ran and passed; SKIPPED where this machine could not do one, and none failed."""
    if not all(result["passed"] for result in results if "skipped" not in result):
        return FAILED
    return SKIPPED if any("skipped" in result for result in results) else 0


def _all(shape: Shape, asked: dict[str, Any]) -> list[DrillPlan]:
    plans = []
    for name in DRILLS:
        targets = PROCESSES if name == "kill-process" else ("put",)
        plans += [DrillPlan(name, shape=shape, target=target, **asked) for target in targets]
    return plans


def _one(plan: DrillPlan, out: Path, console: Console, interrupts: Interrupts) -> dict[str, Any]:
    def say(text: str) -> None:
        console.print(f"{plan.label}: {text}", markup=False, soft_wrap=True)

    keep = out.absolute() / plan.label.replace(" ", "-")
    keep.mkdir(parents=True, exist_ok=True)
    say(f"begins; what is left of it will be in {keep}")
    result = run_drill(plan, keep, say, interrupts.held)
    draw(keep, result)
    shown = {key: value for key, value in result.items() if key != "verdict"} | {
        "picture": str(keep / PNG),
        "report": str(keep / PAGE),
    }
    (keep / RESULT).write_bytes(orjson.dumps(shown, default=str))
    say("passed" if result["passed"] else "FAILED")
    return shown


def _render(console: Console, results: Sequence[dict[str, Any]]) -> None:
    columns = ("#acknowledged", "#lost", "#doubled", "#no service", "#worst lag", "#caught up", "same bytes", "")
    made = table("drill", *columns)
    for result in results:
        if "skipped" in result:
            add_row(made, result["drill"], *[""] * (len(columns) - 1), f"skipped: {result['skipped']}")
            continue
        add_row(
            made,
            result["drill"],
            f"{result['acknowledged']:,}",
            result["lost"],
            result["doubled"],
            f"{result['without_service_s']:.2f} s",
            sized(result["worst_lag_bytes"]),
            "" if result["catch_up_s"] is None else f"{result['catch_up_s']:.2f} s",
            sized(result["compared_bytes"]) if result["identical"] else "NO",
            "passed" if result["passed"] else "FAILED",
        )
    console.print(made)
    for result in results:
        for fault in result.get("faults", ()):
            console.print(f"{result['drill']}: {fault}", markup=False)
        if "report" in result:
            console.print(f"{result['drill']}: {result['report']}", markup=False)
            kept = Path(result["report"]).parent
            if not result["passed"] and any(kept.glob("node*")):
                said = f"{result['drill']}: {end_of_logs(str(kept))} shows what its nodes did"
                console.print(said, markup=False, soft_wrap=True)
