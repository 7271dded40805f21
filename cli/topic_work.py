"""Does the work of `towline topic`."""

import re
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.errors import UnknownTopic
from towline.format.files.topics import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, PERM_WRITE

from .endpoints import endpoint_of
from .output import add_row, show, sized, table

NONE: Final = "none"
_NO_RETENTION: Final = -1  # as AdminClient takes it away
_TIME: Final = re.compile(r"(\d+)\s*([smhd])", re.IGNORECASE)
_MS_OF: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
Kept = tuple[str | None, str | None]  # --retention and --retention-bytes


def list_topics(endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline topic") as admin:
        topics = admin.topics()

    def render(console: Console) -> None:
        made = table("topic", "#write queues", "#read queues", "clients may", "keeps", "")
        for row in topics:
            own = "the broker's own" if row["system"] else ""
            may, kept = _permissions(row["perm"]), _retention(row)
            add_row(made, row["topic"], row["write_queues"], row["read_queues"], may, kept, own)
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
        console.print(f"{topic}, may {_permissions(facts['perm'])}{_more(facts)}", markup=False)
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
    kept: Kept,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    retention_ms, retention_bytes = _kept(kept)
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        facts = admin.create_topic(
            topic,
            queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=_bits(perm) | (PERM_INHERIT if inherit else 0),
            order=order,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
    _show(facts, as_json)


def alter(
    topic: str,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    inherit: bool | None,
    order: bool | None,
    kept: Kept,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    if all(wish is None for wish in (read_queues, write_queues, perm, inherit, order, *kept)):
        options = "--read-queues, --write-queues, --perm, --inherit, --order, --retention, --retention-bytes"
        raise typer.BadParameter(f"name what to change: {options}")
    retention_ms, retention_bytes = _kept(kept)
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        bits = None if perm is None and inherit is None else _altered(_facts(admin, topic)["perm"], perm, inherit)
        facts = admin.alter_topic(
            topic,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=bits,
            order=order,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
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
    text = f"{text}, may {_permissions(facts['perm'])}{_more(facts)}"
    show(facts, as_json, lambda console: console.print(text, markup=False))


def _more(facts: dict[str, Any]) -> str:
    kept = _retention(facts)
    return (", ordered" if facts["order"] else "") + (f", keeps {kept}" if kept else "")


def _retention(facts: dict[str, Any]) -> str:
    """As `3d, 10.0 GiB a queue`; empty where the log alone decides."""
    kept_ms, kept_bytes = facts.get("retention_ms"), facts.get("retention_bytes")
    said = [] if kept_ms is None else [_time(kept_ms)]
    return ", ".join(said if kept_bytes is None else [*said, f"{sized(kept_bytes)} a queue"])


def _time(ms: int) -> str:
    """In the largest unit that divides it."""
    for unit, size in reversed(_MS_OF.items()):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def _kept(kept: Kept) -> tuple[int | None, int | None]:
    """Ms and bytes that the options name; None for what is not given, -1 for `none`."""
    time, size = kept
    return (
        _number("--retention", time, _TIME, _MS_OF, "a time as 3d, 12h, 30m or 90s"),
        _number("--retention-bytes", size, _BYTES, _UNITS, "a size as 10GB, 512MB or 65536"),
    )


def _number(option: str, text: str | None, form: re.Pattern[str], units: dict[str, int], wanted: str) -> int | None:
    if text is None or text.strip().lower() == NONE:
        return None if text is None else _NO_RETENTION
    found = form.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{option}: {text!r} is not {wanted}, nor `{NONE}`")
    return int(found[1]) * units[found[2].lower()]


def _bits(perm: str) -> int:
    """Of rw, r, w or none, as in topics.json."""
    letters = "" if perm == "none" else perm
    return sum(bit for letter, bit in (("r", PERM_READ), ("w", PERM_WRITE)) if letter in letters)


def _permissions(perm: int) -> str:
    may = " and ".join(name for bit, name in ((PERM_READ, "read"), (PERM_WRITE, "write")) if perm & bit) or "nothing"
    return f"{may}, inherited by new topics" if perm & PERM_INHERIT else may
