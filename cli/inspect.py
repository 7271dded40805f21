"""`towline inspect`: what the files of a store hold, byte by byte, of a Towline node or of a real broker."""

from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json, StoreDir

app = group("Show what the files of a store hold.")


@app.command("record")
def record_(
    store: StoreDir,
    offset: Annotated[int, typer.Option(min=0, help="Physical offset: a byte of the CommitLog.")],
    as_json: Json = False,
) -> None:
    """Decode the record that begins at a physical offset."""
    load_module("towline.cli.inspect_work", "cli").record_(store, offset, as_json)


@app.command("queue")
def queue(
    store: StoreDir,
    topic: Annotated[str | None, typer.Option(help="Topic; without it the queues are listed.")] = None,
    queue_id: Annotated[int, typer.Option("--queue", min=0, help="Queue of the topic.")] = 0,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="First entry; the queue's first without it.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Entries at most.")] = 20,
    as_json: Json = False,
) -> None:
    """List the entries of a ConsumeQueue, or the queues of the store."""
    load_module("towline.cli.inspect_work", "cli").queue(store, topic, queue_id, start, count, as_json)


@app.command("index")
def index(
    store: StoreDir,
    topic: Annotated[str, typer.Option(help="Topic of the key to look up.")] = "",
    key: Annotated[str, typer.Option(help="Key or unique key; its chains are shown.")] = "",
    slots: Annotated[int, typer.Option(min=0, help="Slots of a file; 0 takes the settings'.")] = 0,
    indexes: Annotated[int, typer.Option(min=0, help="Entries of a file; 0 takes the settings'.")] = 0,
    as_json: Json = False,
) -> None:
    """Show the headers of the IndexFiles, and the chains of a key."""
    load_module("towline.cli.inspect_work", "cli").index(store, topic, key, slots, indexes, as_json)


@app.command("checkpoint")
def checkpoint(store: StoreDir, as_json: Json = False) -> None:
    """Show up to which store time each kind of file was flushed."""
    load_module("towline.cli.inspect_work", "cli").checkpoint(store, as_json)


@app.command("durable")
def durable(store: StoreDir, as_json: Json = False) -> None:
    """Show how far the log and its queues are surely on the disk."""
    load_module("towline.cli.inspect_work", "cli").durable(store, as_json)


@app.command("diverged")
def diverged(
    store: StoreDir,
    file: Annotated[str | None, typer.Option(help="A file of diverged/; its records are shown.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="A record of that file in full, by its log offset.")] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="Log offset of the first record; the file's first without it.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Records at most.")] = 20,
    as_json: Json = False,
) -> None:
    """List what was cut off the log and kept, or the records of one of these files."""
    load_module("towline.cli.inspect_work", "cli").diverged(store, file, offset, start, count, as_json)


@app.command("layout")
def layout(as_json: Json = False) -> None:
    """Print every layout of bytes on disk and on the wire with its derived sizes."""
    load_module("towline.cli.inspect_work", "cli").layout(as_json)
