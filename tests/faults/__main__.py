"""`python -m tests.faults`: every row of the fault matrix, on real processes under checked loads, with counts.

A row that failed, or that this machine cannot run, makes the exit status 1. build/faults has what each said, and the
result of a run that was broken off, which goes on there. `--record` keeps the result and writes docs/faults.md from it.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from peers.machine import machine_facts

from .page import PAGE, page
from .plan import Row
from .results import KEPT, RECORDED, SHORT, WHOLE, Outcome, Results, merged, outcomes_of, reached, write
from .rows import ROWS
from .running import Runner

PREFIX: Final = "tlf-"


def tell(line: str) -> None:
    print(line, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="The fault matrix, as it runs.")
    parser.add_argument("--rows", default="", metavar="F1,F7", help="these rows; all without it")
    parser.add_argument("--short", action="store_true", help="few repetitions of each")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begins no further row after so many")
    parser.add_argument("--fresh", action="store_true", help="runs these rows anew, whatever build/faults says")
    parser.add_argument("--record", action="store_true", help="keeps the result and writes docs/faults.md from it")
    return parser.parse_args()


def chosen(words: str) -> list[Row]:
    """Raises SystemExit for a word that is no row."""
    wanted = [word for word in words.replace(" ", "").upper().split(",") if word]
    if unknown := set(wanted) - {row.name for row in ROWS}:
        raise SystemExit(f"no row has this name: {', '.join(sorted(unknown))}; rows are F1 to F{len(ROWS)}")
    return [row for row in ROWS if row.name in wanted] if wanted else list(ROWS)


def run(rows: Sequence[Row], results: Results, runner: Runner, until: float) -> None:
    """Each row is kept when it has ended."""
    for row in rows:
        if results.has_passed(row.name):
            tell(f"{row.name:4} passed before: {row.what}")
            continue
        if time.monotonic() >= until:
            tell(f"{row.name:4} not begun, the time is over: {row.what}")
            continue
        tell(f"{row.name:4} {row.what} (load {os.getloadavg()[0]:.1f})")
        outcome = runner.run(row)
        results.add(outcome, machine_facts())
        tell(f"     {told(row, outcome)}")
        for line in (*outcome.failed, *(f"not run: {why}" for why in outcome.missing)):
            tell(f"       {line}")


def told(row: Row, outcome: Outcome) -> str:
    counted = {
        f"{row.counts}": outcome.injected,
        "acknowledged": outcome.acknowledged,
        "lost": outcome.lost,
        "given up": outcome.given_up,
        "doubled": outcome.doubled,
        "wrong bytes": outcome.wrong_bytes,
        "s without the service": outcome.outage_s,
    }
    shown = ", ".join(f"{name} {count:,}" for name, count in counted.items() if count is not None)
    return f"{outcome.verdict} in {outcome.seconds:.0f} s: {shown}"


def stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    asked = options()
    signal.signal(signal.SIGTERM, stop)
    rows = chosen(asked.rows)
    results = Results(KEPT, SHORT if asked.short else WHOLE, [row.name for row in rows] if asked.fresh else ())
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as scratch:
        runner = Runner(Path(scratch), whole=not asked.short)
        try:
            run(rows, results, runner, time.monotonic() + 60 * asked.minutes)
        finally:
            if asked.record:
                record = merged(json.loads(RECORDED.read_text(encoding="utf-8")), results.known)
                write(RECORDED, record)
                PAGE.write_text(page(record, ROWS), encoding="utf-8")
    outcomes = outcomes_of(results.known)
    verdicts = [outcomes[row.name].verdict if row.name in outcomes else "not run" for row in rows]
    tell("; ".join(f"{counts}: {number:,}" for counts, number in reached(ROWS, outcomes).items()))
    tell(", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts)))
    return 0 if set(verdicts) == {"passed"} else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("broken off: run it again, and it goes on with the row that was under way")
