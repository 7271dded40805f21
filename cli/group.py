"""`towline group`: the consumer groups of a node."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.errors import Remedy, TowlineError

from .endpoints import Endpoint, LocalStore, endpoint_of
from .output import Json, add_row, show, table

app = typer.Typer(help="List and describe consumer groups, set their offsets, delete them.", no_args_is_help=True)
Group = Annotated[str, typer.Argument(help="Consumer group.")]

REMEDIES = {
    "UNKNOWN_GROUP": "see `towline group list` for the groups there are",
    "UNKNOWN_QUEUE": "see `towline topic describe` for the topic's queues",
    "GROUP_IN_USE": "close its consumers first; `towline group describe` names them",
    "NOT_MASTER": "name the master: a slave follows its groups and changes none",
    "OFFSETS_UNREADABLE": "restore config/consumerOffset.json or its .bak, then restart the node",
    "STARTING": "try again in a moment: the node has just started",
}


class GroupCallRefused(TowlineError):
    """A question about groups was refused. Facts: what was asked, the error's name, the node's sentence."""

    remedy = Remedy.FIX_CALL

    def __init__(self, op: str, error: str, sentence: str) -> None:
        self.op, self.error, self.sentence = op, error, sentence
        super().__init__(op, error, sentence)

    @property
    def advice(self) -> str:  # type: ignore[override]
        return REMEDIES.get(self.error, AskRefused.advice)

    def describe(self) -> str:
        return f"{self.error}: {self.sentence}"


@app.command("list")
def list_groups(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """List the groups of a node."""
    with _admin(endpoint, store) as admin:
        facts = _asked(lambda: admin.ask("group_list").facts)
    groups, backups = facts["groups"], facts.get("backups", [])

    def render(console: Console) -> None:
        if backups:
            names = ", ".join(f"config/{name}" for name in backups)
            console.print(f"the generation before (.bak) was used of {names}, which could not be read", markup=False)
        made = table("group", "model", "#members", "topics")
        for row in groups:
            add_row(made, row["group"], row["model"] or "-", row["members"], ", ".join(row["topics"]) or "-")
        console.print(made)

    show({"groups": groups, "backups": backups}, as_json, render)


@app.command("describe")
def describe(group: Group, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Show a group's members, and for each queue where it stands and who reads it."""
    with _admin(endpoint, store) as admin:
        facts = _asked(lambda: admin.describe_group(group))

    def render(console: Console) -> None:
        summary = f"{group}: {len(facts['members'])} members, generation {facts['generation']}, lag {facts['lag']}"
        console.print(summary, markup=False)
        members = table("member", "#heard ms ago", "topics")
        for row in facts["members"]:
            add_row(members, row["member"], row["heard_ms_ago"], _wanted(row["topics"]))
        console.print(members)
        queues = table("topic", "#queue", "#min", "#offset", "#max", "#lag", "owner")
        for row in facts["queues"]:
            offset = "-" if row["offset"] < 0 else row["offset"]
            owner = row["owner"] or "-"
            add_row(queues, row["topic"], row["queue"], row["min"], offset, row["max"], row["lag"], owner)
        console.print(queues)

    show(facts, as_json, render)


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
    place = _place(to)
    if type(place) is int and queue is None:
        raise typer.BadParameter("an offset is of one queue: name it with --queue")
    with _admin(endpoint, store) as admin:
        if type(place) is int and queue is not None:
            number = place
            offsets = {queue: _asked(lambda: admin.set_offset(group, topic, queue, number))}
        else:
            offsets = _asked(lambda: admin.reset_offsets(group, topic, place, queue_id=queue))

    def render(console: Console) -> None:
        made = table("#queue", "#offset")
        for row in sorted(offsets.items()):
            add_row(made, *row)
        console.print(made)

    rows = [{"queue_id": queue_id, "offset": offset} for queue_id, offset in sorted(offsets.items())]
    show({"group": group, "topic": topic, "queues": rows}, as_json, render)


@app.command("delete")
def delete(group: Group, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Forget a group that has no consumers: its offsets and settings."""
    with _admin(endpoint, store) as admin:
        _asked(lambda: admin.delete_group(group))
    show({"group": group}, as_json, lambda console: console.print(f"{group} is deleted", markup=False))


def _admin(endpoint: str | None, store: Any) -> AdminClient:
    return AdminClient(endpoint_of("serve", endpoint, store), name="towline group")


def _asked(call: Any) -> Any:
    try:
        return call()
    except AskRefused as refused:
        raise GroupCallRefused(refused.op, refused.error, refused.sentence) from None


def _place(text: str) -> Literal["first", "last"] | datetime | int:
    if text in ("first", "last"):
        return "first" if text == "first" else "last"
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"--to {text} is not first, last, an offset, or a time as 2026-01-31T12:00") from None


def _wanted(topics: dict[str, Any]) -> str:
    """t, or t: a || b where it is not everything."""
    expressions = {topic: _expression(said) for topic, said in topics.items()}
    return ", ".join(topic if wanted == "*" else f"{topic}: {wanted}" for topic, wanted in expressions.items()) or "-"


def _expression(said: Any) -> str:
    return str(said.get("expression", "*")) if isinstance(said, dict) else str(said)
