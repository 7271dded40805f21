"""`rebuild` of the queues, whose tasks write every entry to its place, beside a rebuild that shuffles, in turns.

Both end with the same checks, the same sync and the same exchange. Beside the log of some size that is rebuilt alone
stands what the tasks do without writing: reading the log and grouping its entries, in one process.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from towline.errors import BenchFailed
from towline.limits import GIB, KIB, MIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.segment_files import segment_name
from towline.log.queues.queue_build import QueueBuild
from towline.pipeline.progress import Progress
from towline.pipeline.rebuild import RebuildOptions, rebuild
from towline.pipeline.session import end, session
from towline.pipeline.tasks import SparkTasks
from towline.places import Store

from .made_log import MadeLog
from .spark_shuffle import ShuffledTasks

TURNS: Final = 3  # in each round: one takes half a second, in which any noise of the machine counts
LAPS: Final = ("queues", "finish", "exchange")  # of a rebuild: the tasks, with Spark's part; sync and checks; renames
READ: Final = 4 * MIB
GROUPED_BYTES: Final = GIB  # of a log are read and grouped for comparison, at most

Note = Callable[[str], None]


def measure(log: MadeLog, rounds: int, note: Note) -> dict[str, float]:
    """Medians: seconds of each way, their ratio in a turn, log bytes a second and laps of the one without a shuffle."""
    spark = session(None, "towline bench")
    try:
        for shuffle in (False, True):  # the JVM's code, and a Python worker for each core
            _run(spark, log, shuffle=shuffle)
        direct: list[float] = []
        other: list[float] = []
        laps: list[dict[str, float]] = []
        for number in range(TURNS * rounds):
            for shuffle in (False, True) if number % 2 else (True, False):
                seconds, found = _run(spark, log, shuffle=shuffle)
                (other if shuffle else direct).append(seconds)
                laps += [] if shuffle else [found]
            note(f"rebuild: {direct[-1]:.2f} s without a shuffle, {other[-1]:.2f} s with one")
    finally:
        end(spark)
    return {
        "direct_s": statistics.median(direct),
        "shuffle_s": statistics.median(other),
        "shuffle_of_direct": statistics.median(slow / fast for slow, fast in zip(other, direct, strict=True)),
        "gb_s": log.end / statistics.median(direct) / 1e9,
        **{f"{lap}_s": statistics.median(found[lap] for found in laps) for lap in LAPS},
    }


def alone(log: MadeLog, note: Note) -> dict[str, float]:
    """Seconds of one rebuild of the whole log, once there are workers, and bytes a second: of it, and of grouping.

    The log is read once before: of one that is nearly as large as the memory, a kernel that tidies up takes pages away
    while there is still room. `from_disk_gb` is what was read from disks all the same, by anybody.
    """
    grouped = _grouped_gb_s(log)
    spark = session(None, "towline bench")
    try:
        tasks = SparkTasks(spark, Progress())
        tasks.run("start", _nothing, range(2 * tasks.parallel))
        os.sync()
        _bring(log)
        before = _read_gb()
        seconds, laps = _run(spark, log, shuffle=False)
        from_disk = _read_gb() - before
    finally:
        end(spark)
    note(f"rebuild of {log.end / 1e9:.1f} GB: {seconds:.2f} s")
    found = {"seconds": seconds, "gb_s": log.end / seconds / 1e9, "grouped_gb_s": grouped, "from_disk_gb": from_disk}
    return found | {f"{lap}_s": laps[lap] for lap in LAPS}


def _run(spark: SparkSession, log: MadeLog, *, shuffle: bool) -> tuple[float, dict[str, float]]:
    """Seconds of a rebuild, and of its laps."""
    options = RebuildOptions(store=str(log.root), parts="queues", old="remove")
    os.sync()  # its last sync takes the whole file system: what the run before left to write is not its own
    started = time.monotonic()
    done = rebuild(options, (ShuffledTasks if shuffle else SparkTasks)(spark, Progress()))
    seconds = time.monotonic() - started
    if done.records != log.total or sum(queue.end for queue in done.queues) != log.total:
        raise BenchFailed(f"{log.total} records were to be rebuilt, {done.records} were")
    return seconds, done.seconds


def _bring(log: MadeLog) -> None:
    """Into the page cache."""
    room = bytearray(READ)
    for base in range(0, log.end, log.segment_size):
        with (Store(log.root).commitlog / segment_name(base)).open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def _read_gb() -> float:
    """What this machine has read from its disks since it started."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
    return int(counters["pgpgin"]) * KIB / 1e9


def _nothing(part: int) -> int:
    """A task that loads what this module imports: the kernels among it."""
    return part


def _grouped_gb_s(log: MadeLog) -> float:
    """Of one core: what tasks do, but for writing."""
    reader = CommitLogReader(Store(log.root).commitlog, log.segment_size)
    reader.load()
    stop = min(log.end, GROUPED_BYTES - GROUPED_BYTES % log.segment_size or log.end)
    for _ in range(2):  # the first time brings the pages
        started, build = time.monotonic(), QueueBuild(reader, (), apart=True)
        for batch in build.batches(0, stop):
            for _ in build.rounds(batch):
                pass
        seconds = time.monotonic() - started
    reader.close()
    return stop / seconds / 1e9
