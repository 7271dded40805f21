"""The log of a process of a node, as the node's settings want it."""

import json
import logging
from pathlib import Path

from towline.places import Store
from towline.runtime.logging import adjust, configure
from towline.runtime.settings import Settings
from towline.runtime.settings_model import LogFormat


def begin_log(label: str, store: Path, log_file: Path | None) -> logging.Logger:
    """The logger of a process that begins: at INFO, and as text where the settings of the node cannot be read."""
    log = configure(label, log_file)
    try:
        said = json.loads(Store(store).settings.read_bytes()).get("log_format")
    except (OSError, ValueError):
        return log
    adjust("INFO", json=said == LogFormat.JSON.value)
    return log


def log_by(settings: Settings) -> None:
    """This process logs by these settings from now on."""
    adjust(settings.log_level.value, json=settings.log_format is LogFormat.JSON)
