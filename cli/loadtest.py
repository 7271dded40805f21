"""`towline loadtest`: users of Locust against running nodes."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .lazy import load_module
from .options import Json, LocalStore


class UserKind(StrEnum):
    """Users of loadtest/load/users.py."""

    PUT = "put"
    BATCH = "batch"
    PULL = "pull"
    MIXED = "mixed"
    SLOW = "slow"


class Shape(StrEnum):
    """Curves of loadtest/load/plan.py."""

    NONE = "none"
    RAMP = "ramp"
    PLATEAU = "plateau"
    BURST = "burst"
    SOAK = "soak"


def loadtest(
    user: Annotated[list[UserKind] | None, typer.Option("--user", help="Kind of user; may be repeated.")] = None,
    put: Annotated[
        str | None, typer.Option("--put", metavar="ENDPOINT", help="Address of the node, or cluster:PATH.")
    ] = None,
    serve: Annotated[
        str | None, typer.Option("--serve", metavar="ENDPOINT", help="Another address for reads; the same by default.")
    ] = None,
    store: LocalStore = None,
    topic: Annotated[str, typer.Option(help="Made if it is not there.")] = "loadtest",
    queues: Annotated[int, typer.Option(min=1, help="Queues of a topic that is made.")] = 4,
    users: Annotated[int, typer.Option("--users", "-u", min=1, help="Users at the most.")] = 10,
    spawn_rate: Annotated[float, typer.Option("--spawn-rate", "-r", min=0.1, help="Users that come in a second.")] = 10,
    seconds: Annotated[float, typer.Option("--time", "-t", min=1, help="Seconds of a headless run.")] = 30,
    shape: Annotated[Shape, typer.Option(help="Curve of the number of users over the time.")] = Shape.NONE,
    body_size: Annotated[int, typer.Option(min=0, help="Bytes of a body.")] = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Messages of a batch.")] = 100,
    per_user: Annotated[float, typer.Option(min=0, help="Requests a second of each user, 0: as fast as it can.")] = 0,
    workers: Annotated[int, typer.Option(min=0, help="Processes of users beside the one that counts.")] = 0,
    max_p99: Annotated[float, typer.Option(metavar="MS", min=0, help="Exit with 1 when a p99 is above.")] = 0,
    max_fail: Annotated[
        float | None, typer.Option(metavar="SHARE", min=0, max=1, help="Exit with 1 when more requests fail.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read all back: nothing acknowledged may be lost.")] = False,
    csv: Annotated[Path | None, typer.Option(metavar="PREFIX", help="Locust's CSV files.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Locust's report.")] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Keep logs and acknowledged keys here.")] = None,
    web: Annotated[int, typer.Option("--web", metavar="PORT", min=0, help="Locust's page there instead; 0: none.")] = 0,
    as_json: Json = False,
) -> int:
    """Put a running node or cluster under the load of Locust's users."""
    kinds = [each.value for each in user or [UserKind.PUT]]
    status: int = load_module("towline.cli.loadtest_work", "cli").loadtest(
        kinds, put, serve, store, topic, queues, users, spawn_rate, seconds, shape.value, body_size, batch, per_user,
        workers, max_p99, max_fail, verify, csv, html, out, web, as_json,
    )  # fmt: skip
    return status
