"""`towline bench`: measurements of this machine, each beside its own limits. The work is in `loadtest`."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Measure Towline on this machine.")

Names = Annotated[str, typer.Option(metavar="A,B", help="Only these, separated by commas; all by default.")]
Rounds = Annotated[int, typer.Option(min=0, help="Turns at most of each system at each work; 0: as the form has it.")]
Output = Annotated[Path, typer.Option(help="Directory for the result, the pictures and the page.", file_okay=False)]
Minutes = Annotated[float, typer.Option(min=0.0, help="No turn begins that would end later; 0: there is no such end.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run of this form that was broken off in --output.")
]


@app.callback()
def bench() -> None:
    """Measure Towline on this machine, each figure beside the limits measured in the same run."""


@app.command("put")
def bench_put(
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds per measurement.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the append and stamp kernel, and client to acknowledgement over ipc and tcp."""
    status: int = load_module("towline.cli.bench_work", "cli").bench_put(seconds, rounds, quick, as_json)
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_recovery(sizes, rounds, quick, as_json)
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_reput(records, rounds, queues, quick, as_json)
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_consume(rounds, replay, quick, as_json)
    return status


@app.command("filter")
def bench_filter(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every measurement takes; figures are medians.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure a filter that keeps 1% of a queue: by tag and by SQL92 at the node, and at the client."""
    status: int = load_module("towline.cli.bench_work", "cli").bench_filter(rounds, quick, as_json)
    return status


@app.command("delay")
def bench_delay(
    rate: Annotated[int, typer.Option(min=100, help="Messages that are due in a second.")] = 10_000,
    burst: Annotated[int, typer.Option(min=100, help="Messages that are due in a single second.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; figures are medians.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A short run of a quarter of a minute.")] = False,
    as_json: Json = False,
) -> int:
    """Measure how late delayed messages are delivered: by a level, and with times of their own."""
    status: int = load_module("towline.cli.bench_work", "cli").bench_delay(rate, burst, rounds, quick, as_json)
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_steps(
        rates, seconds, transport, reads_files, quick, as_json
    )
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_segments(rounds, seconds, quick, as_json)
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_ha(rounds, seconds, behind, rate, quick, as_json)
    return status


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
    status: int = load_module("towline.cli.bench_work", "cli").bench_spark(rounds, large, quick, as_json)
    return status


@app.command("peers")
def bench_peers(
    full: Annotated[bool, typer.Option("--full", help="All works, in up to 5 rounds: half an hour, 15 GB.")] = False,
    systems: Names = "",
    works: Names = "",
    rounds: Rounds = 0,
    seconds: Annotated[float, typer.Option(min=0.0, help="Of each timed work; 0: as the form has it.")] = 0.0,
    minutes: Minutes = 0.0,
    output: Output = Path("build/bench/peers"),
    resume: Resume = False,
    as_json: Json = False,
) -> int:
    """Measure Towline beside RocketMQ, Kafka, NATS JetStream and Redis Streams, in turns on this machine.

    Works: put, single, tail, rate, sync, replay, python, java-sync, java-batch, java-async, java-push, idle, replica,
    slow-sync, stored, queues. What is not installed is left out with a sentence. Works below TMPDIR and removes all it
    made there. The quick form takes below 10 minutes. What is done when Ctrl-C or a kill ends a run stands in the
    directory of --output: --resume goes on from there.
    """
    status: int = load_module("towline.cli.bench_peers", "cli").bench_peers(
        full, systems, works, rounds, seconds, minutes, output, resume, as_json
    )
    return status


@app.command("layouts")
def bench_layouts(
    quick: Annotated[bool, typer.Option("--quick", help="20 queues, no server: a quarter of a minute.")] = False,
    servers: Annotated[
        str, typer.Option(metavar="A,B", help="Servers beside the layouts: towline, rocketmq, kafka; all; or none.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=0, help="Turns of each cell; 0: as the form has it.")] = 0,
    drop_caches: Annotated[
        bool, typer.Option("--drop-caches", help="Empty the machine's page cache too before cold reads, as root.")
    ] = False,
    minutes: Minutes = 0.0,
    output: Output = Path("build/bench/layouts"),
    resume: Resume = False,
    as_json: Json = False,
) -> int:
    """Measure the same messages in one CommitLog with ConsumeQueues, and in a log per partition of Kafka's format.

    At 1, 10, 100, 1,000 and 10,000 queues: puts under SYNC_FLUSH and ASYNC_FLUSH, syncs, reads from memory and disk,
    recovery after kill -9, files and bytes; then whole servers at the same numbers of queues, for orientation. Needs 4
    GB below TMPDIR and removes all it made there. What is done when Ctrl-C or a kill ends a run stands in the directory
    of --output: --resume goes on from there.
    """
    status: int = load_module("towline.cli.bench_layouts", "cli").bench_layouts(
        quick, servers, rounds, drop_caches, minutes, output, resume, as_json
    )
    return status
