"""`towline demo`: real events through a real master and slave, read back and compared. The work is in `demo_run`."""

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, door


def demo(
    store: Annotated[
        Path | None,
        typer.Option("--store", file_okay=False, help="Keep both stores here; a temporary directory without it."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send only so many of the 336,776 flights.")] = None,
    as_json: Json = False,
) -> int:
    """Start a master and a slave, send 336,776 flights, read all of them back from the slave, and compare.

    Acknowledged means on both disks (SYNC_FLUSH, SYNC_MASTER). The last line is one JSON object; the exit status is 0
    only if nothing was lost or doubled and both CommitLogs are the same bytes.
    """
    status: int = door("cli.demo_run", "server").run(store, limit, as_json)
    return status
