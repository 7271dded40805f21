"""Files of `diverged/`: bytes of the log that were cut off, read as records. No node need run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from towline.errors import MalformedRecord, NotInLog
from towline.format.record import record
from towline.limits import RECORD_SIZE_MAX
from towline.log.state.truncation_file import KeptTail, epochs_of, kept_tails
from towline.places import Store

_NAME: Final = 20  # digits of the log offset with which the name of a copy begins
_HEAD: Final = 8
CUT_BY_START: Final = "bytes behind the log's end, at a start or by `towline store repair`"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A copy of the log's bytes [start, end). `tail` is what it belongs to, where a master did not have it."""

    path: Path
    start: int
    tail: KeptTail | None

    @property
    def end(self) -> int:
        return self.start + self.path.stat().st_size

    def records(self, offset: int | None = None) -> Iterator[tuple[int, int]]:
        """(log offset, size) of every whole record from `offset` on, or from the first; ends where there is none.

        A kept piece begins with a record, but for bytes that a crash left behind the log's end.
        """
        data = np.memmap(self.path, dtype=np.uint8, mode="r")
        at = 0 if offset is None else offset - self.start
        while 0 <= at <= len(data) - record.SIZE_MIN:
            head = data[at : at + _HEAD].tobytes()
            size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:], "big")
            if magic not in (record.MAGIC_V1, record.MAGIC_V2) or not record.SIZE_MIN <= size <= len(data) - at:
                return  # a blank, the torn record that ended the log, or no record at all
            yield self.start + at, size
            at += size

    def read(self, offset: int) -> record.Record:
        """Raises NotInLog, MalformedRecord."""
        if not self.start <= offset < self.end:
            raise NotInLog(offset, self.start, self.end)
        with self.path.open("rb") as file:
            file.seek(offset - self.start)
            data = file.read(RECORD_SIZE_MAX)
        try:
            return record.decode(data)
        except MalformedRecord as error:
            raise MalformedRecord(error.rule, error.sentence, offset) from None

    def row(self) -> dict[str, Any]:
        """What `towline inspect diverged` says of the file. `time` is in epoch ms, None where it is not known."""
        cut = self.tail.cut if self.tail is not None else None
        stamp = self.path.stem[_NAME + 1 :].partition("-")[0]
        parts = epochs_of(self.tail) if self.tail is not None else []
        return {
            "file": self.path.name,
            "start": self.start,
            "end": self.end,
            "epochs": [number for number, start, end in parts if start < self.end and end > self.start],
            "time": int(stamp) if stamp.isdecimal() else None,
            "master": cut.master if cut is not None else None,
            "why": cut.why if cut is not None else CUT_BY_START,
            "records": sum(1 for _ in self.records()),
        }


def kept_files(store: Store) -> list[KeptFile]:
    """Every copy of the log's bytes in diverged/, in the order of the log. Raises MalformedFile."""
    tails = {name: kept for kept in kept_tails(store) for name, _, _ in kept.files}
    paths = store.diverged.glob("*.log") if store.diverged.is_dir() else iter(())
    named = [path for path in sorted(paths) if path.name[:_NAME].isdecimal()]
    return [KeptFile(path, int(path.name[:_NAME]), tails.get(path.name)) for path in named]
