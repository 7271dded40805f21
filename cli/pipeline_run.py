"""Does the work of `towline pipeline NAME`: runs the job with a progress bar, then shows its table or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from towline.pipeline.progress import Progress
from towline.pipeline.running import Outcome, execute

from .output import add_row, progress_console, show, table


def run(
    name: str,
    values: Mapping[str, Any],
    master: str,
    conf: Sequence[str],
    report: Path | None,
    rows: int,
    as_json: bool,
) -> int:
    """The exit status of the job."""
    with _progress() as progress:
        outcome = execute(name, values, master=master, conf=conf, report=report, progress=progress)
    document = outcome.document() | ({"report": report} if report is not None else {})
    show(document, as_json, lambda console: _render(console, outcome, rows, report))
    return outcome.result.status


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = progress_console()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        steps = {"": bar.add_task("starting", total=None)}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in steps:
                for step in steps.values():
                    bar.update(step, visible=False)
                steps[what] = bar.add_task(what)
            bar.update(steps[what], completed=done, total=total)

        yield Progress(report)


def _render(console: Console, outcome: Outcome, rows: int, report: Path | None) -> None:
    columns = outcome.job.columns
    made = table(*(f"#{each.name}" if each.type in ("int", "bigint", "double") else each.name for each in columns))
    for row in outcome.result.rows[:rows]:
        add_row(made, *map(_cell, row))
    console.print(made)
    more = len(outcome.result.rows) - rows
    if more > 0:
        console.print(f"and {more:,} more rows; --show {len(outcome.result.rows)} or --json has them all")
    console.print(f"{outcome.result.sentence} ({outcome.seconds:.1f} s)", markup=False, soft_wrap=True)
    if report is not None:
        console.print(f"report: {report}", markup=False)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return value.isoformat(sep=" ", timespec="milliseconds") if isinstance(value, datetime) else str(value)
