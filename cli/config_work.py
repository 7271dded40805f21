"""Does the work of `towline config`."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from towline.errors import UnknownSetting

from .endpoints import ask_node, named_node
from .lazy import load_module
from .output import FAILED, add_row, show, table

_CHANGES = "towline.node.process.settings_changes"


def get(key: str, every: bool, endpoint: str | None, store: Path | None, as_json: bool) -> None:
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


def set_(changes: Sequence[str], keep: bool, endpoint: str | None, store: Path | None, as_json: bool) -> int:
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
        node = done["node"]
        text = f"node {node['broker_id']} of {node['broker_name']}, a {node['role']} on {node['store']}:"
        console.print(text, markup=False, soft_wrap=True)
        until = "now and after the next start" if done["kept"] else "until the node ends"
        for key, value in done["settings"].items():
            console.print(f"{key} is {value}, {until}", markup=False)
        for process in done["waiting"]:
            console.print(f"{process} is in one long call and takes it when that is over", markup=False)

    show(done, as_json, render)
    return FAILED if done["waiting"] else 0


def unset(keys: Sequence[str], every: bool, endpoint: str | None, store: Path | None, as_json: bool) -> int:
    if every == bool(keys):
        raise typer.BadParameter("give either names of settings or --all")
    endpoint, store = named_node(endpoint, store)
    done: dict[str, Any]
    if store is not None:
        done = load_module(_CHANGES, "server").forget_settings(store, keys)
    else:
        assert endpoint is not None
        with ask_node(endpoint) as admin:
            done = admin.forget_settings(*keys)

    def render(console: Console) -> None:
        for key, value in done["forgotten"].items():
            console.print(f"{key} = {value} is not kept any more", markup=False)
        for key in () if done["forgotten"] or every else keys:
            console.print(f"{key} was not kept", markup=False)
        for key, value in done.get("settings", {}).items():
            after = done["next"][key]
            then = "now and after the next start" if after == value else f"until the node ends, then {after}"
            console.print(f"{key} is {value}, {then}", markup=False)
        for process in done.get("waiting", ()):
            console.print(f"{process} is in one long call and takes it when that is over", markup=False)

    show(done, as_json, render)
    return FAILED if done.get("waiting") else 0


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
