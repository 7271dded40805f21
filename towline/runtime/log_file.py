"""The log file of a node: all its processes append to it, and one, the supervisor, moves it aside when it is full.

Every process looks before each line whether the file at the path is still the one that it has open, and opens it anew
where it is not: the line that it writes in between stands in the file that was moved, and none is lost.
"""

import os
import re
from contextlib import suppress
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from pathlib import Path
from typing import Final

_STANDARD: Final = (1, 2)  # output and error


class LogFile(WatchedFileHandler):
    """Appends to the file at a path, whichever it is. Where standard output and error go to the log, they follow it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        follow(path)

    def reopenIfNeeded(self) -> None:
        before = self.dev, self.ino
        super().reopenIfNeeded()
        if (self.dev, self.ino) != before:
            follow(Path(self.baseFilename))


def move_aside(path: Path, size_max: int, count: int) -> bool:
    """Renames a log of `size_max` bytes or more to `<path>.1`, that to `.2` and so on; the oldest beyond `count` go.

    0: no log is too large. For one process alone. Whether it was done; the file at the path is made by who writes next.
    Raises OSError.
    """
    try:
        if not size_max or path.stat().st_size < size_max:
            return False
    except FileNotFoundError:
        return False
    mover = RotatingFileHandler(path, backupCount=count, encoding="utf-8", delay=True)
    mover.doRollover()
    mover.close()
    for former, number in _former(path):
        if number > count:
            former.unlink(missing_ok=True)
    return True


def follow(path: Path) -> None:
    """Standard output and error go to the log at `path` from now on, where they went to it or to one that was moved."""
    theirs = [number for number in _STANDARD if _goes_to(number, path)]
    if not theirs:
        return
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    for number in theirs:
        os.dup2(log, number)
    os.close(log)


def _goes_to(number: int, path: Path) -> bool:
    with suppress(OSError):  # it is closed
        found = os.fstat(number)
        for each in (path, *(former for former, _ in _former(path))):
            with suppress(FileNotFoundError):
                if os.path.samestat(found, each.stat()):
                    return True
    return False


def _former(path: Path) -> list[tuple[Path, int]]:
    """The files that were moved aside, each with its number."""
    found = [(each, re.fullmatch(r"\.(\d+)", each.name.removeprefix(path.name))) for each in path.parent.iterdir()]
    return [(each, int(number[1])) for each, number in found if number]
