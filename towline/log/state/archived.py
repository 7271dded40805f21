"""`config/archived.json`: up to where the log's segments are in an archive. The job that archives writes it.

Cleaning reads it where `keep_until_archived` is set. A log may be cut after it was archived (a slave that is ordered to
accept a loss) and grow on with other bytes under the same offsets, so the file holds a CRC of the last archived bytes,
and every reader compares it first. No cut leaves those bytes and changes any before them.
"""

import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from towline.errors import MalformedFile
from towline.limits import KIB
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import segment_name
from towline.places import Store

NAME: Final = "archived.json"
PROBE: Final = 64 * KIB  # bytes before the end of the last archived record


@dataclass(frozen=True, slots=True)
class Archived:
    """Every record before the log offset `end`, where a segment ends, is in the archive.

    data_end  where the last record before `end` ends
    probe     CRC-32 of up to PROBE bytes before `data_end`, of that one segment
    archive   where the archive is: a directory, or a URI
    """

    end: int
    data_end: int
    probe: int
    archive: str
    time_ms: int

    @classmethod
    def of(cls, content: dict[str, Any], path: str) -> Self:
        """The object in the file. Raises MalformedFile."""
        try:
            found = cls(**content)
            numbers = (found.end, found.data_end, found.probe, found.time_ms)
            if not all(type(number) is int and number >= 0 for number in numbers) or found.data_end > found.end:
                raise ValueError("its offsets do not fit together")
        except (TypeError, ValueError) as error:
            raise MalformedFile(path, f"it does not say up to where the log is archived: {error}") from None
        return found


def load_archived(store: Store) -> Archived | None:
    """The content of the file; None where nothing was ever archived. Raises MalformedFile."""
    file = ConfigFile(store.config / NAME)
    content = file.load()
    return None if content is None else Archived.of(content, str(file.path))


def save_archived(store: Store, segment_size: int, data_end: int, probe: int, archive: str) -> Archived:
    """Records that every segment up to the one with the record before `data_end` is archived.

    Only the archiving job calls this, once the archive holds the segments durably and was checked; `probe` is the CRC
    of the bytes that it archived. Raises StoreNotWritable, SyncFailed.
    """
    now_ms = time.time_ns() // 1_000_000
    archived = Archived(_base(data_end, segment_size) + segment_size, data_end, probe, archive, now_ms)
    store.config.mkdir(exist_ok=True)
    ConfigFile(store.config / NAME).save(asdict(archived))
    return archived


def archived_until(store: Store, segment_size: int) -> int:
    """The log offset up to which the segments of this store are archived; 0 for none.

    Also 0 where the log is another one than was archived. Raises MalformedFile.
    """
    archived = load_archived(store)
    if archived is None or archived.end % segment_size:
        return 0
    base = _base(archived.data_end, segment_size)
    try:
        same = probe_of(store.commitlog / segment_name(base), base, archived.data_end) == archived.probe
    except FileNotFoundError:  # it has gone, and all before it: what is left begins at or behind `end`
        return archived.end
    return archived.end if same else 0


def probe_of(path: Path, base: int, data_end: int) -> int:
    """CRC-32 of the last PROBE bytes before log offset `data_end` in the segment at `path`."""
    start = max(0, data_end - base - PROBE)
    with path.open("rb") as file:
        file.seek(start)
        return zlib.crc32(file.read(data_end - base - start))


def _base(data_end: int, segment_size: int) -> int:
    """Base of the segment that holds the byte before `data_end`."""
    last = max(0, data_end - 1)
    return last - last % segment_size
