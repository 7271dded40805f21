"""Does the work of `towline bench peers` by `peers`, a package of the repository alone."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.status import Status

from towline.errors import Remedy, TowlineError
from towline.start import home

from .interrupts import Interrupts
from .lazy import load_module
from .output import add_row, progress_console, show, table

EXTRA: Final = "drill"  # has what draws pictures
RESULT: Final = "peers.json"


def bench_peers(
    full: bool, systems: str, works: str, rounds: int, seconds: float, minutes: float, output: Path, resume: bool,
    as_json: bool,
) -> int:  # fmt: skip
    harness, pictures, made = of_repository("harness"), of_repository("pictures"), of_repository("works")
    extent = made.FULL if full else made.QUICK
    extent = replace(extent, rounds=rounds, fewer={}) if rounds else extent
    groups = made.groups(replace(extent, seconds=seconds) if seconds else extent)
    tasks = [task for name in chosen("works", works, groups) for task in groups[name]]
    known = of_repository("systems").SYSTEMS
    within_s = 60 * minutes if minutes else math.inf
    plan = made.Comparison(tuple(chosen("systems", systems, known)), tuple(tasks), within_s=within_s)
    console, keep = progress_console(), keeper(output, RESULT)
    with Interrupts(), console.status("measuring") as status:
        result = harness.measure(plan, noter(console, status), keep, output, resume=resume)
        keep(result)
        files = [output / RESULT, *pictures.draw(output, result)]
    show(result, as_json, lambda console: render_peers(console, result, files))
    return 0


def noter(console: Console, status: Status) -> Callable[[str, float], None]:
    """Says what is being done and how many seconds are left: on a line of the terminal, or line after line."""

    def note(text: str, left_s: float) -> None:
        said = f"{text}; about {minutes_of(left_s)} left"
        if console.is_terminal:
            status.update(said)
        else:
            console.print(said, markup=False, soft_wrap=True)

    return note


def keeper(output: Path, name: str) -> Callable[[dict[str, Any]], None]:
    """Writes a result to that name in `output`, which is made."""

    def keep(result: dict[str, Any]) -> None:
        output.mkdir(parents=True, exist_ok=True)
        fresh = output / f"{name}.new"
        fresh.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        fresh.replace(output / name)

    return keep


class RepositoryOnly(TowlineError, remedy=Remedy.FIX_CALL):
    """The command needs a package that no wheel contains."""

    template = "the comparison with other servers is not in the installed package, it is in the repository alone"
    advice = "clone Towline's repository, run `make .venv/ready` there, then `.venv/bin/towline bench peers`"


def of_repository(name: str, extra: str = EXTRA) -> Any:
    """A module of `peers`. Raises RepositoryOnly where Towline was installed from a wheel, MissingPackage."""
    root = home()
    if not (root / "peers" / "harness.py").is_file():
        raise RepositoryOnly()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return load_module(f"peers.{name}", extra)


def render_peers(console: Console, result: dict[str, Any], files: list[Path]) -> None:
    for section in of_repository("report").sections(result):
        made = table(*section.columns)
        for row in section.rows:
            add_row(made, *row)
        console.print(f"\n{section.title}", style="bold")
        console.print(made)
    machine = result["machine"]
    console.print(
        f"\n{machine['cpus']} CPUs, load {machine['load']:.1f} before; medians of up to {result['rounds']} rounds; "
        f"{minutes_of(result['seconds'])}"
    )
    for file in files:
        console.print(str(file), soft_wrap=True)


def chosen(what: str, asked: str, known: Any) -> list[str]:
    """The names that were asked for, in the order they are known. Raises typer.BadParameter."""
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of the {what}: {', '.join(known)}")
    return [name for name in known if not names or name in names]


def minutes_of(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
