"""`towline put`: send messages. `towline cancel`: take one back that waits for its time."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import load_module
from .options import Endpoint, Json, LocalStore


def put(
    topic: Annotated[str, typer.Argument(help="Topic; created if the node allows it.")],
    body: Annotated[str | None, typer.Argument(help="Body of one message, as text.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="Send a file as one message.")
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option(
            "--lines", dir_okay=False, allow_dash=True, help="Send each line of a file, - for standard input."
        ),
    ] = None,
    tags: Annotated[str | None, typer.Option(help="Tag of the message.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="Key to look it up by; may be repeated.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Queue; chosen in turn without it.")] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Messages of one sharding key share a queue.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", help="With --lines: what stands before it is the key, by which queues are chosen."
        ),
    ] = None,
    delay_level: Annotated[
        int | None,
        typer.Option(min=1, help="Deliver after this level's delay: 1 is 1 s, 18 is 2 h, unless the node has others."),
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Deliver then: 2026-01-31T12:00, or from now on +90s, +15m, +2h, +3d."),
    ] = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> int:
    """Send one message, or every line of a file, and wait for the acknowledgements."""
    status: int = load_module("towline.cli.put_work", "cli").put(
        topic, body, file, lines, tags, key, queue, sharding_key, property_, key_separator, delay_level, deliver_at,
        endpoint, store, as_json,
    )  # fmt: skip
    return status


def cancel(
    handle: Annotated[str, typer.Argument(help="What `towline put --deliver-at`, or a result in Python, gave.")],
    broker_name: Annotated[str | None, typer.Option(help="Of the group that has it, where there are several.")] = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> int:
    """Take back a message that waits for its time, at least 50 ms before that."""
    status: int = load_module("towline.cli.put_work", "cli").cancel(handle, broker_name, endpoint, store, as_json)
    return status
