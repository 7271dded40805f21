"""`towline bench`: measurements of this machine, each beside its own limits. The work is in `loadtest`."""

from typing import Annotated

import typer

from .output import Json, door

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure this machine, each figure beside the limits measured in the same run."""


@app.command("put")
def bench_put(
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds per measurement.")] = 2.0,
    as_json: Json = False,
) -> int:
    """Measure the append and stamp kernel, and client to acknowledgement over ipc and tcp."""
    status: int = door("loadtest.bench.put", "server").main(seconds=seconds, as_json=as_json)
    return status
