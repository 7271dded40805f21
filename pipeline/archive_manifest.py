"""An archive's directory: what was archived is what its manifests name, whatever else lies there.

    archive.json                      whose log it is; made with the archive
    segments/<base>.json              one for each archived segment, published at one stroke when its files are there
    data/topic=T/day=D/<base>.parquet the messages of one segment, topic and day (UTC, by store time), in log order
    lock                              held while a job writes
    .staging-*                        files of tasks; the next job removes what it finds

Manifests carry the check of `towline.log.files.config_file`. A topic stands in a path as Hive writes it, `%` as `%25`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from towline.errors import MalformedFile
from towline.format.files.topics import loads_fastjson
from towline.log.files.config_file import CHECK, check_of, encode
from towline.log.files.segment_files import segment_base, segment_name, sync_directory
from towline.log.files.store_files import write_new

from .errors import NotAnArchive

FORMAT: Final = 1
SUFFIX: Final = ".parquet"
STAGING: Final = ".staging"
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
        except (KeyError, TypeError) as error:
            raise MalformedFile(path, f"it is no manifest of an archived segment: {error!r}") from None
        if sum(file.rows for file in files) != made.records:
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

    root: Path
    head: Head
    segments: dict[int, ArchivedSegment] = field(default_factory=dict)

    @classmethod
    def open(cls, root: str | Path) -> Self:
        """With all its manifests. Raises NotAnArchive, MalformedFile."""
        path = Path(root).resolve()
        content = read_manifest(path / "archive.json")
        if content is None:
            raise NotAnArchive(str(path), "there is no archive.json in it")
        made = cls(path, Head.of(content, str(path / "archive.json")))
        for base, found in sorted(_manifests(path / "segments")):
            made.segments[base] = found
        return made

    @classmethod
    def make(cls, root: Path, head: Head) -> Self:
        """Opens the archive, or makes an empty one; its lock is held.

        Raises NotAnArchive for a directory of other things, MalformedFile.
        """
        root = root.resolve()
        if (root / "archive.json").exists():
            return cls.open(root)
        others = [path.name for path in root.iterdir() if path.name != "lock" and not path.name.startswith(STAGING)]
        if others:
            raise NotAnArchive(
                str(root), f"it holds other things ({', '.join(sorted(others)[:3])}) and no archive.json"
            )
        (root / "segments").mkdir()
        (root / "data").mkdir()
        publish_manifests({root / "archive.json": asdict(head)}, root)
        return cls(root, head)

    def path_of(self, base: int) -> Path:
        """The manifest of a segment."""
        return self.root / "segments" / (segment_name(base) + ".json")

    def data_path(self, file: ArchivedFile) -> Path:
        return self.root / file.name


def data_name(topic: str, day: str, base: int) -> str:
    """Below the archive; the same for every run, so what a killed one left is replaced."""
    return f"data/topic={quote(topic, safe=_SAFE)}/day={day}/{segment_name(base)}{SUFFIX}"


def publish_manifests(contents: Mapping[Path, dict[str, Any]], staging: Path) -> None:
    """Makes each file appear whole, and all of them durable; one that is there is never replaced.

    Raises DiskFull, StoreNotWritable, SyncFailed, FileExistsError.
    """
    for path, content in contents.items():
        staged = staging / f"{STAGING}-{path.name}"
        write_new(staged, encode(content))
        path.hardlink_to(staged)
        staged.unlink()
    for parent in {path.parent for path in contents}:
        sync_directory(parent)


def read_manifest(path: Path) -> dict[str, Any] | None:
    """None where there is no such file. Raises MalformedFile for one that is not whole."""
    try:
        content = loads_fastjson(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise MalformedFile(str(path), f"it is no text: {error}") from None
    if content.pop(CHECK, None) != check_of(content):
        raise MalformedFile(str(path), "its members do not fit its check")
    return content


def _manifests(directory: Path) -> Iterator[tuple[int, ArchivedSegment]]:
    for path in directory.iterdir():
        base = segment_base(path.stem)
        if path.suffix == ".json" and base is not None:
            content = read_manifest(path)
            assert content is not None, f"{path} was taken away"
            yield base, ArchivedSegment.of(content, str(path))
