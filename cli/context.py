"""`towline context`: names for nodes, so that --endpoint or --store need not be typed each time."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Name nodes once, for all commands that ask a node.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]


@app.command("add")
def add(
    name: Name,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="As commands take it; cluster:PATH too.")] = None,
    store: Annotated[Path | None, typer.Option("--store", file_okay=False, help="Store directory of a node.")] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", dir_okay=False, help="Key file for nodes that want one (TOWLINE_KEYS).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a context, or replace the one of this name, and use it from now on."""
    load_module("towline.cli.context_work", "cli").add(name, endpoint, store, keys, as_json)


@app.command("use")
def use(name: Name, as_json: Json = False) -> None:
    """Use a context from now on."""
    load_module("towline.cli.context_work", "cli").use(name, as_json)


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """List the contexts, and which one is used."""
    load_module("towline.cli.context_work", "cli").list_all(as_json)


@app.command("remove")
def remove(name: Name, as_json: Json = False) -> None:
    """Forget a context; where it was used, none is from now on."""
    load_module("towline.cli.context_work", "cli").remove(name, as_json)
