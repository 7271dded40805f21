"""`towline settings`: every key a node knows, and the values it would run with. The work is in `settings_work`."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Show the settings of a node.")


@app.command("keys")
def keys(
    match: Annotated[str, typer.Argument(help="Only keys that contain this.")] = "",
    as_json: Json = False,
) -> None:
    """List every setting with its default, its unit and what it means."""
    load_module("towline.cli.settings_work", "server").keys(match, as_json)


@app.command("show")
def show_settings(
    config: Annotated[
        Path | None, typer.Option("--config", exists=True, dir_okay=False, help="TOML file, or a real broker.conf.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also the keys that have their default.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a node would run with, by a file and flags. `towline config get` shows what one runs with."""
    load_module("towline.cli.settings_work", "server").show_settings(config, settings or [], every, as_json)
