"""The append and stamp kernel alone: a request validated, copied into a warm segment, stamped and published."""

from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from towline.errors import BenchFailed
from towline.format.record.rules import Rule
from towline.format.wire.frames import Group, encode_put
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.base.forms import RealTopics
from towline.kernels.base.ownership import own_values
from towline.kernels.jit.rows import APPEND, GROUP, PUT_QUEUE, REQUEST, RequestStatus, Sender, fields_of
from towline.kernels.put import append
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT, RESULT_SIZE
from towline.limits import MESSAGE_BODY_MAX, REQUEST_GROUPS_MAX
from towline.log.commitlog.commit_log import LogTail
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
    """What put does with a request once it is received: its row is given to the append, and the tail follows."""

    def __init__(self, segment: MappedFile, load: Load) -> None:
        self._segment = segment
        self._load = load
        head = encode_put(1, 0, 1 << 62, [Group(TOPIC.encode(), 0, load.shape.records, len(load.records))])
        self._frames = [np.frombuffer(data, dtype=np.uint8) for data in (head, load.records)]
        self._requests = np.zeros(1, REQUEST)
        self._states = np.zeros(1, APPEND)
        self._row, self._state = fields_of(self._requests)[0], fields_of(self._states)[0]
        self._row.head, self._row.records = (frame.ctypes.data for frame in self._frames)
        self._row.head_size, self._row.records_size = (frame.size for frame in self._frames)
        self._row.sender = Sender.CLIENT
        state = self._state
        state.store_timestamp = state.now_ms = 1
        state.bytes_max = state.request_limit = load.shape.records * MESSAGE_BODY_MAX
        state.body_max, state.stamped_at = MESSAGE_BODY_MAX, 8
        self._queues = np.zeros(1, PUT_QUEUE)
        self._queues["access"] = Sender.CLIENT
        directory = QueueDirectory()
        directory.add(TOPIC.encode(), 0)
        known = directory.arrays, self._queues, np.zeros(1, np.int64), np.zeros(append.PLACES_SIZE, np.int64)
        groups, positions = np.zeros(REQUEST_GROUPS_MAX, GROUP), np.zeros(16, np.uint8)
        terms = own_values("DefaultCluster"), HOST, RealTopics().at(0, 0), np.zeros(RESULT_SIZE, np.int64)
        self._appender: append.Appender = (
            self._states,
            segment.array,
            positions,
            np.zeros(0, np.int64),
            known,
            groups,
            terms,
        )
        self._marks = np.zeros(8 * append.MARKS_SIZE, np.uint8)
        self._answers = np.zeros(2 * append.ANSWER_MAX, np.uint8)
        self._tail = self._from_the_start()

    def measure(self, seconds: float, *, check_crc: bool) -> float:
        """Records per second. The segment is begun anew, outside the time taken, when it is full."""
        size = len(self._load.records)
        done, taken = 0, 0.0
        self._state.checks = FROM_CLIENT | (CHECK_CRC if check_crc else 0)
        while taken < seconds:
            if not self._tail.fits(size):
                self._queues["next_offset"], self._tail = 0, self._from_the_start()
            started = busy_seconds()
            while self._tail.fits(size) and taken + busy_seconds() - started < seconds:
                self._append(size)
                done += self._load.shape.records
            taken += busy_seconds() - started
        return done / taken

    def _append(self, size: int) -> None:
        tail, state = self._tail, self._state
        state.at, state.end = tail.window(size)
        state.written = state.size = 0
        self._row.status = RequestStatus.WAITING
        append.append_rows(self._requests, 0, 1, self._marks, self._answers, self._appender)
        if self._row.status != RequestStatus.STORED:
            rule = Rule(self._row.rule)
            raise BenchFailed(f"{RequestStatus(self._row.status).name}: record {self._row.record}: {rule.sentence}")
        tail.moved(state.at)

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
        for row, measured, checksum in zip(series, appends, checksums, strict=True):
            row.append(
                {
                    "copy": copied,
                    "crc": checksum.measure(slice_s),
                    "plain": measured.measure(slice_s, check_crc=False),
                    "checked": measured.measure(slice_s, check_crc=True),
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
