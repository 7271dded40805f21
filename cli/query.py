"""`towline query`: look messages up by key, unique key, message id, place or time."""

from datetime import datetime
from typing import Annotated

import typer

from towline.client.admin import AdminClient
from towline.client.message import ReceivedMessage

from .endpoints import Endpoint, LocalStore, endpoint_of
from .messages import describe, print_messages
from .output import Json, show


def query(
    topic: Annotated[str | None, typer.Option(help="Topic; needed with --key, --unique-key and --time.")] = None,
    key: Annotated[str | None, typer.Option(help="One of the message's keys.")] = None,
    unique_key: Annotated[str | None, typer.Option(help="The key the producer made.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Message id: store host and offset, in hex.")] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Byte of the CommitLog at which the message begins.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="TIME", help="First messages stored then or later; as 2026-01-31T12:00.")
    ] = None,
    count: Annotated[int, typer.Option("--max", min=1, help="Messages at most.")] = 32,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Look messages up. Keys are found as soon as they are dispatched, on the master and on its slaves."""
    if sum(asked is not None for asked in (key, unique_key, id_, offset, time)) != 1:
        raise typer.BadParameter("give one of --key, --unique-key, --id, --offset and --time")
    if topic is None and id_ is None and offset is None:
        raise typer.BadParameter("--key, --unique-key and --time need --topic")
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline query") as admin:
        found: list[ReceivedMessage | None] = []
        if id_ is not None:
            found.append(admin.by_id(id_))
        elif offset is not None:
            found.append(admin.by_offset(offset))
        elif key is not None:
            found += admin.by_key(topic or "", key, max_count=count)
        elif unique_key is not None:
            found += admin.by_unique_key(topic or "", unique_key)
        else:
            found += admin.by_time(topic or "", _time(time or ""), max_count=count)
        described = [describe(message) for message in found if message is not None]
    show({"count": len(described), "messages": described}, as_json, lambda console: print_messages(console, described))


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"--time {text} is not a time as 2026-01-31T12:00") from None
