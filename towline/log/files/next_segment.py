"""How the next segment comes into the log: one way for allocate and for the writer when allocate is late (H4)."""

import os
import secrets
from collections.abc import Generator
from pathlib import Path

from .segment_files import create_segment, publish, segment_name, sync_directory


def ensure_segment(commitlog: Path, staging: Path, base: int, size: int) -> bool:
    """Makes sure that the segment of `base` exists durably; whether this call made it. Both may try at once: one wins.

    `staging` is on the same file system. Raises DiskFull, SyncFailed, OSError. The length of a segment that existed is
    checked when it is mapped. Nothing is warmed: a segment is in the log as soon as it can be, and warm later.
    """
    steps = ensure_in_steps(commitlog, staging, base, size)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def ensure_in_steps(commitlog: Path, staging: Path, base: int, size: int) -> Generator[None, None, bool]:
    """The same in two steps: the file is made, and linked into the log.

    Closing the generator between the two drops what is under construction.
    """
    target = commitlog / segment_name(base)
    if target.exists():
        sync_directory(commitlog)
        return False
    # Two processes may be at it, and a killed one may have left its own: the names under construction differ.
    staged = create_segment(staging, size, f"{segment_name(base)}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield
        return publish(staged, target)
    finally:
        staged.unlink(missing_ok=True)


def drop_abandoned(staging: Path) -> int:
    """Removes what a process that has gone left under construction; how many files."""
    left = [path for path in staging.iterdir() if not Path(f"/proc/{_builder(path.name)}").exists()]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def _builder(name: str) -> int:
    """The pid in the name of a file under construction, as `ensure_in_steps` makes it; 0 in any other name."""
    parts = name.split("-")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0
