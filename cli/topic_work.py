"""Does the work of `towline topic`."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.errors import UnknownTopic
from towline.format.files.topics import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, PERM_WRITE

from .endpoints import endpoint_of
from .output import add_row, show, table


def list_topics(endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline topic") as admin:
        topics = admin.topics()

    def render(console: Console) -> None:
        made = table("topic", "#write queues", "#read queues", "clients may", "")
        for row in topics:
            own = "the broker's own" if row["system"] else ""
            add_row(made, row["topic"], row["write_queues"], row["read_queues"], _permissions(row["perm"]), own)
        console.print(made)

    show({"topics": topics}, as_json, render)


def describe(topic: str, endpoint: str | None, store: Path | None, as_json: bool) -> None:
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


def create(
    topic: str,
    queues: int,
    read_queues: int | None,
    write_queues: int | None,
    perm: str,
    inherit: bool,
    order: bool,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        facts = admin.create_topic(
            topic,
            queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=_bits(perm) | (PERM_INHERIT if inherit else 0),
            order=order,
        )
    _show(facts, as_json)


def alter(
    topic: str,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    inherit: bool | None,
    order: bool | None,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    if all(wish is None for wish in (read_queues, write_queues, perm, inherit, order)):
        raise typer.BadParameter("name what to change: --read-queues, --write-queues, --perm, --inherit, --order")
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        bits = None if perm is None and inherit is None else _altered(_facts(admin, topic)["perm"], perm, inherit)
        facts = admin.alter_topic(topic, read_queues=read_queues, write_queues=write_queues, perm=bits, order=order)
    _show(facts, as_json)


def delete(topic: str, yes: bool, endpoint: str | None, store: Path | None, as_json: bool) -> None:
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


def _altered(bits: int, perm: str | None, inherit: bool | None) -> int:
    may = bits & PERM_READ_WRITE if perm is None else _bits(perm)
    inherits = bits & PERM_INHERIT if inherit is None else PERM_INHERIT * inherit
    return may | inherits


def _show(facts: dict[str, Any], as_json: bool) -> None:
    text = f"{facts['topic']} has {facts['write_queues']} queues to write to and {facts['read_queues']} to read from"
    text = f"{text}, may {_permissions(facts['perm'])}{', ordered' if facts['order'] else ''}"
    show(facts, as_json, lambda console: console.print(text, markup=False))


def _bits(perm: str) -> int:
    """Of rw, r, w or none, as in topics.json."""
    letters = "" if perm == "none" else perm
    return sum(bit for letter, bit in (("r", PERM_READ), ("w", PERM_WRITE)) if letter in letters)


def _permissions(perm: int) -> str:
    may = " and ".join(name for bit, name in ((PERM_READ, "read"), (PERM_WRITE, "write")) if perm & bit) or "nothing"
    return f"{may}, inherited by new topics" if perm & PERM_INHERIT else may
