"""The append and stamp kernel alone: a request validated, copied into a warm segment, stamped and published."""

from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from towline.errors import BenchFailed
from towline.format.record.rules import Rule
from towline.kernels.base.forms import RealTopics
from towline.kernels.base.ownership import own_values
from towline.kernels.jit.rows import GROUP
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT, RESULT_SIZE, append_request
from towline.limits import MESSAGE_BODY_MAX
from towline.log.commitlog.commit_log import FIRST_WORD_SIZE, LogTail
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import warm
from towline.log.files.segment_files import create_segment, publish, segment_name

from .limits import Checksums, Copies, busy_seconds
from .shapes import LOOPBACK, TOPIC, Load

STAGED: Final = "staged"
HOST: Final = np.frombuffer(LOOPBACK + (10_911).to_bytes(4, "big"), dtype=np.uint8)


def make_segment(directory: Path, size: int) -> MappedFile:
    """A warm segment file whose pages this mapping holds already."""
    staged = create_segment(directory, size, STAGED)
    warm(staged, size)
    target = directory / segment_name(0)
    publish(staged, target)
    segment = MappedFile.open(target, size, writable=True)
    segment.populate(0, size)
    return segment


class Appends:
    """What put does with a request once it is decoded, by the same calls: make room, kernel, publish."""

    def __init__(self, segment: MappedFile, load: Load) -> None:
        self._segment = segment
        self._load = load
        self._frame = np.frombuffer(load.records, dtype=np.uint8)
        self._first = load.records[:FIRST_WORD_SIZE]
        self._groups = np.zeros(1, dtype=GROUP)
        self._topic = np.frombuffer(TOPIC.encode(), dtype=np.uint8)
        self._own = own_values("DefaultCluster")
        self._reals = RealTopics().at(0, 0)
        self._result = np.zeros(RESULT_SIZE, dtype=np.int64)
        self._next, self._tail = 0, self._from_the_start()

    def measure(self, seconds: float, *, check_crc: bool) -> float:
        """Records per second. The segment is begun anew, outside the time taken, when it is full."""
        size = len(self._load.records)
        done, taken = 0, 0.0
        while taken < seconds:
            if not self._tail.fits(size):
                self._next, self._tail = 0, self._from_the_start()
            started = busy_seconds()
            while self._tail.fits(size) and taken + busy_seconds() - started < seconds:
                self._append(size, check_crc)
                done += self._load.shape.records
            taken += busy_seconds() - started
        return done / taken

    def _append(self, size: int, check_crc: bool) -> None:
        tail = self._tail
        self._groups[0] = (size, self._load.shape.records, self._next, 0, len(self._topic), 0, 0)
        at = tail.make_room(size)
        rule = append_request(
            tail.array,
            at,
            self._frame,
            self._groups,
            1,
            self._topic,
            self._own,
            tail.base,
            1,
            HOST,
            MESSAGE_BODY_MAX,
            FROM_CLIENT | (CHECK_CRC if check_crc else 0),
            self._reals,
            self._result,
        )
        if rule != Rule.OK:
            raise BenchFailed(f"the kernel refused record {self._result[0]}: {Rule(rule).sentence}")
        tail.publish(self._first, size)
        self._next = int(self._groups[0]["next_offset"])

    def _from_the_start(self) -> LogTail:
        """The tail at byte 0. It neither populates nor unmaps: the mapping holds every page, and keeps it."""
        return LogTail(self._segment, self._segment.size, 0, _no_next, populate_ahead=0)


def _no_next(base: int) -> MappedFile:
    raise BenchFailed(f"a second segment at {base} was asked for")


def measure_kernel(
    segment: MappedFile, loads: list[Load], copies: Copies, seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """One row per load: medians of `rounds` rounds, in each of which everything has its turn; ratios are per round."""
    series: list[list[dict[str, float]]] = [[] for _ in loads]
    appends = [Appends(segment, load) for load in loads]
    checksums = [Checksums(load) for load in loads]
    slice_s = seconds / rounds
    for _ in range(rounds):
        copied = copies.measure(slice_s)
        for row, append, checksum in zip(series, appends, checksums, strict=True):
            row.append(
                {
                    "copy": copied,
                    "crc": checksum.measure(slice_s),
                    "plain": append.measure(slice_s, check_crc=False),
                    "checked": append.measure(slice_s, check_crc=True),
                }
            )
    return [_row(load, row) for load, row in zip(loads, series, strict=True)]


def _row(load: Load, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Rates are bytes of records per second, those of the CRC kernel bytes of bodies; ns are per record."""
    size, body = load.record_size, load.shape.body

    def middle(name: str) -> float:
        return median(each[name] for each in rounds)

    return {
        "records": load.shape.records,
        "body": body,
        "record_size": size,
        "ns": 1e9 / middle("plain"),
        "gb_s": size * middle("plain") / 1e9,
        "of_copy": median(size * each["plain"] / each["copy"] for each in rounds),
        "crc_checked": {
            "ns": 1e9 / middle("checked"),
            "gb_s": size * middle("checked") / 1e9,
            "of_copy": median(size * each["checked"] / each["copy"] for each in rounds),
            "share_of_crc_check": median(1 - each["checked"] / each["plain"] for each in rounds),
            "of_crc": median(size * each["checked"] / (body * each["crc"]) for each in rounds),
            "of_crc_same_bodies": median(each["checked"] / each["crc"] for each in rounds),
        },
        "limits": {
            "copy_gb_s": middle("copy") / 1e9,
            "crc_ns": 1e9 / middle("crc"),
            "crc_gb_s": body * middle("crc") / 1e9,
        },
    }
