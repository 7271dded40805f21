"""Does the work of `towline settings`."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from towline.runtime.settings import Settings, read_settings
from towline.runtime.settings_model import GROUPS, camel, facts_of

from .config_work import pairs
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
            "live": facts_of(group, name)["live"],
        }
        for group in GROUPS
        for name, field in group.model_fields.items()
    ]


def show_settings(config: Path | None, changes: Sequence[str], every: bool, as_json: bool) -> None:
    """Of a file and flags."""
    values = json.loads(read_settings(config, pairs(changes), os.environ).to_json())
    defaults = json.loads(Settings.model_validate({}).to_json())
    shown = {key: value for key, value in values.items() if every or value != defaults[key]}

    def render(console: Console) -> None:
        made = table("key", "value", "default")
        for key, value in shown.items():
            add_row(made, key, value, defaults[key])
        console.print(made if shown else "every key has its default")

    show({"settings": shown}, as_json, render)
