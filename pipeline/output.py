"""A directory of files that one run makes: all of them, or for its readers none.

Tasks write under names of their own; the driver moves what counts to the files' names and publishes `manifest.json` at
one stroke. What a run left that was killed, the next one removes, because no manifest names it.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from towline.log.files.segment_files import sync_directory
from towline.runtime.locks import StoreLock

from .archive_manifest import STAGING, publish_manifests
from .errors import OutputTaken
from .scratch import Scratch, make_scratch

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_PART: Final = "part-"
_LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task wrote and synced; "" where there was nothing to write."""

    path: str
    rows: int
    size: int
    crc: int


@dataclass(frozen=True)
class Output:
    """The directory while its lock is held and its staging is there."""

    root: Path
    scratch: Scratch

    def publish(self, written: Sequence[Written], suffix: str, facts: Mapping[str, Any]) -> list[Written]:
        """`part-00000`, ... in the order given, then the manifest with `facts`; what stands there now."""
        parts: list[Written] = []
        for each in written:
            if each.path:
                target = self.root / f"{_PART}{len(parts):05d}{suffix}"
                Path(each.path).replace(target)
                parts.append(Written(target.name, each.rows, each.size, each.crc))
        sync_directory(self.root)
        content = {"format": FORMAT, **facts, "files": [asdict(part) for part in parts]}
        publish_manifests({self.root / MANIFEST: content}, self.scratch.path)
        return parts


@contextmanager
def output(path: str) -> Iterator[Output]:
    """Raises OutputTaken, StoreTaken while another job writes there."""
    root = Path(path).resolve()
    root.mkdir(parents=True, exist_ok=True)
    lock = StoreLock(root / _LOCK)
    try:
        if (root / MANIFEST).exists():
            raise OutputTaken(str(root), "it holds what a job has finished")
        for found in sorted(root.iterdir()):
            if not (found.name.startswith((_PART, STAGING)) or found.name == _LOCK):
                raise OutputTaken(str(root), f"it holds {found.name}, which is no job's")
        for left in root.glob(f"{_PART}*"):
            left.unlink()
        scratch = make_scratch(root, STAGING)
        try:
            yield Output(root, scratch)
        finally:
            shutil.rmtree(scratch.path, ignore_errors=True)
    finally:
        lock.release()
