"""A file in memory that says which input a worker is at: when the worker dies or hangs, here is what it had."""

import mmap
import struct
from pathlib import Path
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<qqq")  # job, number of the input, its bytes
ROOM: Final = 1 << 20


class Place(NamedTuple):
    """Where a worker is: a job, how many inputs it has begun, and the bytes of the last."""

    job: int
    number: int
    data: bytes


class Slot:
    """One process writes, another reads."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        with path.open("w+b" if new else "r+b") as file:
            if new:
                file.truncate(_HEAD.size + ROOM)
            self._memory = mmap.mmap(file.fileno(), _HEAD.size + ROOM)

    def write(self, job: int, number: int, data: bytes) -> None:
        """`data` has ROOM bytes at most."""
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        self._memory[: _HEAD.size] = _HEAD.pack(job, number, len(data))

    def where(self) -> tuple[int, int]:
        """Job and number, without the bytes."""
        job, number, _ = _HEAD.unpack_from(self._memory)
        return job, number

    def read(self) -> Place:
        job, number, size = _HEAD.unpack_from(self._memory)
        return Place(job, number, self._memory[_HEAD.size : _HEAD.size + size])

    def close(self) -> None:
        self._memory.close()
