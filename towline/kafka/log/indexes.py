"""The index entries of a segment, as a broker makes them while it appends, and derives them anew from the log."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from towline.kafka.format import offset_index, time_index, transaction_index
from towline.kafka.format.batch import NONE
from towline.kafka.format.records import Numbers
from towline.kafka.format.transaction_index import Aborted

from .files import INDEX, TIME_INDEX, TRANSACTION_INDEX
from .scan import Batches

NO_TIME: Final = NONE


@dataclass(slots=True)
class Indexes:
    """Entries of one segment that begins at offset `base`; one for more than `interval` bytes of batches."""

    base: int
    interval: int
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    time_offsets: list[int] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    max_timestamp: int = NO_TIME
    max_offset: int = NONE  # of the last record of the batch that has it
    since: int = 0  # bytes of batches behind the last entry

    def add(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch that is appended at this byte."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_offset = max_timestamp, last_offset
        if self.since > self.interval:
            self.offsets.append(last_offset)
            self.positions.append(position)
            self._add_time()
            self.since = 0
        self.since += size

    def add_all(self, batches: Batches) -> None:
        """Batches of the segment in their order."""
        names = ("position", "size", "last_offset", "max_timestamp")
        for row in zip(*(batches[name].tolist() for name in names), strict=True):
            self.add(*row)

    def finished(self) -> dict[str, bytes]:
        """The files by their suffix, as they stand behind a roll or a clean stop: cut, the greatest time at the end."""
        self._add_time()
        files = {
            INDEX: offset_index.encode(self.base, _numbers(self.offsets), _numbers(self.positions)),
            TIME_INDEX: time_index.encode(self.base, _numbers(self.timestamps), _numbers(self.time_offsets)),
        }
        if self.aborted:
            files[TRANSACTION_INDEX] = transaction_index.encode(self.aborted)
        return files

    def _add_time(self) -> None:
        last = self.timestamps[-1] if self.timestamps else NO_TIME
        if self.max_timestamp > last:
            self.timestamps.append(self.max_timestamp)
            self.time_offsets.append(self.max_offset)


def _numbers(values: list[int]) -> Numbers:
    return np.array(values, np.int64)
