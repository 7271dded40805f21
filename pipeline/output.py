"""Files that one run makes in a location: all of them, or for its readers none.

Tasks write under names of their own; the driver moves what counts to the files' names and publishes `manifest.json` at
one stroke. What a run left that was killed, the next one removes, because no manifest names it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from .archive_manifest import publish_manifests
from .directory import LOCK
from .errors import OutputTaken
from .location import Location, Staging, location
from .scratch import STAGING

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_PART: Final = "part-"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task wrote, which is kept; "" where there was nothing to write."""

    name: str  # in the location
    rows: int
    size: int
    crc: int


@dataclass(frozen=True)
class Output:
    """The location while its lock is held and its staging is there."""

    where: Location
    staging: Staging

    def publish(self, written: Sequence[Written], suffix: str, facts: Mapping[str, Any]) -> list[Written]:
        """`part-00000`, ... in the order given, then the manifest with `facts`; what stands there now."""
        kept = [each for each in written if each.name]
        parts = [replace(each, name=f"{_PART}{number:05d}{suffix}") for number, each in enumerate(kept)]
        self.where.move([(each.name, part.name) for each, part in zip(kept, parts, strict=True)])
        files = [{"path": part.name, "rows": part.rows, "size": part.size, "crc": part.crc} for part in parts]
        publish_manifests(self.where, {MANIFEST: {"format": FORMAT, **facts, "files": files}})
        return parts


@contextmanager
def output(text: str) -> Iterator[Output]:
    """Raises OutputTaken, IllegalLocation, and LocationTaken while another job writes there."""
    where = location(text)
    with where.held():
        entries = where.entries()
        if MANIFEST in entries:
            raise OutputTaken(where.text, "it holds what a job has finished")
        for name in entries:
            if not (name.startswith((_PART, STAGING)) or name == LOCK):
                raise OutputTaken(where.text, f"it holds {name}, which is no job's")
        where.remove(name for name in entries if name.startswith(_PART))
        with where.staging() as staging:
            yield Output(where, staging)
