"""`towline demo`: real events through a real master and slave, read back and compared. The work is in `demo_run`."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import load_module
from .options import Json

OUT = Path("build/demo")


def demo(
    store: Annotated[
        Path | None,
        typer.Option("--store", file_okay=False, help="Keep both stores here; a temporary directory without it."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send only so many of the 336,776 flights.")] = None,
    out: Annotated[Path, typer.Option(file_okay=False, help="Where the picture of the Spark step goes.")] = OUT,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Read the slave's store with Spark, too.")] = True,
    as_json: Json = False,
) -> int:
    """Start a master and a slave, send 336,776 flights, read all of them back from the slave, and compare.

    Acknowledged means on both disks (SYNC_FLUSH, SYNC_MASTER). The last line is one JSON object; the exit status is 0
    only if nothing was lost or doubled and both CommitLogs are the same bytes. Where Java 17 and the extra `spark` are
    there, Spark then reads the slave's store while it runs, draws delays, and verifies the master against the slave.
    """
    status: int = load_module("towline.cli.demo_run", "demo").run(store, limit, out if spark else None, as_json)
    return status
