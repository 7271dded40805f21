"""`towline top`: what the nodes of a cluster do right now."""

from typing import Annotated

import typer

from .lazy import load_module
from .options import Endpoint, Json, LocalStore


def top(
    endpoint: Endpoint = None,
    store: LocalStore = None,
    interval: Annotated[float, typer.Option(min=0.2, max=60.0, help="Seconds between two looks.")] = 1.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="End after so many looks, and not at Ctrl-C.")] = None,
    as_json: Json = False,
) -> None:
    """Watch nodes: what they take and serve, who is behind, what they cost, what is wrong.

    `--endpoint` names one node, several with commas, or a cluster (`cluster:FILE`). Without a terminal each look is
    printed below the one before, with `--json` as one document a line.
    """
    load_module("towline.cli.top_work", "cli").top(endpoint, store, interval, rounds, as_json)
