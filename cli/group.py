"""`towline group`: the consumer groups of a node."""

from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Endpoint, Json, LocalStore

app = group("List, describe, configure and delete consumer groups, set their offsets.")
Group = Annotated[str, typer.Argument(help="Consumer group.")]


@app.command("list")
def list_groups(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """List the groups of a node, or of all masters of a cluster."""
    load_module("towline.cli.group_work", "cli").list_groups(endpoint, store, as_json)


@app.command("describe")
def describe(group: Group, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Show a group's members, settings and warnings, and for each queue where it stands and who reads it."""
    load_module("towline.cli.group_work", "cli").describe(group, endpoint, store, as_json)


@app.command("reset-offset")
def reset_offset(
    group: Group,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="first|last|OFFSET|TIME", help="Where it goes on; TIME as 2026-01-31T12:00."),
    ],
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue; an OFFSET needs it.")] = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Set where a group goes on. Its consumers follow at once; what they have in hand may come again."""
    load_module("towline.cli.group_work", "cli").reset_offset(group, topic, to, queue, endpoint, store, as_json)


@app.command("configure")
def configure(
    group: Group,
    consume: Annotated[
        bool | None, typer.Option("--consume-enable/--no-consume-enable", help="Whether its consumers read at all.")
    ] = None,
    broadcast: Annotated[
        bool | None,
        typer.Option("--consume-broadcast-enable/--no-consume-broadcast-enable", help="Whether they may broadcast."),
    ] = None,
    retry_max: Annotated[
        int | None, typer.Option(min=0, help="So often a message comes again before it is a dead letter.")
    ] = None,
    retry_queues: Annotated[int | None, typer.Option(min=1, help="Queues that a new retry topic gets.")] = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Set what a group may do; it is made where there is none. Its consumers hear of it at once."""
    load_module("towline.cli.group_work", "cli").configure(
        group, consume, broadcast, retry_max, retry_queues, endpoint, store, as_json
    )


@app.command("delete")
def delete(group: Group, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Forget a group that has no consumers: its offsets and settings. Topics of its retries and dead letters stay."""
    load_module("towline.cli.group_work", "cli").delete(group, endpoint, store, as_json)
