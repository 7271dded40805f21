"""Does the work of `towline loadtest`."""

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.link.routes import names_groups
from towline.errors import MissingPackage, TopicExists

from .endpoints import endpoint_of
from .lazy import load_module
from .output import FAILED, add_row, progress_console, show, table


def loadtest(
    kinds: list[str],
    put: str | None,
    serve: str | None,
    store: Path | None,
    topic: str,
    queues: int,
    users: int,
    spawn_rate: float,
    seconds: float,
    shape: str,
    body_size: int,
    batch: int,
    per_user: float,
    workers: int,
    max_p99: float,
    max_fail: float | None,
    verify: bool,
    csv: Path | None,
    html: Path | None,
    out: Path | None,
    web: int,
    as_json: bool,
) -> int:
    plans = load_module("towline.loadtest.load.plan", "loadtest")
    runs = load_module("towline.loadtest.load.run", "loadtest")
    if find_spec("locust") is None:  # its processes would load it
        raise MissingPackage("locust", "loadtest")
    put, serve = _where(put, serve, store)
    plan = plans.LoadPlan(
        put, serve, topic, body_size, batch, per_user, shape, users, spawn_rate, seconds, max_p99,
        -1.0 if max_fail is None else max_fail,
    )  # fmt: skip
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
    if put is not None and store is None:
        return put, serve or put
    if store is not None and put is None and serve is None:
        return endpoint_of("put", None, store), endpoint_of("serve", None, store)
    raise typer.BadParameter("name the node by --put ENDPOINT, all of a cluster by --put cluster:PATH, or give --store")


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
