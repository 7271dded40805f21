"""Does the work of `towline group`."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final, Literal, TypeVar

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.client.cluster_admin import ClusterAdmin
from towline.client.errors import AskRefused
from towline.errors import Remedy, TowlineError

from .endpoints import endpoint_of
from .output import add_row, show, table
from .remedies import completed, words_of

Result = TypeVar("Result")

SETTINGS: Final = ("consumeEnable", "consumeBroadcastEnable", "retryMaxTimes", "retryQueueNums")  # those that count
MANY: Final = ("cluster:", "etcd:")


class GroupCallRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A question about groups was refused."""

    op: str
    error: str
    sentence: str
    advised: str
    template = "{error}: {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return self.advised


def list_groups(endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with _admins(endpoint, store) as admins:
        found = _each(admins, lambda admin: admin.ask("group_list", lag=True).facts)
    groups = [row | _where(name) for name, facts in found.items() for row in facts["groups"]]
    clamped = sum(facts.get("clamped", 0) for facts in found.values())
    backups = sorted({name for facts in found.values() for name in facts.get("backups", ())})

    def render(console: Console) -> None:
        if backups:
            names = ", ".join(f"config/{name}" for name in backups)
            console.print(f"the generation before (.bak) was used of {names}, which could not be read", markup=False)
        made = table(*_column(found), "group", "model", "#members", "#lag", "topics")
        for row in groups:
            values = (row["model"] or "-", row["members"], row["lag"], ", ".join(row["topics"]) or "-")
            add_row(made, *_cell(found, row.get("broker_name", "")), row["group"], *values)
        console.print(made)
        if clamped:
            text = f"{clamped} offsets were beyond the ends of their queues and went back; the node's log names them"
            console.print(text, markup=False)

    show({"groups": groups, "clamped": clamped, "backups": backups}, as_json, render)


def describe(group: str, endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with _admins(endpoint, store) as admins:
        found = _each(admins, lambda admin: admin.describe_group(group))

    def render(console: Console) -> None:
        for name, facts in found.items():
            _describe(console, f"{group} at {name}" if name else group, facts)

    several = {"group": group, "nodes": [facts | _where(name) for name, facts in found.items()]}
    show(found.get("", several), as_json, render)


def reset_offset(
    group: str, topic: str, to: str, queue: int | None, endpoint: str | None, store: Path | None, as_json: bool
) -> None:
    place = _place(to)
    if type(place) is int and queue is None:
        raise typer.BadParameter("an offset is of one queue: name it with --queue")

    def reset(admin: AdminClient) -> dict[int, int]:
        if type(place) is int and queue is not None:
            return {queue: admin.set_offset(group, topic, queue, place)}
        return admin.reset_offsets(group, topic, place, queue_id=queue)

    with _admins(endpoint, store) as admins:
        if queue is not None and len(admins) > 1:
            raise typer.BadParameter("a queue is of one node: name the endpoint of its master")
        found = _each(admins, reset)
    rows = [
        {"queue_id": queue_id, "offset": offset} | _where(name)
        for name, offsets in found.items()
        for queue_id, offset in sorted(offsets.items())
    ]

    def render(console: Console) -> None:
        made = table(*_column(found), "#queue", "#offset")
        for row in rows:
            add_row(made, *_cell(found, str(row.get("broker_name", ""))), row["queue_id"], row["offset"])
        console.print(made)

    show({"group": group, "topic": topic, "queues": rows}, as_json, render)


def configure(
    group: str,
    consume: bool | None,
    broadcast: bool | None,
    retry_max: int | None,
    retry_queues: int | None,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    given = dict(zip(SETTINGS, (consume, broadcast, retry_max, retry_queues), strict=True))
    settings = {name: value for name, value in given.items() if value is not None}
    if not settings:
        raise typer.BadParameter("nothing to set: see the options in --help")
    with _admins(endpoint, store) as admins:
        found = _each(admins, lambda admin: admin.configure_group(group, **settings))
    now = next(iter(found.values()))
    show({"group": group, "settings": now}, as_json, lambda console: _print_settings(console, group, now))


def delete(group: str, endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with _admins(endpoint, store) as admins:
        found = _each(admins, lambda admin: admin.delete_group(group))
    left = sorted({topic for topics in found.values() for topic in topics})

    def render(console: Console) -> None:
        console.print(f"{group} is deleted", markup=False)
        for topic in left:
            removes = completed(f"`towline topic delete {quote(topic)} --yes` removes it", words_of(endpoint, store))
            console.print(f"{topic} stays, and a group of that name would read it: {removes}", markup=False)

    show({"group": group, "topics": left}, as_json, render)


def _describe(console: Console, title: str, facts: dict[str, Any]) -> None:
    summary = f"{title}: {len(facts['members'])} members, generation {facts['generation']}, lag {facts['lag']}"
    more = [word for word in (facts["model"], facts["strategy"]) if word]
    console.print(", ".join([summary, *more]), markup=False)
    _print_settings(console, "settings", facts["settings"])
    for each in facts["warnings"]:
        console.print(f"{each['member']}: {each['warning']}", markup=False)
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


def _print_settings(console: Console, title: str, settings: dict[str, Any]) -> None:
    changed = ", ".join(f"{name} {json.dumps(settings[name])}" for name in SETTINGS if name in settings)
    console.print(f"{title}: {changed or 'those of a new group'}", markup=False)


@contextmanager
def _admins(endpoint: str | None, store: Path | None) -> Iterator[dict[str, AdminClient]]:
    """By the name of the group of nodes; of a single one the name is empty."""
    address = endpoint_of("serve", endpoint, store)
    if address.startswith(MANY):
        with ClusterAdmin(address, name="towline group") as cluster:
            yield {name: cluster.of(name) for name in cluster.names}
    else:
        with AdminClient(address, name="towline group") as admin:
            yield {"": admin}


def _each(admins: dict[str, AdminClient], call: Callable[[AdminClient], Result]) -> dict[str, Result]:
    """Of several masters those count that know the group; raises as `_asked` when none does, or one refuses else."""
    found, unknown = {}, None
    for name, admin in admins.items():
        try:
            found[name] = _asked(partial(call, admin))
        except GroupCallRefused as refused:
            if refused.error != "UNKNOWN_GROUP":
                raise
            unknown = refused
    if unknown is not None and not found:
        raise unknown
    return found


def _where(name: str) -> dict[str, str]:
    return {"broker_name": name} if name else {}


def _column(found: dict[str, Any]) -> list[str]:
    return [] if "" in found else ["nodes"]


def _cell(found: dict[str, Any], name: str) -> list[str]:
    return [] if "" in found else [name]


def _asked(call: Callable[[], Result]) -> Result:
    try:
        return call()
    except AskRefused as refused:
        raise GroupCallRefused(refused.op, refused.error, refused.sentence, refused.advice) from None


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
