"""`towline stats`: what a node takes and serves, in all and by topic and queue."""

from typing import Annotated

import typer

from .lazy import load_module
from .options import Endpoint, Json, LocalStore

ShownTopic = Annotated[str | None, typer.Option("--topic", help="Show this topic's queues, not the busiest topics.")]


def stats(
    endpoint: Endpoint = None,
    store: LocalStore = None,
    topic: ShownTopic = None,
    interval: Annotated[
        float, typer.Option(min=0.05, help="Seconds over which rates are taken; 10 at most with --endpoint.")
    ] = 1.0,
    top: Annotated[int, typer.Option(min=1, help="Show so many topics.")] = 10,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C, one report for each interval.")] = False,
    as_json: Json = False,
) -> None:
    """Show how much a node takes and serves, how long puts take, and why puts were refused.

    Everything is counted since the node was started; a process of it that starts again goes on counting.
    """
    load_module("towline.cli.stats_work", "cli").stats(endpoint, store, topic, interval, top, watch, as_json)
