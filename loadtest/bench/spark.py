"""`towline bench spark`: decoding, rebuilding, archiving and streaming, each beside what it is to be faster than.

The logs are made here and lie in the page cache: what is measured is decoding and Spark, no disk. Every ratio is taken
within a round, of things that take turns. Ratios hold on any machine; records a second are those of this one.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.limits import GIB, MIB

from . import spark_archive, spark_decode, spark_rebuild, spark_scan, spark_stream
from .goals import goal_rows
from .made_log import MadeLog, at_rest, make_log

QUEUES: Final = 32
PER_TOPIC: Final = 4
BODY: Final = 30  # with tag, keys and unique key: records of 200 bytes
RATE: Final = 1000  # messages a second of the stream
GOALS: Final = {
    "decode_all_per_s": 2e6,
    "decode_narrow_per_s": 8e6,
    "all_of_plain": 5.0,
    "narrow_of_plain": 20.0,
    "rebuild_shuffle_of_direct": 2.5,
    "rebuild_of_decode": 0.5,
    "archive_source_of_fused": 4.0,
    "scan_all_of_parquet": 1.0,
    "scan_three_of_parquet": round(1 / 1.3, 2),
    "endpoint_of_path": 0.5,
    "stream_p99_s": 0.5,
    "stream_lost_or_doubled": 0.0,
}
_AT_MOST: Final = ("stream_p99_s", "stream_lost_or_doubled")

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does: `size` bytes of log for what takes turns, `large` for the rebuild that runs alone."""

    rounds: int = 5
    size: int = GIB
    segment_size: int = 256 * MIB
    large: int = 16 * GIB
    seconds: float = 60.0  # of the stream


QUICK: Final = Plan(rounds=1, size=256 * MIB, segment_size=64 * MIB, large=GIB, seconds=10.0)


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """Everything `towline bench spark` shows, as JSON can carry it."""
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="towline-bench-") as name:
        directory = Path(name)
        log = _made(directory / "store", plan.size, plan.segment_size, note)
        decode = spark_decode.measure(log, plan.rounds, note)
        archive = spark_archive.measure(log, plan.rounds, note)
        rebuild = spark_rebuild.measure(log, plan.rounds, note)
        scan = spark_scan.measure(log, directory / "scan", plan.rounds, note)
        shutil.rmtree(log.root)
        large = _large(directory / "large", plan, note)
        large["of_decode"] = large["gb_s"] / (decode["queue_gb_s"] * cores())
        large["of_decode_all"] = large["gb_s"] / (decode["all_gb_s"] * cores())
        large["of_scan"] = large["gb_s"] / (large["grouped_gb_s"] * cores())
        stream = spark_stream.measure(directory / "stream", RATE, plan.seconds, note)
    return {
        "record_size": log.record_size,
        "records": log.total,
        "decode": decode,
        "rebuild": rebuild,
        "large": large,
        "archive": archive,
        "scan": scan,
        "stream": stream,
        "stream_settings": dict(spark_stream.LOW_LATENCY) | {"columns": spark_stream.COLUMNS},
        "goals": goals(decode, rebuild, large, archive, scan, stream),
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.monotonic() - started,
    }


def _made(root: Path, size: int, segment_size: int, note: Note) -> MadeLog:
    records = size // (152 + 18 + BODY)
    note(f"making a log of {records:,} records, {size / GIB:g} GiB")
    log = make_log(root, records, QUEUES, segment_size=segment_size, body=BODY, per_topic=PER_TOPIC, keys=True)
    return at_rest(log)


def _large(directory: Path, plan: Plan, note: Note) -> dict[str, float]:
    log = _made(directory, plan.large, plan.segment_size, note)
    try:
        return spark_rebuild.alone(log, note) | {"bytes": log.end}
    finally:
        shutil.rmtree(log.root)


def cores() -> int:
    """What `local[*]` has."""
    return len(os.sched_getaffinity(0))


def goals(
    decode: dict[str, float],
    rebuild: dict[str, float],
    large: dict[str, float],
    archive: dict[str, float],
    scan: dict[str, float],
    stream: dict[str, float],
) -> list[dict[str, Any]]:
    """Each goal with what was reached and whether that is enough."""
    reached = {
        "decode_all_per_s": decode["all_per_s"],
        "decode_narrow_per_s": decode["narrow_per_s"],
        "all_of_plain": decode["all_of_plain"],
        "narrow_of_plain": decode["narrow_of_plain"],
        "rebuild_shuffle_of_direct": rebuild["shuffle_of_direct"],
        "rebuild_of_decode": large["of_decode"],
        "archive_source_of_fused": archive["source_of_fused"],
        **{name: scan[name] for name in ("scan_all_of_parquet", "scan_three_of_parquet", "endpoint_of_path")},
        "stream_p99_s": stream["p99_s"],
        "stream_lost_or_doubled": float(stream["lost"] + stream["doubled"]),
    }
    return goal_rows(GOALS, _AT_MOST, reached)
