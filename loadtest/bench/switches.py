"""Measures what a segment switch costs the writer: one append turn after the other over several segments.

A turn is what put does with a request around its kernel, by the same calls: make room, copy, publish, and the roll when
the request does not fit. The segments exist before the writer comes, as allocate sees to in a running node.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.record import blank
from towline.limits import KIB, MIB
from towline.log.commitlog.commit_log import LogTail
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import warm
from towline.log.files.segment_files import ensure_segment, segment_name

NS_PER_US: Final = 1000
FLUSH_BYTES: Final = 8 * MIB
QUANTILES: Final = {"p50_us": 50.0, "p99_us": 99.0, "p99_9_us": 99.9, "p99_99_us": 99.99}


def untouched(path: Path, size: int) -> None:
    """As it was created: reserved, and not in memory."""


def advised(path: Path, size: int) -> None:
    """posix_fadvise WILLNEED, and nothing else."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(fd)


def warmed(path: Path, size: int) -> None:
    """As allocate does it."""
    warm(path, size)


@dataclass(frozen=True, slots=True)
class Way:
    """How segments are prepared before the writer comes, and how far ahead it populates its mapping."""

    name: str
    prepare: Callable[[Path, int], None]
    ahead: int


WAYS: Final = (
    Way("nothing", untouched, 0),
    Way("fadvise", advised, 0),
    Way("inline", untouched, 8 * MIB),
    Way("populate", warmed, 8 * MIB),
)


@dataclass(frozen=True, slots=True)
class Switches:
    """`count` switches between segments of `segment_size` bytes, by requests of `request_size` bytes."""

    segment_size: int = 64 * MIB
    count: int = 4
    request_size: int = KIB + 100


def run(directory: Path, way: Way, plan: Switches) -> dict[str, float]:
    """Rate and latencies of one pass over fresh segments, which are removed afterwards."""
    commitlog, staging = directory / "commitlog", directory / "staging"
    for path in (commitlog, staging):
        path.mkdir()
    try:
        for number in range(plan.count + 1):
            base = number * plan.segment_size
            ensure_segment(commitlog, staging, base, plan.segment_size)
            way.prepare(commitlog / segment_name(base), plan.segment_size)
        taken, switched = _turns(commitlog, way, plan)
    finally:
        for path in (commitlog, staging):
            shutil.rmtree(path)
    seconds = float(taken.sum()) / 1e9
    figures = {name: float(np.percentile(taken, share)) / NS_PER_US for name, share in QUANTILES.items()}
    return figures | {
        "max_us": float(taken.max()) / NS_PER_US,
        "switch_max_us": float(taken[switched].max()) / NS_PER_US,
        "turns": float(len(taken)),
        "mb_per_s": len(taken) * plan.request_size / seconds / 1e6,
    }


def _turns(commitlog: Path, way: Way, plan: Switches) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """ns of each turn, and which turns began a segment."""

    def next_segment(base: int) -> MappedFile:
        return MappedFile.open(commitlog / segment_name(base), plan.segment_size, writable=True)

    size = plan.request_size
    data = memoryview(os.urandom(size))
    turns = (plan.count + 1) * (plan.segment_size // (size + blank.SIZE)) - 1
    taken = np.zeros(turns, dtype=np.int64)
    switched = np.zeros(turns, dtype=np.bool_)
    tail = LogTail.open(commitlog, plan.segment_size, 0, next_segment, populate_ahead=way.ahead)
    clock = time.perf_counter_ns
    flushed = 0
    for turn in range(turns):
        if tail.position - flushed >= FLUSH_BYTES:
            flushed = _flush(tail)
        started = clock()
        if not tail.fits(size):
            tail.blank()
            tail.roll()
            switched[turn] = True
        at, _ = tail.window(size)
        tail.segment.view[at : at + size] = data
        tail.moved(at + size)
        taken[turn] = clock() - started
    tail.close()
    return taken, switched


def _flush(tail: LogTail) -> int:
    """Writes out what was appended, as flush does beside the writer; no part of a turn."""
    at = tail.position - tail.base
    tail.segment.sync(max(0, at - FLUSH_BYTES), at)
    return tail.position
