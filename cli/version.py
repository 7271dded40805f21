"""`towline version`."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from towline.format.wire.frames import VERSION_MAX, VERSION_MIN

from .output import Json, show


def version(as_json: Json = False) -> None:
    """Print the version of Towline, of its wire protocol, and of the Python that runs it."""
    try:
        number = installed("towline")
    except PackageNotFoundError:
        number = "not installed"
    result = {"version": number, "protocol": [VERSION_MIN, VERSION_MAX], "python": platform.python_version()}
    text = f"towline {number}, protocol {VERSION_MIN} to {VERSION_MAX}, Python {platform.python_version()}"
    show(result, as_json, lambda console: console.print(text))
