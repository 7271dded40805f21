"""`towline config`: the settings that a running node works by, and changes of them without a restart."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from towline.errors import UnknownSetting

from .endpoints import Endpoint, LocalStore, ask_node, named_node
from .output import FAILED, Json, add_row, load_module, show, table

app = typer.Typer(help="Show and change the settings of a running node.", no_args_is_help=True)
_CHANGES = "towline.node.process.settings_changes"


@app.command("get")
def get(
    key: Annotated[str, typer.Argument(help="This setting alone.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Show what a node works by now, and which of it `towline config set` can change while it runs."""
    endpoint, store = named_node(endpoint, store)
    rows = _settings(endpoint, store)
    if key:
        shown = [row for row in rows if row["key"] == key]
        if not shown:
            near = difflib.get_close_matches(key, [row["key"] for row in rows], 1)
            raise UnknownSetting(key, "the node", near[0] if near else "")
    else:
        shown = [row for row in rows if every or row["kept"] or row["value"] != row["default"]]

    def render(console: Console) -> None:
        made = table("key", "value", "default", "changes")
        for row in shown:
            how = "at run time" if row["live"] else "at a start"
            add_row(made, row["key"], row["value"], row["default"], how + ", was kept" * row["kept"])
        console.print(made if shown else "every setting has its default")

    show({"settings": shown}, as_json, render)


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
    wanted = pairs(changes)
    endpoint, store = named_node(endpoint, store)
    done: dict[str, Any]
    if store is not None:
        done = load_module(_CHANGES, "server").change_settings(store, wanted, keep=keep)
    else:
        assert endpoint is not None
        with ask_node(endpoint) as admin:
            done = admin.configure_node(keep=keep, **wanted)

    def render(console: Console) -> None:
        until = "now and after the next start" if done["kept"] else "until the node ends"
        for key, value in done["settings"].items():
            console.print(f"{key} is {value}, {until}", markup=False)
        for process in done["waiting"]:
            console.print(f"{process} is in one long call and takes it when that is over", markup=False)

    show(done, as_json, render)
    return FAILED if done["waiting"] else 0


def pairs(changes: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE -> key: value. Raises BadParameter."""
    split = [change.partition("=") for change in changes]
    wrong = [change for change, (key, mark, _) in zip(changes, split, strict=True) if not key.strip() or not mark]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in split}


def _settings(endpoint: str | None, store: Path | None) -> list[dict[str, Any]]:
    if store is not None:
        rows: list[dict[str, Any]] = load_module(_CHANGES, "server").read_node_settings(store)
        return rows
    assert endpoint is not None
    with ask_node(endpoint) as admin:
        return admin.node_settings()
