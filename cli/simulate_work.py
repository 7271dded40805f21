"""Does the work of `towline simulate`."""

import sys
import time
from collections import deque
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from towline.simulation.history import RULES
from towline.simulation.run import Outcome, run_seed, run_seeds

from .output import FAILED, progress_console, show


def run(first: int, seeds: int, processes: int | None, as_json: bool) -> int:
    """The exit status: FAILED for a broken invariant, after the first of which nothing more is tried."""
    began, total = time.monotonic(), dict.fromkeys(("seeds", "steps", "acknowledged", "epochs", "cuts", "lost"), 0)
    broken: Outcome | None = None
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("seeds", total=seeds)
        for outcome in run_seeds(first, seeds, processes):
            for name in total:
                total[name] += 1 if name == "seeds" else int(getattr(outcome, name))
            bar.advance(task)
            if not outcome.held:
                broken = outcome
                break
    result = total | {
        "first": first,
        "seconds": round(time.monotonic() - began, 3),
        "broken": None if broken is None else facts_of(broken),
    }
    show(result, as_json, lambda console: _render(console, result, broken))
    return FAILED if broken is not None else 0


def replay(seed: int, steps: int | None, as_json: bool) -> int:
    """One seed with everything that happens in it, or its last `steps` lines."""
    lines: deque[dict[str, Any]] = deque(maxlen=steps)

    def said(now_us: int, who: str, what: str) -> None:
        lines.append({"ms": now_us / 1000, "who": who, "what": what})

    outcome = run_seed(seed, said)
    result = facts_of(outcome) | {"trace": list(lines)}

    def render(console: Console) -> None:
        for line in lines:
            sys.stdout.write(f"{line['ms']:10.2f} ms  {line['who']:<16} {line['what']}\n")
        console.print(_verdict(outcome), markup=False)

    show(result, as_json, render)
    return 0 if outcome.held else FAILED


def facts_of(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"invariant": RULES.get(outcome.rule, "")}


def _verdict(outcome: Outcome) -> str:
    if outcome.held:
        return f"seed {outcome.seed}: every invariant holds after each of {outcome.steps} steps"
    when = f"seed {outcome.seed}, step {outcome.steps}, {outcome.at_ms} ms"
    return f"{when}: it is broken that {RULES[outcome.rule]}: {outcome.what}"


def _render(console: Console, result: dict[str, Any], broken: Outcome | None) -> None:
    done = f"{result['seeds']} seeds, {result['steps']:,} steps in {result['seconds']:.1f} s"
    what = f"{result['acknowledged']:,} acknowledgements, {result['epochs']:,} epochs, {result['cuts']:,} logs cut"
    console.print(f"{done}: {what}", markup=False)
    if broken is None:
        console.print("every invariant held", markup=False)
        return
    console.print(_verdict(broken), markup=False)
    console.print(f"replay it with `towline simulate --seed {broken.seed}`", markup=False)
