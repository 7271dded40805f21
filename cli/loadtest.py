"""`towline loadtest`: users of Locust against running nodes."""

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.link.routes import names_groups
from towline.errors import TopicExists

from .endpoints import LocalStore, endpoint_of
from .output import FAILED, Json, add_row, load_module, progress_console, show, table


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
        str | None, typer.Option("--put", metavar="ENDPOINT", help="Where puts go, or cluster:PATH for all of it.")
    ] = None,
    serve: Annotated[str | None, typer.Option("--serve", metavar="ENDPOINT", help="Where reads go.")] = None,
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
    plans, runs = (
        load_module("towline.loadtest.load.plan", "loadtest"),
        load_module("towline.loadtest.load.run", "loadtest"),
    )
    put, serve = _where(put, serve, store)
    plan = plans.LoadPlan(
        put, serve, topic, body_size, batch, per_user, shape.value, users, spawn_rate, seconds, max_p99,
        -1.0 if max_fail is None else max_fail,
    )  # fmt: skip
    kinds = [each.value for each in user or [UserKind.PUT]]
    _make_topic(put, topic, queues)
    if web:
        progress_console().print(f"Locust's page: http://127.0.0.1:{web} (Ctrl-C ends it)")
        return int(runs.serve_web(plan, kinds, workers, web))
    with ExitStack() as stack:
        directory = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-loadtest-")))
        directory.mkdir(parents=True, exist_ok=True)
        plan = replace(plan, out=str(directory.resolve()))
        summary = _run(runs, plan, kinds, workers, runs.Outputs(csv, html))
        if verify:
            summary["verified"] = runs.check(plan)
    show(summary, as_json, lambda console: _render(console, summary))
    lost = summary.get("verified", {}).get("lost", 0)
    return FAILED if summary["broken"] or lost else 0


def _where(put: str | None, serve: str | None, store: Path | None) -> tuple[str, str]:
    """Endpoints of both services. Raises BadParameter, NodeNotRunning."""
    if put is not None and store is None and (serve is not None or names_groups(put)):
        return put, serve or put
    if store is not None and put is None and serve is None:
        return endpoint_of("put", None, store), endpoint_of("serve", None, store)
    raise typer.BadParameter("name the nodes by --put and --serve, by --put cluster:PATH, or by --store")


def _make_topic(put: str, topic: str, queues: int) -> None:
    if names_groups(put):
        return  # its producers make it, in every group
    with AdminClient(put) as admin:
        try:
            admin.create_topic(topic, queues)
        except AskRefused as refused:
            if refused.error != TopicExists.__name__:
                raise


def _run(runs: Any, plan: Any, kinds: list[str], workers: int, outputs: Any) -> dict[str, Any]:
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=progress_console())
    with bar:
        task = bar.add_task(f"{', '.join(kinds)}: {plan.users} users", total=plan.seconds)
        summary: dict[str, Any] = runs.run(
            plan, kinds, workers, outputs, lambda seconds: bar.update(task, completed=seconds)
        )
    return summary


def _render(console: Console, summary: dict[str, Any]) -> None:
    made = table("request", "#requests/s", "#messages/s", "#failed", "#p50 ms", "#p95 ms", "#p99 ms", "#max ms")
    for row in summary["rows"]:
        times = (f"{row[name]:,.1f}" for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms"))
        rates = (f"{row[name]:,.0f}" for name in ("requests_per_s", "messages_per_s"))
        add_row(made, f"{row['kind']} {row['name']}", *rates, f"{row['failures']:,}", *times)
    console.print(made)
    for error, count in summary["errors"].items():
        console.print(f"{count:,} x {error}", markup=False)
    if "verified" in summary:
        found = summary["verified"]
        console.print(
            f"acknowledged {found['acknowledged']:,}, lost {found['lost']:,}, doubled {found['doubled']:,}; "
            f"{found['read']:,} read"
        )
    for sentence in summary["broken"]:
        console.print(f"broken: {sentence}", markup=False)
