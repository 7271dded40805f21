"""Writes a log without a node: records of one size in whole segments, as a store would hold them.

Every record has its own place, number, time, key and unique key, and one of 65,536 random bodies with its CRC, so that
no column of them is a run of equal values. Numpy makes some two million a second, which no producer could.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.format.record import blank, record
from towline.format.record.record import Host, Record
from towline.limits import GIB
from towline.log.files.segment_files import segment_name
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.places import Store

from .shapes import LOOPBACK, TAG

BODY: Final = 100
PER_TOPIC: Final = 1000
RECORDS_PER_MS: Final = 1000
_BODIES: Final = 65_536
_AT_ONCE: Final = 100_000  # records
_NOON: Final = 1_700_000_000_000
_TOPIC: Final = "bench-0000"
_UNIQUE: Final = "0" * 32
_KEY: Final = "k" * 12
_DIGITS: Final = 16
_SPREAD: Final = 2_654_435_761

Rows = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MadeLog:
    """A log of records of one size: `warm` is behind the first record of every queue, `end` behind the last.

    `total` counts these first ones too, `records` does not.
    """

    root: Path
    segment_size: int
    record_size: int
    records: int
    total: int
    warm: int
    end: int


def make_log(
    root: Path,
    records: int,
    queues: int,
    *,
    segment_size: int = GIB,
    body: int = BODY,
    per_topic: int = PER_TOPIC,
    keys: bool = False,
) -> MadeLog:
    """`records` and the first of each queue, queue after queue in turn, in segments of a store at `root`.

    Topics `bench-0000` and so on have `per_topic` queues each; `keys` gives each record KEYS beside TAGS and UNIQ_KEY.
    A record has 152 bytes and its body, 18 more with keys.
    """
    template = _template(body, keys)
    stamp = _Stamp(template, body, queues, per_topic)
    size = len(template)
    per_segment = (segment_size - blank.SIZE) // size
    total = records + queues
    assert queues < per_segment, "the first records of all queues stand in the first segment"
    commitlog = Store(root).commitlog
    commitlog.mkdir(parents=True)
    end = 0
    for segment, first in enumerate(range(0, total, per_segment)):
        numbers = np.arange(first, min(first + per_segment, total))
        with (commitlog / segment_name(segment * segment_size)).open("wb") as file:
            for part in np.array_split(numbers, -(-len(numbers) // _AT_ONCE)):
                file.write(stamp.rows(part, segment * segment_size + (part - first) * size).tobytes())
            end = segment * segment_size + file.tell()
            if len(numbers) == per_segment:
                file.write(blank.encode(segment_size - file.tell()))
            file.truncate(segment_size)
    return MadeLog(root, segment_size, size, records, total, queues * size, end)


def at_rest(log: MadeLog) -> MadeLog:
    """Its store says where the log ends, as a node that was stopped leaves it: nobody walks over all of it for that."""
    durable = DurableFile(log.root)
    durable.save(Durable(flushed=log.end, segment_base=log.end - log.end % log.segment_size, log_min=0))
    durable.close()
    CheckpointFile(log.root).save(Checkpoint(confirm_phy_offset=log.end))
    return log


def _template(body: int, keys: bool) -> bytes:
    """A record whose topic has as many digits whatever its number, so that all have one size."""
    properties = f"TAGS\x01{TAG}\x02UNIQ_KEY\x01{_UNIQUE}\x02" + (f"KEYS\x01{_KEY}\x02" if keys else "")
    host = Host(LOOPBACK, 10_911)
    return record.encode(
        Record(
            topic=_TOPIC.encode(),
            body=bytes(body),
            properties=properties.encode(),
            born_host=host,
            store_host=host,
            born_timestamp=_NOON,
        )
    )


class _Stamp:
    """Writes what differs between records into copies of the template."""

    def __init__(self, template: bytes, body: int, queues: int, per_topic: int) -> None:
        self._template = np.frombuffer(template, dtype=np.uint8)
        self._queues, self._per_topic = queues, per_topic
        self._body_at = record.LAYOUT.size
        bodies = [os.urandom(body) for _ in range(_BODIES)]
        self._bodies = np.frombuffer(b"".join(bodies), dtype=np.uint8).reshape(_BODIES, body)
        crcs = np.array([zlib.crc32(each) & 0x7FFF_FFFF for each in bodies], dtype=">i4")
        self._crcs = crcs[:, None].view(np.uint8)
        self._topic_at = template.index(_TOPIC.encode()) + len(_TOPIC) - 4
        self._unique_at = template.index(_UNIQUE.encode(), self._topic_at)
        self._key_at = template.find(_KEY.encode(), self._topic_at)

    def rows(self, numbers: Numbers, at: Numbers) -> Rows:
        """One row of bytes for each record; queue `number % queues`."""
        made = np.tile(self._template, (len(numbers), 1))
        queue = numbers % self._queues
        for name, values in (
            ("queue_offset", numbers // self._queues),
            ("physical_offset", at),
            ("store_timestamp", _NOON + numbers // RECORDS_PER_MS),
        ):
            _field(made, name, values.astype(">i8"))
        _field(made, "queue_id", (queue % self._per_topic).astype(">i4"))
        chosen = numbers * _SPREAD % _BODIES
        made[:, self._body_at : self._body_at + self._bodies.shape[1]] = self._bodies[chosen]
        crc_at = record.LAYOUT.offset["body_crc"]
        made[:, crc_at : crc_at + 4] = self._crcs[chosen]
        _hex(made, self._topic_at, 4, queue // self._per_topic)
        _hex(made, self._unique_at + len(_UNIQUE) - _DIGITS, _DIGITS, numbers * _SPREAD)
        if self._key_at >= 0:
            _hex(made, self._key_at, len(_KEY), numbers)
        return made


def _field(made: Rows, name: str, values: npt.NDArray[np.signedinteger]) -> None:
    at = record.LAYOUT.offset[name]
    made[:, at : at + values.itemsize] = values[:, None].view(np.uint8)


def _hex(made: Rows, at: int, width: int, values: Numbers) -> None:
    """The values in `width` digits."""
    for digit in range(width):
        nibble = (values >> (4 * digit)) & 15
        made[:, at + width - 1 - digit] = np.where(nibble < 10, 48 + nibble, 55 + nibble)
