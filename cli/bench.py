"""`towline bench`: measurements of this machine, each beside its own limits. The work is in `loadtest`."""

from typing import Annotated

import typer

from towline.limits import GIB

from .bench_delay import render_delay
from .bench_reading import render_consume, render_filter
from .bench_recovery import render_recovery, sizes_of
from .bench_report import render_put
from .bench_reput import render_reput
from .bench_segments import render_segments
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


@app.command("recovery")
def bench_recovery(
    sizes: Annotated[str, typer.Option(help="Sizes of the stores in GiB, separated by commas.")] = "1,4,16",
    rounds: Annotated[int, typer.Option(min=1, help="How often each start is measured; figures are medians.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Small stores; a first look in half a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure kill -9 to the first acknowledgement, a clean start, a full walk beside a plain read, many queues.

    Works in a directory of its own below TMPDIR, which needs the largest size and 6 GiB, and removes it.
    """
    module = door("loadtest.bench.recovery", "server")
    plan = module.QUICK if quick else module.Plan(sizes=sizes_of(sizes), rounds=rounds)
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_recovery(console, result))
    return 0


@app.command("reput")
def bench_reput(
    records: Annotated[int, typer.Option(min=100_000, help="Records of the log.")] = 3_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; figures are medians.")] = 5,
    queues: Annotated[int, typer.Option(min=20, help="How many are many queues, beside 10.")] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="A small log; a first look in a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure how fast reput derives queues and index from a log, with few queues and with many.

    Works in a directory of its own below TMPDIR, which needs 2 GiB, and removes it.
    """
    module = door("loadtest.bench.reput", "server")
    plan = module.QUICK if quick else module.Plan(records=records, rounds=rounds, many=queues)
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_reput(console, result))
    return 0


@app.command("consume")
def bench_consume(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    replay: Annotated[float, typer.Option(min=0, help="GiB of a cold store that are replayed beside puts.")] = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in half a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure one consumer from the page cache, and what producers notice of a cold store's replay.

    Works in a directory of its own below TMPDIR, which needs 6 GiB or what is replayed, and removes it.
    """
    module = door("loadtest.bench.consume", "server")
    plan = module.QUICK if quick else module.Plan(rounds=rounds, replay=int(replay * GIB))
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_consume(console, result))
    return 0


@app.command("filter")
def bench_filter(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure a filter that keeps 1% of a queue: by tag and by SQL92 at the node, and at the client."""
    module = door("loadtest.bench.filter", "server")
    plan = module.QUICK if quick else module.Plan(rounds=rounds)
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_filter(console, result))
    return 0


@app.command("delay")
def bench_delay(
    rate: Annotated[int, typer.Option(min=100, help="Messages that are due in a second.")] = 10_000,
    burst: Annotated[int, typer.Option(min=100, help="Messages that are due in a single second.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; figures are medians.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure how late delayed messages are delivered: by a level, and with times of their own."""
    module = door("loadtest.bench.delay", "server")
    plan = module.QUICK if quick else module.Plan(rate=rate, burst=burst, rounds=rounds)
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_delay(console, result))
    return 0


@app.command("segments")
def bench_segments(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of load on a node in each of them.")] = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small segments; a first look in half a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure what a segment switch costs a put, and what warm-up buys.

    The writer alone over segments that were made in four ways, and a node under a steady load, warmed and not.
    """
    module = door("loadtest.bench.segments", "server")
    plan = module.QUICK if quick else module.Plan(rounds=rounds, seconds=seconds)
    with progress_console().status("measuring") as status:
        result = module.measure(plan, status.update)
    show(result, as_json, lambda console: render_segments(console, result))
    return 0
