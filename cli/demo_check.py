"""Checks what the demo promises: the slave has every acknowledged message, once and unchanged, and finds it;
both CommitLogs are the same bytes over [the greater of both beginnings, the lesser of both ends) (H1).
"""

import time
import zlib
from dataclasses import dataclass
from typing import Any, Final

from towline.client.admin import AdminClient
from towline.client.columns import Columns
from towline.client.consumer import Consumer
from towline.errors import DemoFailed
from towline.limits import MIB
from towline.places import Store
from towline.runtime.positions import Position

from . import flights
from .demo_load import Sent, progress_bar
from .demo_nodes import RunningNode
from .stored import read_log

FOUND_MAX: Final = 64  # messages of one lookup, as in RocketMQ
READ_MAX_S: Final = 120.0
_POLL_MS: Final = 1000


_READ_STEP: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class Span:
    """A CommitLog from its first byte to its end."""

    store: Store
    low: int
    end: int


@dataclass(frozen=True, slots=True)
class Compared:
    """`compared` bytes are in both logs; `differs_at` is the first that differs, or None."""

    compared: int
    differs_at: int | None
    same_end: bool

    @property
    def identical(self) -> bool:
        return self.differs_at is None and self.same_end


def compare_logs(one: Span, other: Span, segment_size: int) -> Compared:
    """Reads both, a few MiB at a time; a step never crosses a segment."""
    low, end = max(one.low, other.low), min(one.end, other.end)
    at = low
    while at < end:
        size = min(_READ_STEP, end - at, segment_size - at % segment_size)
        left, right = read_log(one.store, at, size), read_log(other.store, at, size)
        if left != right or len(left) != size:
            return Compared(end - low, at + _first_difference(left, right), one.end == other.end)
        at += size
    return Compared(max(0, end - low), None, one.end == other.end)


def _first_difference(left: bytes, right: bytes) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


@dataclass
class Read:
    """What came back from the slave, counted by unique key."""

    records: int = 0
    distinct: int = 0
    doubled: int = 0  # came more than once
    foreign: int = 0  # were never sent
    changed: int = 0  # came with another body
    lost: int = 0  # were sent and did not come
    seconds: float = 0.0


def read_back(slave: RunningNode, sent: Sent) -> Read:
    """Every message of the slave's own queues, in columns, against the CRC of what was sent."""
    read, missing = Read(), dict(sent.crcs)
    seen: set[bytes] = set()
    started = time.monotonic()
    deadline = started + READ_MAX_S
    with _consumer(slave) as consumer, progress_bar("reading") as progress:
        task = progress.add_task("read", total=len(missing))
        while not consumer.at_end:
            columns = consumer.poll_columns(_POLL_MS)
            if columns is not None:
                _compare(columns, missing, seen, read)
                progress.update(task, completed=len(seen))
            if time.monotonic() > deadline:
                raise DemoFailed(f"the slave gave {read.records} records within {READ_MAX_S:.0f} s")
    read.distinct, read.lost, read.seconds = len(seen), len(missing), time.monotonic() - started
    return read


def _compare(columns: Columns, missing: dict[bytes, int], seen: set[bytes], read: Read) -> None:
    read.records += len(columns)
    for key, body in zip(columns.unique_keys(), columns.bodies(), strict=True):
        if key in seen:
            read.doubled += 1
            continue
        crc = missing.pop(key, None)
        if crc is None:
            read.foreign += 1
            continue
        seen.add(key)
        read.changed += crc != zlib.crc32(body)


def find_aircraft(slave: RunningNode, sent: Sent) -> dict[str, Any]:
    """All flights of one aircraft, looked up by its tail number in the slave's index."""
    tail = sent.busiest_aircraft(FOUND_MAX)
    with AdminClient(slave.endpoint("serve"), name="towline demo") as admin:
        found = admin.by_key(flights.TOPIC, tail, max_count=FOUND_MAX)
    keys = {(message.unique_key or "").encode() for message in found}
    expected = sent.by_aircraft[tail]
    return {"key": tail, "expected": len(expected), "found": len(found), "right": keys == expected}


def count_carrier(slave: RunningNode, sent: Sent) -> dict[str, Any]:
    """The busiest carrier's flights, filtered by tag on the slave."""
    carrier, count = sent.busiest_carrier, 0
    deadline = time.monotonic() + READ_MAX_S
    with _consumer(slave, carrier) as consumer:
        while not consumer.at_end:
            columns = consumer.poll_columns(_POLL_MS)
            count += 0 if columns is None else len(columns)
            if time.monotonic() > deadline:
                raise DemoFailed(f"the slave gave {count} records with the tag {carrier} within {READ_MAX_S:.0f} s")
    expected = sent.by_carrier[carrier]
    return {"tag": carrier, "expected": expected, "found": count, "right": count == expected}


def compare_commitlogs(master: RunningNode, slave: RunningNode) -> Compared:
    spans = [
        Span(node.store, node.position(Position.LOG_MIN), node.position(Position.APPENDED)) for node in (master, slave)
    ]
    return compare_logs(spans[0], spans[1], master.view.settings.mapped_file_size_commit_log)


def _consumer(slave: RunningNode, tags: str = "*") -> Consumer:
    return Consumer(
        slave.endpoint("serve"), flights.TOPIC, tags=tags, max_bytes=4 * MIB, suspend_ms=0, name="towline demo"
    )
