"""`towline bench`: measurements of this machine, each beside its own limits. The work is in `loadtest`."""

from typing import Annotated

import typer

from .bench_report import render_put
from .output import Json, door, progress_console, show

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure this machine, each figure beside the limits measured in the same run."""


@app.command("put")
def bench_put(
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds per measurement.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the append and stamp kernel, and client to acknowledgement over ipc and tcp."""
    module = door("loadtest.bench.put", "server")
    plan = module.QUICK if quick else module.Plan(seconds, rounds)
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_put(console, result))
    return 0
