"""`towline config`: the settings that a running node works by, and changes of them without a restart."""

from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Endpoint, Json, LocalStore

app = group("Show and change the settings of a running node.")


@app.command("get")
def get(
    key: Annotated[str, typer.Argument(help="This setting alone.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Show what a node works by now, and which of it `towline config set` can change while it runs."""
    load_module("towline.cli.config_work", "cli").get(key, every, endpoint, store, as_json)


@app.command("set")
def set_(
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What is to hold; all of it or none.")],
    keep: Annotated[bool, typer.Option("--keep", help="Also when the node is started again.")] = False,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> int:
    """Change settings of a running node without a restart: they hold when this returns.

    Status 1: a process is in one long call, and takes them when it is through.
    """
    status: int = load_module("towline.cli.config_work", "cli").set_(changes, keep, endpoint, store, as_json)
    return status


@app.command("unset")
def unset(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", help="Settings.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every setting that was kept.")] = False,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> int:
    """Take back what `towline config set` changed, kept or not; with --store also of a node that is down.

    The settings are again what the node was started with, or would have been: now where they can change while it runs,
    and at its next start. Status 1: a process is in one long call, and takes them when it is through.
    """
    status: int = load_module("towline.cli.config_work", "cli").unset(keys or [], every, endpoint, store, as_json)
    return status
