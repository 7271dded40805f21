"""The history of a drill: one JSON line per message, all of one width, and one per event.

`history.jsonl` is plain JSON with every value padded to its column, so that the checker reads millions of lines as one
numpy array and anybody else with any JSON reader. Times are seconds since the drill began.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

HISTORY: Final = "history.jsonl"
EVENTS: Final = "events.jsonl"
SAMPLES: Final = "samples.jsonl"
STORES: Final = "stores.json"

KEY_SIZE: Final = 24  # 8 digits of the run, 2 of the producer, 14 of the message, each producer counting from 0
NUMBER_AT: Final = 10
# Of a message: PUT_OK; in the log, not promised; refused or without an answer, which says nothing of the log.
ACKNOWLEDGED, STORED, UNKNOWN = "acknowledged", "stored", "unknown"
_COLUMNS: Final = (
    ("key", KEY_SIZE + 2),
    ("topic", 20),
    ("queue", 4),
    ("offset", 12),
    ("crc", 10),
    ("status", len(ACKNOWLEDGED) + 2),
    ("attempts", 8),
    ("t_start", 14),
    ("t_end", 14),
)


def _template() -> tuple[str, np.dtype[np.void]]:
    text, formats = "{", []
    offsets: list[int] = []
    for name, width in _COLUMNS:
        text += f'{", " if offsets else ""}"{name}": '
        offsets.append(len(text))
        formats.append(f"S{width}")
        text += "#" * width
    line = text + "}\n"
    dtype = np.dtype(
        {"names": [name for name, _ in _COLUMNS], "formats": formats, "offsets": offsets, "itemsize": len(line)}
    )
    for name, width in _COLUMNS:
        line = line.replace(f'"{name}": ' + "#" * width, f'"{name}": %{"-" if _is_text(name) else ""}{width}s', 1)
    return line, dtype


def _is_text(name: str) -> bool:
    return name in ("key", "topic", "status")


_LINE, _DTYPE = _template()


def key_of(run: int, producer: int, number: int) -> str:
    """A unique key; equal ones of two drills are unlikely."""
    return f"{run:08x}{producer:02d}{number:014d}"


def topic_of(run: int, producer: int) -> str:
    return f"drill-{run:08x}-{producer}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one message. `queue` and `offset` are -1 where nobody said where it is."""

    key: str
    topic: str
    queue: int
    offset: int  # in the queue
    crc: int  # of the body as it was sent
    status: str
    attempts: int  # how often it was sent: it may be there so many times
    t_start: float
    t_end: float


def line_of(one: Outcome) -> bytes:
    values = (f'"{one.key}"', f'"{one.topic}"', one.queue, one.offset, one.crc, f'"{one.status}"', one.attempts)
    return (_LINE % (*values, f"{one.t_start:.6f}", f"{one.t_end:.6f}")).encode()


@dataclass(frozen=True, slots=True)
class History:
    """Columns of a whole history, in the order of the file."""

    keys: npt.NDArray[np.bytes_]
    topics: npt.NDArray[np.bytes_]
    queues: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    crcs: npt.NDArray[np.int64]
    statuses: npt.NDArray[np.bytes_]
    attempts: npt.NDArray[np.int64]
    t_start: npt.NDArray[np.float64]
    t_end: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.keys)

    def has(self, status: str) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.statuses == status.encode()
        return found


def read_history(directory: Path) -> History:
    """Raises ValueError for a file whose lines are not all of the one width."""
    data = (directory / HISTORY).read_bytes()
    if len(data) % _DTYPE.itemsize:
        raise ValueError(f"{directory / HISTORY} has {len(data)} bytes, no multiple of {_DTYPE.itemsize}")
    rows = np.frombuffer(data, dtype=_DTYPE)

    def text(name: str) -> npt.NDArray[np.bytes_]:
        return np.char.strip(rows[name], b'" ')

    def number(name: str, kind: Any) -> npt.NDArray[Any]:
        return np.char.strip(rows[name]).astype(kind)

    return History(
        text("key").astype(f"S{KEY_SIZE}"),
        text("topic"),
        number("queue", np.int64),
        number("offset", np.int64),
        number("crc", np.int64),
        text("status"),
        number("attempts", np.int64),
        number("t_start", np.float64),
        number("t_end", np.float64),
    )


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
