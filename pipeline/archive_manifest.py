"""An archive's location: what was archived is what its manifests name, whatever else lies there.

    archive.json                      whose log it is; made with the archive
    segments/<base>.json              one for each archived segment, published at one stroke when its files are there
    data/topic=T/day=D/<base>.parquet the messages of one segment, topic and day (UTC, by store time), in log order
    lock, .lease-*                    held while a job writes: of a directory, of an object store
    .staging-*                        files of tasks; the next job removes what it finds

Manifests carry the check of `towline.log.files.config_file`. A topic stands in a path as Hive writes it, `%` as `%25`.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from towline.errors import MalformedFile
from towline.format.files.topics import loads_fastjson
from towline.log.files.config_file import CHECK, check_of, encode
from towline.log.files.segment_files import segment_base, segment_name

from .directory import LOCK
from .errors import NotAnArchive
from .location import Location, location
from .scratch import STAGING

FORMAT: Final = 1
SUFFIX: Final = ".parquet"
AT_ONCE: Final = 8  # manifests that are read: of an object store each is a round trip
HEAD: Final = "archive.json"
_SEGMENTS: Final = "segments"
_SAFE: Final = "-_.|~"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A Parquet file below the archive. Offsets are physical ones of its first and last message, times store times."""

    name: str
    topic: str
    day: str  # 2026-11-21
    rows: int
    first: int
    last: int
    first_ms: int
    last_ms: int
    size: int
    crc: int  # CRC-32 of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSegment:
    """[start, data_end) of the log: all records of a segment. `probe` is `towline.log.state.archived`'s.

    `plain`: compressed bodies were decompressed; else one could not be, and all stand as they were stored.
    """

    base: int
    start: int
    data_end: int
    probe: int
    records: int
    plain: bool
    files: tuple[ArchivedFile, ...]
    format: int = FORMAT

    @classmethod
    def of(cls, content: dict[str, Any], path: str) -> Self:
        """Raises MalformedFile."""
        try:
            if content["format"] != FORMAT:
                raise MalformedFile(path, f"its format is {content['format']}, this program reads {FORMAT}")
            files = tuple(ArchivedFile(**row) for row in content["files"])
            made = cls(**(content | {"files": files}))
            rows = sum(file.rows for file in files)
        except (KeyError, TypeError) as error:
            raise MalformedFile(path, f"it is no manifest of an archived segment: {error!r}") from None
        if rows != made.records:
            raise MalformedFile(path, "its files do not hold as many messages as the segment")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`archive.json`. `store_id` is "" of a real broker's store, which has none."""

    store_id: str
    broker_name: str
    segment_size: int
    format: int = FORMAT

    @classmethod
    def of(cls, content: dict[str, Any], path: str) -> Self:
        """Raises MalformedFile."""
        if content.get("format") != FORMAT:
            raise MalformedFile(path, f"its format is {content.get('format')}, this program reads {FORMAT}")
        try:
            return cls(**content)
        except TypeError as error:
            raise MalformedFile(path, f"it does not describe an archive: {error}") from None


@dataclass
class Archive:
    """An archive that is there."""

    where: Location
    head: Head
    segments: dict[int, ArchivedSegment] = field(default_factory=dict)

    @classmethod
    def open(cls, text: str | Path) -> Self:
        """With all its manifests. Raises NotAnArchive, MalformedFile, IllegalLocation, LocationFailed."""
        return cls.at(location(str(text)))

    @classmethod
    def at(cls, where: Location) -> Self:
        content = read_manifest(where, HEAD)
        if content is None:
            raise NotAnArchive(where.text, f"there is no {HEAD} in it")
        made = cls(where, Head.of(content, f"{where.text}/{HEAD}"))
        made.segments |= sorted(_manifests(where))
        return made

    @classmethod
    def make(cls, where: Location, head: Head) -> Self:
        """Opens the archive, or makes an empty one; its lock is held, and its staging is there.

        Raises NotAnArchive for a location of other things, MalformedFile.
        """
        entries = where.entries()
        if HEAD in entries:
            return cls.at(where)
        others = [name for name in entries if name != LOCK and not name.startswith(STAGING)]
        if others:
            raise NotAnArchive(where.text, f"it holds other things ({', '.join(others[:3])}) and no {HEAD}")
        publish_manifests(where, {HEAD: asdict(head)})
        return cls(where, head)

    @staticmethod
    def manifest_of(base: int) -> str:
        """The name of a segment's manifest."""
        return f"{_SEGMENTS}/{segment_name(base)}.json"


def data_name(topic: str, day: str, base: int) -> str:
    """Below the archive; the same for every run, so what a killed one left is replaced."""
    return f"data/topic={quote(topic, safe=_SAFE)}/day={day}/{segment_name(base)}{SUFFIX}"


def publish_manifests(where: Location, contents: Mapping[str, dict[str, Any]]) -> None:
    """Raises what `Location.publish` raises."""
    where.publish({name: encode(content) for name, content in contents.items()})


def read_manifest(where: Location, name: str) -> dict[str, Any] | None:
    """None where there is no such file. Raises MalformedFile for one that is not whole."""
    data, path = where.read(name), f"{where.text}/{name}"
    if data is None:
        return None
    try:
        content = loads_fastjson(data.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise MalformedFile(path, f"it is no text: {error}") from None
    if content.pop(CHECK, None) != check_of(content):
        raise MalformedFile(path, "its members do not fit its check")
    return content


def _manifests(where: Location) -> Iterator[tuple[int, ArchivedSegment]]:
    def read(name: str) -> tuple[int, ArchivedSegment]:
        content = read_manifest(where, name)
        assert content is not None, f"{name} was taken away"
        base = segment_base(name.removeprefix(f"{_SEGMENTS}/").removesuffix(".json"))
        assert base is not None
        return base, ArchivedSegment.of(content, f"{where.text}/{name}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(read, filter(_is_manifest, where.files(_SEGMENTS)))


def _is_manifest(name: str) -> bool:
    return name.endswith(".json") and segment_base(name.removeprefix(f"{_SEGMENTS}/").removesuffix(".json")) is not None
