"""`towline topic`: the topics of a node."""

from enum import StrEnum
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Endpoint, Json, LocalStore

app = group("List, describe, create, change and delete topics.")


Retention = Annotated[
    str | None,
    typer.Option(
        help="How long its messages are read, as 3d, 12h, 30m or 90s; `none`: as long as the log has them. Longer than "
        "file_reserved_time, it keeps the whole log for longer, as long as the disk has room."
    ),
]
RetentionBytes = Annotated[
    str | None,
    typer.Option(
        help="How many bytes of messages are read of each of its queues, as 10GB or 512MB (units of 1024); `none`: as "
        "many as the log has."
    ),
]


class Permission(StrEnum):
    """What clients may do with a topic."""

    RW = "rw"
    R = "r"
    W = "w"
    NONE = "none"


@app.command("list")
def list_topics(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """List the topics of a node."""
    load_module("towline.cli.topic_work", "cli").list_topics(endpoint, store, as_json)


@app.command("describe")
def describe(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Show a topic's queues and how many messages each holds."""
    load_module("towline.cli.topic_work", "cli").describe(topic, endpoint, store, as_json)


@app.command("create")
def create(
    topic: Annotated[
        str, typer.Argument(help="Name: letters, digits, %, |, _ and -; dots where dots_in_topic_names is set.")
    ],
    queues: Annotated[int, typer.Option(min=1, help="Queues to write to and read from.")] = 4,
    read_queues: Annotated[int | None, typer.Option(min=1, help="Queues to read from, if not as many.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="Queues to write to, if not as many.")] = None,
    perm: Annotated[Permission, typer.Option(help="What clients may: read, write, both or nothing.")] = Permission.RW,
    inherit: Annotated[
        bool, typer.Option("--inherit", help="Topics that the node makes by itself may copy this one's queues.")
    ] = False,
    order: Annotated[bool, typer.Option("--order", help="Mark the topic as an ordered one.")] = False,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Create a topic on a master; its slaves follow."""
    kept = retention, retention_bytes
    load_module("towline.cli.topic_work", "cli").create(
        topic, queues, read_queues, write_queues, perm.value, inherit, order, kept, endpoint, store, as_json
    )


@app.command("alter")
def alter(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    read_queues: Annotated[int | None, typer.Option(min=1, help="Queues to read from.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="Queues to write to.")] = None,
    perm: Annotated[Permission | None, typer.Option(help="What clients may: read, write, both or nothing.")] = None,
    inherit: Annotated[
        bool | None,
        typer.Option("--inherit/--no-inherit", help="Whether topics that the node makes by itself may take after it."),
    ] = None,
    order: Annotated[bool | None, typer.Option("--order/--no-order", help="Whether it is an ordered one.")] = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Change a topic on a master; its slaves follow.

    More queues: raise the read queues with, or before, the write queues. Fewer: lower the write queues, wait until the
    others are read to their end, then lower the read queues. What a shorter retention has cut is not read again by a
    longer one.
    """
    kept = retention, retention_bytes
    load_module("towline.cli.topic_work", "cli").alter(
        topic, read_queues, write_queues, perm and perm.value, inherit, order, kept, endpoint, store, as_json
    )


@app.command("delete")
def delete(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    yes: Annotated[bool, typer.Option("--yes", help="Say that all its messages may go.")] = False,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Delete a topic on a master: its messages cannot be read any more, here and on its slaves.

    The log keeps them until it is cleaned. A topic of the same name may be created again; its queues go on with their
    numbers, so that no offset of before means another message.
    """
    load_module("towline.cli.topic_work", "cli").delete(topic, yes, endpoint, store, as_json)
