"""`towline debug`: what a bug report needs of a node."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json, StoreDir

app = group("Collect what a bug report needs.")


@app.callback()
def debug() -> None:
    """Collect what a bug report needs."""


@app.command("bundle")
def bundle(
    store: StoreDir,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", dir_okay=False, metavar="FILE", help="The archive; towline-debug-TIME.tar.gz without it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack status, settings, logs, the recovery report and the doctor's findings of a node, which may be down.

    Secrets are taken out: keys, passwords in addresses, what is named like one. No message is in it; addresses, paths
    and names of topics and groups are.
    """
    load_module("towline.cli.debug_work", "server").bundle(store, output, as_json)
