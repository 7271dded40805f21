"""Does the work of `towline settings`."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from towline.errors import NodeNotRunning
from towline.places import Store
from towline.runtime.settings import Settings, read_settings
from towline.runtime.settings_model import GROUPS, camel, facts_of

from .output import add_row, show, table


def keys(match: str, as_json: bool) -> None:
    """Every key whose name contains `match`, by group."""
    found = [facts for facts in _every_key() if match.lower() in facts["key"]]

    def render(console: Console) -> None:
        made = table("key", "default", "meaning")
        for facts in found:
            add_row(made, facts["key"], facts["default"], facts["meaning"])
        console.print(made)

    show({"keys": found}, as_json, render)


def _every_key() -> list[dict[str, Any]]:
    defaults = json.loads(Settings.model_validate({}).to_json())
    return [
        {
            "key": name,
            "group": group.title,
            "default": defaults[name],
            "unit": facts_of(group, name)["unit"],
            "rocketmq": facts_of(group, name)["rocketmq"] or camel(name),
            "meaning": field.description,
        }
        for group in GROUPS
        for name, field in group.model_fields.items()
    ]


def show_settings(config: Path | None, changes: Sequence[str], store: Path | None, every: bool, as_json: bool) -> None:
    """Of the store's last node, or of a file and flags."""
    if store is not None and (config is not None or changes):
        raise typer.BadParameter("--store shows a node's settings as they are, without --config and --set")
    settings = _of_store(store) if store is not None else read_settings(config, _pairs(changes), os.environ)
    values = json.loads(settings.to_json())
    defaults = json.loads(Settings.model_validate({}).to_json())
    shown = {key: value for key, value in values.items() if every or value != defaults[key]}

    def render(console: Console) -> None:
        made = table("key", "value", "default")
        for key, value in shown.items():
            add_row(made, key, value, defaults[key])
        console.print(made if shown else "every key has its default")

    show({"settings": shown}, as_json, render)


def _of_store(store: Path) -> Settings:
    path = Store(store.resolve()).settings
    if not path.exists():
        raise NodeNotRunning(str(store))
    return Settings.from_json(path.read_text(encoding="utf-8"))


def _pairs(changes: Sequence[str]) -> dict[str, str]:
    split = [change.partition("=") for change in changes]
    wrong = [change for change, (key, mark, _) in zip(changes, split, strict=True) if not key or not mark]
    if wrong:
        raise typer.BadParameter(f"--set {wrong[0]} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in split}
