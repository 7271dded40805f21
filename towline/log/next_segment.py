"""How the next segment comes into the log: one function for allocate and for the writer when allocate is late (H4)."""

import os
import secrets
from pathlib import Path

from .segment_files import create_segment, publish, segment_name, sync_directory, warm


def ensure_segment(commitlog: Path, staging: Path, base: int, size: int, *, warmed: bool = False) -> bool:
    """Makes sure that the segment of `base` exists durably; whether this call made it. Both may try at once: one wins.

    `warmed` brings it into the page cache first, for which the writer has no time but allocate has.

    `staging` is on the same file system. Raises DiskFull, SyncFailed. The length of a segment that existed is checked
    when it is mapped.
    """
    target = commitlog / segment_name(base)
    if target.exists():
        sync_directory(commitlog)
        return False
    # Two processes may be at it, and a killed one may have left its own: the names under construction differ.
    staged = create_segment(staging, size, f"{segment_name(base)}-{os.getpid()}-{secrets.token_hex(4)}")
    if warmed:
        warm(staged, size)
    return publish(staged, target)
