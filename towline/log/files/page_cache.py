"""Does with the memory of a segment what `advice` says."""

import os
from pathlib import Path
from typing import Final

from .advice import Advice
from .mapped_file import ADVICE_RANDOM, MappedFile

_FADVICE: Final = {Advice.WILL_NEED: os.POSIX_FADV_WILLNEED, Advice.DROP: os.POSIX_FADV_DONTNEED}


def advise_file(path: Path, advice: Advice, start: int = 0, size: int = 0) -> None:
    """For the bytes from `start`, `size` of them or all. Pages that are mapped or not synced stay. Raises OSError."""
    if advice not in _FADVICE:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, start, size, _FADVICE[advice])
    finally:
        os.close(fd)


def advise_reader(mapped: MappedFile, advice: Advice) -> None:
    """For one reader's mapping. Raises OSError."""
    if advice is Advice.NO_READ_AHEAD:
        mapped.advise(ADVICE_RANDOM)
