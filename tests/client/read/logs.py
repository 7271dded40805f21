"""A node's log and positions as a reader on its machine finds them: files that a test writes."""

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from towline.client.read.log_tail import LogTail
from towline.format.record import blank
from towline.format.record.record import Record, encode
from towline.places import Store

SEGMENT: Final = 4096
GENERATION, APPENDED, REPLICATED, DISPATCHED = range(4)  # words of the positions
ENDPOINT: Final = "ipc:///run/node/serve.sock"


class LogOfNode:
    """Records are appended at `end`; `confirm` and `dispatch` move the positions up to there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / Store(directory).commitlog.name
        self.directory.mkdir()
        self.positions = directory / "positions"
        self.positions.write_bytes(bytes(mmap.PAGESIZE))
        with self.positions.open("r+b") as file:
            self._mapping = mmap.mmap(file.fileno(), 0)
        self.words = memoryview(self._mapping).cast("q")
        self.words[GENERATION] = 77
        self.end = 0
        self._offsets: dict[tuple[bytes, int], int] = {}

    @property
    def welcome(self) -> dict[str, Any]:
        file, directory = self.positions.stat(), self.directory.stat()
        return {
            "commitlog": str(self.directory),
            "tail": {
                "positions": str(self.positions),
                "file": [file.st_dev, file.st_ino],
                "directory": [directory.st_dev, directory.st_ino],
                "generation": [GENERATION, 77],
                "confirmed": [APPENDED, REPLICATED],
                "dispatched": DISPATCHED,
                "segment_size": SEGMENT,
            },
        }

    def tail(self) -> LogTail:
        found = LogTail.of(ENDPOINT, self.welcome)
        assert found is not None
        return found

    def write(self, data: bytes) -> int:
        """Appends bytes as they are; their log offset."""
        at, self.end = self.end, self.end + len(data)
        path = self.directory / f"{at - at % SEGMENT:020d}"
        if not path.exists():
            path.write_bytes(bytes(SEGMENT))
        with path.open("r+b") as file:
            file.seek(at % SEGMENT)
            file.write(data)
        return at

    def roll(self) -> None:
        """Ends the segment with a blank."""
        left = SEGMENT - self.end % SEGMENT
        self.write(blank.encode(left))
        self.end += left - blank.SIZE

    def append(self, topic: bytes = b"t", queue: int = 0, size: int = 30, *, confirm: bool = True, **more: Any) -> int:
        """Appends the next record of a queue; its queue offset."""
        number = self._offsets.get((topic, queue), 0)
        given = {"topic": topic, "queue_id": queue, "queue_offset": number, "store_timestamp": 1} | more
        record = Record(body=b"%d:" % number + bytes(size), **given)
        length = len(encode(record))
        if self.end % SEGMENT + length + blank.SIZE > SEGMENT:
            self.roll()
        self.write(encode(replace(record, physical_offset=self.end)))
        self._offsets[topic, queue] = number + 1
        if confirm:
            self.confirm()
        return number

    def ends(self, topic: bytes = b"t") -> list[dict[str, int]]:
        """What the node answers to a question about its queues."""
        return [{"queue": queue, "min": 0, "max": end} for (name, queue), end in self._offsets.items() if name == topic]

    def confirm(self) -> None:
        self.words[APPENDED] = self.words[REPLICATED] = self.end

    def dispatch(self) -> None:
        self.words[DISPATCHED] = self.end
