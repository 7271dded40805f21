"""Does the work of `towline query`."""

from datetime import datetime
from pathlib import Path

import typer

from towline.client.admin import ALWAYS_MS, AdminClient
from towline.client.lookup import Wanted, describe, find

from .endpoints import endpoint_of
from .messages import print_messages
from .output import show


def query(
    topic: str | None,
    key: str | None,
    unique_key: str | None,
    id_: str | None,
    offset: int | None,
    time: str | None,
    begin: str | None,
    end: str | None,
    count: int,
    endpoint: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    if sum(asked is not None for asked in (key, unique_key, id_, offset, time)) != 1:
        raise typer.BadParameter("give one of --key, --unique-key, --id, --offset and --time")
    if topic is None and id_ is None and offset is None:
        raise typer.BadParameter("--key, --unique-key and --time need --topic")
    if begin is not None and key is None and unique_key is None:
        raise typer.BadParameter("--begin goes with --key and --unique-key")
    if end is not None and (id_ is not None or offset is not None):
        raise typer.BadParameter("--end goes with --key, --unique-key and --time")
    wanted = Wanted(
        topic=topic or "",
        key=key,
        unique_key=unique_key,
        id=id_,
        offset=offset,
        time=_time("--time", time) if time is not None else None,
        begin=_time("--begin", begin) if begin else 0,
        end=_time("--end", end) if end else ALWAYS_MS,
        max_count=count,
    )
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline query") as admin:
        found, remarks = find(admin, wanted)
    described = [describe(message) for message in found]
    result = {"count": len(described), "messages": described, "remarks": remarks}
    show(result, as_json, lambda console: print_messages(console, described, remarks))


def _time(option: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text} is not a time as 2026-01-31T12:00") from None
