"""What producers notice while a cold store is replayed: latencies of a steady load, without a replay and during one.

The log is filled, flushed and dropped from memory; then a consumer of its own process reads it from the first message
on, as fast as it comes. Beside the latencies: how much of what was read stays in memory, and how much of the log's end
leaves it.
"""

import multiprocessing
import os
import select
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

from towline.client.columns import Columns
from towline.errors import BenchFailed
from towline.limits import GIB, KIB, MIB
from towline.link.context import close_context, new_context
from towline.log.files.mapped_file import MappedFile
from towline.log.files.mapped_file_queue import list_segments
from towline.log.files.segment_files import segment_name

from .latency import TimedClient, figures
from .node import BenchNode, bench_node
from .reading import Pass, fill, read_all
from .shapes import Shape, load_of

FILLED: Final = Shape(500, KIB)
PUT: Final = Shape(16, KIB)
RATE: Final = 500  # requests a second
SLICE_S: Final = 1.0  # of load, between two checks of the memory
IN_MEMORY_PERCENT: Final = 1  # of the machine's memory, which is the log's end: the rest counts as cold
COLD_MAX_S: Final = 60.0
COLD_SHARE: Final = 0.02
LOOK_S: Final = 0.5

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`size` bytes of log are replayed; so many seconds of load without a replay."""

    size: int = 2 * GIB
    quiet_s: float = 10.0
    segment_size: int = 256 * MIB


QUICK: Final = Plan(size=512 * MIB, quiet_s=3.0, segment_size=64 * MIB)


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """The whole document. `note` is called with each step, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-bench-")))
        note("a master starts")
        node = stack.enter_context(
            bench_node(directory, plan.segment_size, access_message_in_memory_max_ratio=IN_MEMORY_PERCENT)
        )
        context = new_context()
        stack.callback(close_context, context)
        client = TimedClient(context, node.put_endpoint("ipc"))
        stack.callback(client.close)
        client.make_topic()
        note(f"{plan.size / GIB:g} GiB are put")
        filling = load_of(FILLED)
        count = fill(client, node, filling, plan.size // filling.record_size)
        node.await_segments()
        note("the log leaves memory")
        commitlog = directory / "store" / "commitlog"
        cold = _make_cold(commitlog, plan.segment_size)
        note("a load without a replay")
        quiet = client.run(load_of(PUT), RATE, plan.quiet_s)
        note("a load during the replay")
        replayed = _during(client, node, count, commitlog, plan.segment_size, cold)
    return {
        "size": plan.size,
        "rate": RATE,
        "request": {"records": PUT.records, "body": PUT.body},
        "quiet": figures(quiet.us),
        **replayed,
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.perf_counter() - started,
    }


def _during(
    client: TimedClient, node: BenchNode, count: int, commitlog: Path, size: int, cold: list[int]
) -> dict[str, Any]:
    latencies, most = [], 0
    with _reader(node.serve_endpoint, count) as reader:
        while not reader.poll():
            latencies.append(client.run(load_of(PUT), RATE, SLICE_S).us)
            most = max(most, sum(_resident(commitlog, base, size) for base in cold))
        read: Pass = reader.recv()
    if not latencies:
        raise BenchFailed("the replay was over before the load began")
    return {
        "during": figures(np.concatenate(latencies)),
        "replay": {"msgs_per_s": read.rate, "mb_per_s": read.size / read.seconds / 1e6, "seconds": read.seconds},
        "cold_in_memory_most": most,
    }


@contextmanager
def _reader(endpoint: str, until: int) -> Iterator[Connection]:
    """A process that reads the queue and then says what it got."""
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=_replay, args=(its, endpoint, until))
    process.start()
    try:
        its.close()
        ours.recv()  # it is up
        yield ours
    except EOFError:
        raise BenchFailed("the reader ended early") from None
    finally:
        process.join(COLD_MAX_S)
        process.kill()
        ours.close()


def _replay(pipe: Connection, endpoint: str, until: int) -> None:
    pipe.send(os.getpid())
    pipe.send(read_all(endpoint, _count, until=until))


def _count(columns: Columns) -> int:
    return len(columns)


def _make_cold(commitlog: Path, size: int) -> list[int]:
    """Drops every full segment from memory, once its readers have unmapped it; their bases."""
    bases = list_segments(commitlog, size)
    written = [base for base in bases if _is_written(commitlog, base)]
    full = written[:-1]
    deadline = time.monotonic() + COLD_MAX_S
    while sum(_resident(commitlog, base, size) for base in full) > COLD_SHARE * size * len(full):
        if time.monotonic() > deadline:
            raise BenchFailed("the log does not leave memory: something keeps it mapped")
        for base in full:
            fd = os.open(commitlog / segment_name(base), os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
        select.select([], [], [], LOOK_S)
    return full


def _is_written(commitlog: Path, base: int) -> bool:
    with (commitlog / segment_name(base)).open("rb") as file:
        return any(file.read(8))


def _resident(commitlog: Path, base: int, size: int) -> int:
    """Bytes of a segment that are in memory."""
    mapped = MappedFile.open(commitlog / segment_name(base), size, writable=False)
    try:
        return mapped.resident(0, size) * os.sysconf("SC_PAGE_SIZE")
    finally:
        mapped.release()
