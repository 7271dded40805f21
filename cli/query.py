"""`towline query`: search messages by key, unique key, message id, place or time."""

from typing import Annotated

import typer

from .lazy import load_module
from .options import Endpoint, Json, LocalStore


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
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="With a key: only messages stored then or later.")
    ] = None,
    end: Annotated[
        str | None, typer.Option(metavar="TIME", help="With a key or --time: only messages stored then or earlier.")
    ] = None,
    count: Annotated[int, typer.Option("--max", min=1, help="Messages at most; of a key the newest.")] = 32,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Look messages up. Keys are found as soon as they are dispatched, on the master and on its slaves."""
    load_module("towline.cli.query_work", "cli").query(
        topic, key, unique_key, id_, offset, time, begin, end, count, endpoint, store, as_json
    )
