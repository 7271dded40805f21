"""Does the work of `towline version`."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from towline.format.wire.frames import VERSION_MAX, VERSION_MIN

from .output import show


def show_version(as_json: bool) -> None:
    """Of Towline, its wire protocol and Python."""
    try:
        number = installed("towline")
    except PackageNotFoundError:
        number = "not installed"
    result = {"version": number, "protocol": [VERSION_MIN, VERSION_MAX], "python": platform.python_version()}
    text = f"towline {number}, protocol {VERSION_MIN} to {VERSION_MAX}, Python {platform.python_version()}"
    show(result, as_json, lambda console: console.print(text))
