"""`towline version`."""

from .lazy import load_module
from .options import Json


def version(as_json: Json = False) -> None:
    """Print the version of Towline, of its wire protocol, and of the Python that runs it."""
    load_module("towline.cli.version_work", "cli").show_version(as_json)
