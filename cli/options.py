"""Options that many commands have. What they are for is loaded later: `--help` needs their words alone."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, errors too.")]
StoreDir = Annotated[Path, typer.Option("--store", help="Store directory of the node.", file_okay=False)]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        help="Address of the node: its listen_port, as tcp://HOST:PORT or tls://HOST:PORT?ca=FILE, or the socket of a "
        "process as ipc:///PATH; those of several nodes with commas, but for status, stats and config; for put, get "
        "and group also cluster:PATH of a cluster file.",
    ),
]
LocalStore = Annotated[
    Path | None, typer.Option("--store", file_okay=False, help="Store directory of a node that runs on this machine.")
]
