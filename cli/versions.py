"""What runs here: Towline, its wire protocol, Python, packages."""

import platform
import re
from importlib.metadata import PackageNotFoundError, requires
from importlib.metadata import version as installed
from typing import Any

from towline.format.wire.frames import VERSION_MAX, VERSION_MIN


def versions() -> dict[str, Any]:
    number = _installed("towline") or "not installed"
    return {"version": number, "protocol": [VERSION_MIN, VERSION_MAX], "python": platform.python_version()}


def sentence() -> str:
    """The same for people."""
    found = versions()
    low, high = found["protocol"]
    return f"towline {found['version']}, protocol {low} to {high}, Python {found['python']}"


def packages() -> dict[str, str]:
    """The version of each package that Towline or an extra asks for and that is installed."""
    asked = [re.split(r"[^\w.-]", each)[0] for each in _asked()]
    found = {name: _installed(name) for name in sorted(set(asked))}
    return {name: number for name, number in found.items() if number}


def _asked() -> list[str]:
    try:
        return requires("towline") or []
    except PackageNotFoundError:
        return []


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return ""
