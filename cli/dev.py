"""`towline dev`: a node to try things with, which leaves nothing behind."""

from typing import Annotated

import typer

from .lazy import load_module
from .options import Json


def dev(
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="TCP port of RocketMQ's clients and ours; without it the node's settings."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run a throw-away node until Ctrl-C: small files, in a directory of its own that goes with it."""
    status: int = load_module("towline.cli.dev_node", "server").run(port, settings or [], as_json)
    return status
