"""`towline topic`: the topics of a node."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.errors import UnknownTopic
from towline.format.files.topics import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, PERM_WRITE

from .endpoints import Endpoint, LocalStore, endpoint_of
from .output import Json, add_row, show, table

app = typer.Typer(help="List, describe, create, change and delete topics.", no_args_is_help=True)


class Permission(StrEnum):
    """What clients may do with a topic; `bits` as in topics.json."""

    RW = "rw"
    R = "r"
    W = "w"
    NONE = "none"

    @property
    def bits(self) -> int:
        return sum(bit for letter, bit in (("r", PERM_READ), ("w", PERM_WRITE)) if letter in self._letters)

    @property
    def _letters(self) -> str:
        return "" if self is Permission.NONE else self.value


@app.command("list")
def list_topics(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """List the topics of a node."""
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline topic") as admin:
        topics = admin.topics()

    def render(console: Console) -> None:
        made = table("topic", "#write queues", "#read queues", "clients may", "")
        for row in topics:
            own = "the broker's own" if row["system"] else ""
            add_row(made, row["topic"], row["write_queues"], row["read_queues"], _permissions(row["perm"]), own)
        console.print(made)

    show({"topics": topics}, as_json, render)


@app.command("describe")
def describe(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Show a topic's queues and how many messages each holds."""
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline topic") as admin:
        facts = _facts(admin, topic)
        bounds = admin.bounds(topic)
    queues = [
        {"queue_id": queue_id, "min_offset": low, "max_offset": high, "messages": high - low}
        for queue_id, (low, high) in sorted(bounds.items())
    ]

    def render(console: Console) -> None:
        ordered = ", ordered" if facts["order"] else ""
        console.print(f"{topic}, may {_permissions(facts['perm'])}{ordered}", markup=False)
        made = table("#queue", "#min", "#max", "#messages")
        for row in queues:
            add_row(made, *row.values())
        console.print(made)

    total = sum(row["messages"] for row in queues)
    show(facts | {"messages": total, "queues": queues}, as_json, render)


@app.command("create")
def create(
    topic: Annotated[str, typer.Argument(help="Name: letters, digits, %, |, _ and -.")],
    queues: Annotated[int, typer.Option(min=1, help="Queues to write to and read from.")] = 4,
    read_queues: Annotated[int | None, typer.Option(min=1, help="Queues to read from, if not as many.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="Queues to write to, if not as many.")] = None,
    perm: Annotated[Permission, typer.Option(help="What clients may: read, write, both or nothing.")] = Permission.RW,
    inherit: Annotated[
        bool, typer.Option("--inherit", help="Topics that the node makes by itself may take after this one.")
    ] = False,
    order: Annotated[bool, typer.Option("--order", help="Mark the topic as an ordered one.")] = False,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Create a topic on a master; its slaves follow."""
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        facts = admin.create_topic(
            topic,
            queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm.bits | (PERM_INHERIT if inherit else 0),
            order=order,
        )
    _show(facts, as_json)


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
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Change a topic on a master; its slaves follow.

    More queues: raise the read queues with, or before, the write queues. Fewer: lower the write queues, wait until the
    others are read to their end, then lower the read queues.
    """
    if all(wish is None for wish in (read_queues, write_queues, perm, inherit, order)):
        raise typer.BadParameter("name what to change: --read-queues, --write-queues, --perm, --inherit, --order")
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        bits = None if perm is None and inherit is None else _altered(_facts(admin, topic)["perm"], perm, inherit)
        facts = admin.alter_topic(topic, read_queues=read_queues, write_queues=write_queues, perm=bits, order=order)
    _show(facts, as_json)


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
    if not yes:
        raise typer.BadParameter(f"all messages of {topic} go with it: say --yes if they may")
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        facts = admin.delete_topic(topic)
    show(facts, as_json, lambda console: console.print(f"{topic} is deleted", markup=False))


def _facts(admin: AdminClient, topic: str) -> dict[str, Any]:
    """Raises UnknownTopic."""
    for row in admin.topics():
        if row["topic"] == topic:
            return row
    raise UnknownTopic(topic)


def _altered(bits: int, perm: Permission | None, inherit: bool | None) -> int:
    may = bits & PERM_READ_WRITE if perm is None else perm.bits
    inherits = bits & PERM_INHERIT if inherit is None else PERM_INHERIT * inherit
    return may | inherits


def _show(facts: dict[str, Any], as_json: bool) -> None:
    text = f"{facts['topic']} has {facts['write_queues']} queues to write to and {facts['read_queues']} to read from"
    text = f"{text}, may {_permissions(facts['perm'])}{', ordered' if facts['order'] else ''}"
    show(facts, as_json, lambda console: console.print(text, markup=False))


def _permissions(perm: int) -> str:
    may = " and ".join(name for bit, name in ((PERM_READ, "read"), (PERM_WRITE, "write")) if perm & bit) or "nothing"
    return f"{may}, inherited by new topics" if perm & PERM_INHERIT else may
