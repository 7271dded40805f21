"""What the work of every command has in common: two forms of a result, and errors with their remedy."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from towline.errors import TowlineError

FAILED: Final = 1
MISUSED: Final = 2
SKIPPED: Final = 3  # nothing failed, and not everything could be done
PIPE_WIDTH: Final = 200


def people() -> Console:
    """For results read by people; wide when they go into a file or a pipe."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def progress_console() -> Console:
    """For progress bars and remarks: never on standard output, which may be piped."""
    return Console(file=sys.stderr, highlight=False)


def show(result: Any, as_json: bool, render: Callable[[Console], None]) -> None:
    """The result of a command, in one of its two forms."""
    if as_json:
        write_json(result)
    else:
        render(people())


def write_json(document: Any) -> None:
    """One line on standard output; bytes become text where they are UTF-8, hex elsewhere."""
    sys.stdout.write(orjson.dumps(document, default=_plain).decode() + "\n")
    sys.stdout.flush()


def show_error(error: str, sentence: str, remedy: str, as_json: bool) -> None:
    sys.stderr.write(f"towline: {sentence}; {remedy}\n")
    if as_json:
        write_json({"error": error, "sentence": sentence, "remedy": remedy})


def remedy_of(error: TowlineError) -> str:
    """What to do about it, and where there is more: the notes of who raised it."""
    return "; ".join([error.advice, *getattr(error, "__notes__", ())])


def table(*columns: str) -> Table:
    """Columns whose name begins with # hold numbers and stand to the right."""
    made = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left")
    return made


def add_row(made: Table, *values: object) -> None:
    """Values as they are: square brackets in them are no markup."""
    made.add_row(*(Text(str(value)) for value in values))


def print_machine(console: Console, result: dict[str, Any]) -> None:
    """The last line of a benchmark: the machine it ran on, and how long it took."""
    machine = result["machine"]
    console.print(f"{machine['cpus']} CPUs, load {machine['load_before']:.1f} before; {result['seconds']:.0f} s")


def sized(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not for JSON")
