"""`towline version`."""

from .lazy import load_module
from .options import Json


def version(as_json: Json = False) -> None:
    """Print the version of Towline, of its wire protocol, and of the Python that runs it."""
    found = load_module("towline.cli.versions", "cli")
    show = load_module("towline.cli.output", "cli").show
    show(found.versions(), as_json, lambda console: console.print(found.sentence()))
