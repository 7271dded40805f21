"""Compares the logs of two stores byte by byte over what both hold: a slave's is a part of its master's. No Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from towline.limits import MIB
from towline.log.repair.verify_report import Findings
from towline.spark.errors import MessagesGone
from towline.spark.stores import StoreFacts

from .tasks import Tasks

SPLIT_BYTES = 256 * MIB
_STEP = 16 * MIB


@dataclass(frozen=True, slots=True)
class Difference:
    """Of log offsets [start, end): the first and the last byte that differ, and how many do. -1 where none does.

    `gone`: cleaning took them away meanwhile.
    """

    start: int
    end: int
    first: int = -1
    last: int = -1
    count: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """Log offsets [start, end) are in both logs, none where `end` is not above `start`."""

    start: int
    end: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        return not any(each.count for each in self.differences)


def compare_logs(one: StoreFacts, other: StoreFacts, tasks: Tasks) -> Compared:
    """Both stores may be live: they are compared up to the lesser safe end."""
    start, end = max(one.log_min, other.log_min), min(one.safe_end, other.safe_end)
    differences = tasks.run("both logs", partial(compare, one, other), list(_splits(one.segment_size, start, end)))
    return Compared(start, end, tuple(differences))


def compare(one: StoreFacts, other: StoreFacts, split: tuple[int, int]) -> Difference:
    """One task."""
    start, end = split
    first, last, count = -1, -1, 0
    at = start
    try:
        while at < end:
            bases = one.segment_of(at), other.segment_of(at)
            stop = min(at + _STEP, end, bases[0] + one.segment_size, bases[1] + other.segment_size)
            left = one.array(bases[0])[at - bases[0] : stop - bases[0]]
            right = other.array(bases[1])[at - bases[1] : stop - bases[1]]
            if not np.array_equal(left, right):
                differs = np.flatnonzero(left != right)
                first = at + int(differs[0]) if first < 0 else first
                last, count = at + int(differs[-1]), count + len(differs)
            at = stop
    except MessagesGone:
        return Difference(start, end, gone=True)
    return Difference(start, end, first, last, count)


def report(compared: Compared, one: StoreFacts, other: StoreFacts, findings: Findings) -> None:
    """A finding for every segment in which bytes differ."""
    for each in compared.differences:
        if each.count:
            base = one.segment_of(each.first)
            said = f"{each.count} bytes from {each.first} to {each.last + 1} of the log are not those of {other.root}"
            findings.add(one.path_of(base), each.first - base, each.last + 1 - base, "LOG_DIFFERS", said)


def _splits(segment_size: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of segments."""
    while start < end:
        border = start - start % segment_size + segment_size
        stop = min(start + SPLIT_BYTES, border, end)
        yield start, stop
        start = stop
