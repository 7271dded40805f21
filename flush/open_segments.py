"""The segments that hold unsynced bytes, open from their creation until they are synced.

The kernel reports a write-back error once to each file that is open when it happens. A segment opened only for its
first sync may have lost bytes before, and its sync would succeed (H5).
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from towline.log.files.mapped_file import MappedFile
from towline.log.files.mapped_file_queue import list_segments
from towline.log.files.segment_files import segment_name


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A segment: `mapped` is synced and keeps the file open; `fd` is for pwrite, -1 where nothing is committed."""

    mapped: MappedFile
    fd: int

    def close(self) -> None:
        self.mapped.release()
        if self.fd >= 0:
            os.close(self.fd)


class OpenSegments:
    """The open segments of a directory, `size` bytes each. `commits`: bytes are also written to them here."""

    def __init__(self, directory: Path, size: int, *, commits: bool) -> None:
        self._directory, self._size, self._commits = directory, size, commits
        self._open: dict[int, OpenSegment] = {}

    def refresh(self, flushed: int) -> None:
        """Opens segments that end behind `flushed` and closes the others. Raises what `list_segments` raises."""
        for base in [base for base in self._open if base + self._size <= flushed]:
            self._open.pop(base).close()
        for base in list_segments(self._directory, self._size):
            if base + self._size > flushed and base not in self._open:
                with contextlib.suppress(FileNotFoundError):  # removed since the directory was read
                    self._open[base] = self._opened(base)

    def ranges(self, start: int, end: int) -> Iterator[tuple[OpenSegment, int, int]]:
        """Splits [start, end) of the log by segment: yields each segment with its range of the log."""
        while start < end:
            base = start - start % self._size
            if base not in self._open:
                self.refresh(start)
            assert base in self._open, f"bytes at {start} were published without a segment"
            stop = min(end, base + self._size)
            yield self._open[base], start, stop
            start = stop

    def _opened(self, base: int) -> OpenSegment:
        path = self._directory / segment_name(base)
        mapped = MappedFile.open(path, self._size, writable=True)
        return OpenSegment(mapped, os.open(path, os.O_RDWR | os.O_CLOEXEC) if self._commits else -1)
