"""`towline doctor`: what of this machine a node would miss, and what to do about it."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import load_module
from .options import Json


def doctor(
    store: Annotated[
        Path | None,
        typer.Option("--store", file_okay=False, help="Where the store is, or is to be: its disk is looked at."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Look at limits, memory, disk, clock and ports of this machine. The exit status is 1 where something is wrong."""
    status: int = load_module("towline.cli.doctor_checks", "server").examine(store or Path(), as_json)
    return status
