"""Names of a log directory: segments by the offset that they begin at, partitions by topic and number."""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from towline.kafka.errors import CleaningCut, IllegalTopicName, MalformedLog, NoPartitionHere, Rule

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"  # behind the other suffix: is to be removed
SWAP: Final = ".swap"  # takes the place of others
DERIVED: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX)

OFFSET_MAX: Final = 2**63 - 1

_SEGMENT: Final = re.compile(r"([0-9]{20})(\.log|\.snapshot)")
_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_STAGED: Final = ".tmp"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of the segment that begins at offset `base`."""

    directory: Path
    base: int

    def path(self, suffix: str) -> Path:
        return self.directory / f"{self.base:020d}{suffix}"

    @property
    def log(self) -> Path:
        return self.path(LOG)

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self.log.stat().st_size


def segments(directory: Path) -> list[SegmentFiles]:
    """In the order of their offsets. Raises CleaningCut, and NoPartitionHere where there is none.

    Raises MalformedLog for a name that is no offset.
    """
    found: list[int] = []
    for path in _entries(directory):
        if path.name.endswith(LOG + SWAP):
            raise CleaningCut(str(path))
        match = _SEGMENT.fullmatch(path.name)
        if match and match[2] == LOG:
            found.append(_offset(path, match[1]))
    if not found:
        raise NoPartitionHere(str(directory), "it has no segment")
    return [SegmentFiles(directory, base) for base in sorted(found)]


def _offset(path: Path, digits: str) -> int:
    if int(digits) > OFFSET_MAX:
        raise MalformedLog(str(path), 0, Rule.OFFSET_RANGE, f"its name is an offset above {OFFSET_MAX}")
    return int(digits)


def snapshots(directory: Path) -> list[SegmentFiles]:
    """Of producers, in the order of their offsets."""
    matches = (_SEGMENT.fullmatch(path.name) for path in _entries(directory))
    return [
        SegmentFiles(directory, offset)
        for offset in sorted(int(match[1]) for match in matches if match and match[2] == SNAPSHOT)
    ]


def drop_snapshots(directory: Path, kept: Collection[int]) -> None:
    """Removes snapshots of other offsets than these."""
    for snapshot in snapshots(directory):
        if snapshot.base not in kept:
            snapshot.path(SNAPSHOT).unlink()


def topic_partition(directory: Path) -> tuple[str, int]:
    """What its name says. Raises NoPartitionHere."""
    match = _DIRECTORY.fullmatch(directory.name)
    if match is None or not directory.is_dir():
        raise NoPartitionHere(str(directory), "it has no name as <topic>-<number>" if match is None else "it is none")
    return match[1], int(match[2])


def partitions(root: Path) -> list[Path]:
    """Directories of partitions; those that a broker is to delete, or holds for a move, are left out."""
    found = [path for path in _entries(root) if path.is_dir() and _DIRECTORY.fullmatch(path.name)]
    return sorted(found, key=topic_partition)


def check_topic(name: str) -> None:
    """Raises IllegalTopicName."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise IllegalTopicName(name)


def write_whole(path: Path, data: bytes) -> None:
    """Replaces a small file, so that a crash leaves the content before or this one."""
    staged = path.with_name(path.name + _STAGED)
    with staged.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
    sync_directory(path.parent)


def drop_staged(directory: Path) -> None:
    """Removes what a crash left of small files that were being written."""
    for path in directory.glob(f"*{_STAGED}"):
        path.unlink()


def sync_directory(path: Path) -> None:
    """Makes the names in it durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries(directory: Path) -> Iterator[Path]:
    try:
        return directory.iterdir()
    except OSError as error:
        raise NoPartitionHere(str(directory), str(error.strerror)) from None
