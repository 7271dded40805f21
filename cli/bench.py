"""`towline bench`: measurements of this machine, each beside its own limits. The work is in `loadtest`."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from towline.limits import GIB

from .bench_delay import render_delay
from .bench_ha import render_ha
from .bench_peers import bench_peers
from .bench_put import render_put
from .bench_reading import render_consume, render_filter
from .bench_recovery import render_recovery, sizes_of
from .bench_reput import render_reput
from .bench_segments import render_segments
from .bench_spark import render_spark
from .bench_steps import render_steps
from .output import Json, load_module, progress_console, show

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)
app.command("peers")(bench_peers)


@app.callback()
def bench() -> None:
    """Measure this machine, each figure beside the limits measured in the same run."""


def _measured(
    name: str, render: Callable[[Console, Any], None], as_json: bool, quick: bool, extra: str = "server", **plan: Any
) -> int:
    """Runs one bench, by its own quick plan or by this one, and shows what it found."""
    module = load_module(f"towline.loadtest.bench.{name}", extra)
    with progress_console().status("measuring") as status:
        result = module.measure(module.QUICK if quick else module.Plan(**plan), status.update)
    show(result, as_json, lambda console: render(console, result))
    return 0


@app.command("put")
def bench_put(
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds per measurement.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the append and stamp kernel, and client to acknowledgement over ipc and tcp."""
    return _measured("put", render_put, as_json, quick, seconds=seconds, rounds=rounds)


@app.command("recovery")
def bench_recovery(
    sizes: Annotated[str, typer.Option(help="Sizes of the stores in GiB, separated by commas.")] = "1,4,16",
    rounds: Annotated[int, typer.Option(min=1, help="How often each start is measured; figures are medians.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Small stores; a short run of half a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure kill -9 to the first acknowledgement, a clean start, a full walk beside a plain read, many queues.

    Works in a directory of its own below TMPDIR, which needs the largest size and 6 GiB, and removes it.
    """
    return _measured("recovery", render_recovery, as_json, quick, sizes=sizes_of(sizes), rounds=rounds)


@app.command("reput")
def bench_reput(
    records: Annotated[int, typer.Option(min=100_000, help="Records of the log.")] = 3_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; figures are medians.")] = 5,
    queues: Annotated[int, typer.Option(min=20, help="How many are many queues, beside 10.")] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="A small log; a short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure how fast reput derives queues and index from a log, with few queues and with many.

    Works in a directory of its own below TMPDIR, which needs 2 GiB, and removes it.
    """
    return _measured("reput", render_reput, as_json, quick, records=records, rounds=rounds, many=queues)


@app.command("consume")
def bench_consume(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    replay: Annotated[float, typer.Option(min=0, help="GiB of a cold store that are replayed beside puts.")] = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of half a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure one consumer from the page cache, and what producers notice of a cold store's replay.

    Works in a directory of its own below TMPDIR, which needs 6 GiB or what is replayed, and removes it.
    """
    return _measured("consume", render_consume, as_json, quick, rounds=rounds, replay=int(replay * GIB))


@app.command("filter")
def bench_filter(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure a filter that keeps 1% of a queue: by tag and by SQL92 at the node, and at the client."""
    return _measured("filter", render_filter, as_json, quick, rounds=rounds)


@app.command("delay")
def bench_delay(
    rate: Annotated[int, typer.Option(min=100, help="Messages that are due in a second.")] = 10_000,
    burst: Annotated[int, typer.Option(min=100, help="Messages that are due in a single second.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; figures are medians.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure how late delayed messages are delivered: by a level, and with times of their own."""
    return _measured("delay", render_delay, as_json, quick, rate=rate, burst=burst, rounds=rounds)


@app.command("steps")
def bench_steps(
    rates: Annotated[str, typer.Option(help="Messages a second, with commas; each is a run.")] = "10,1000,5000",
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each run.")] = 6.0,
    transport: Annotated[str, typer.Option(help="ipc, which means shared memory, or tcp.")] = "ipc",
    reads_files: Annotated[
        bool, typer.Option(help="Let the consumer follow the end of the log in the node's files.")
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of some seconds.")] = False,
    as_json: Json = False,
) -> int:
    """Follow messages from `send` to their acknowledgement and to a consumer at the end of the queue, step by step."""
    try:
        each = tuple(int(rate) for rate in rates.split(","))
    except ValueError:
        raise typer.BadParameter("numbers with commas, as in 10,1000", param_hint="--rates") from None
    if transport not in ("ipc", "tcp"):
        raise typer.BadParameter("ipc or tcp", param_hint="--transport")
    options: dict[str, Any] = {"rates": each, "seconds": seconds, "transport": transport, "reads_files": reads_files}
    return _measured("steps", render_steps, as_json, quick, **options)


@app.command("segments")
def bench_segments(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of load on a node in each of them.")] = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small segments; a short run of half a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure what a segment switch costs a put, and what warm-up buys.

    The writer alone over segments that were made in four ways, and a node under a steady load, warmed and not.
    """
    return _measured("segments", render_segments, as_json, quick, rounds=rounds, seconds=seconds)


@app.command("ha")
def bench_ha(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each steady load.")] = 10.0,
    behind: Annotated[float, typer.Option(min=0.1, help="GiB that a slave is behind, which then catches up.")] = 10.0,
    rate: Annotated[int, typer.Option(min=1, help="MB a second of the steady load.")] = 100,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure replication: its speed beside raw ZeroMQ, its lag, what SYNC_MASTER costs, a slave that catches up.

    Works in a directory of its own below TMPDIR, which needs three times what the slave is behind and 30 GiB, and
    removes it.
    """
    plan: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "behind": int(behind * GIB), "rate": rate * 1_000_000}
    return _measured("ha", render_ha, as_json, quick, **plan)


@app.command("spark")
def bench_spark(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    large: Annotated[float, typer.Option(min=0.5, help="GiB of the log whose rebuild is measured end to end.")] = 16.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small logs; a short run of two minutes.")] = False,
    as_json: Json = False,
) -> int:
    """Measure Spark on a store: decode, rebuild, archive and stream, each beside what it is to be faster than.

    Works in a directory of its own below TMPDIR, which needs the large log and 6 GiB, and removes it. Needs Java 17.
    """
    return _measured("spark", render_spark, as_json, quick, "spark", rounds=rounds, large=int(large * GIB))
