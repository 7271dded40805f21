"""A backup of a store, with or without a running node: [start, end) of the log, and the small files beside it.

Bytes of the log below `end` never change, so they can be copied while the node works. Cleaning may delete segments
meanwhile: all of them are opened before the first is copied, and what is open stays readable. The next backup into the
same directory copies new bytes only: segments in the manifest are left alone, the last one is continued. An interrupted
backup goes on where its last whole segment ends.
"""

import os
import resource
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from towline.errors import MalformedFile, StoreNotWritable
from towline.format.files.epochs import Epochs, common_point, cut
from towline.format.files.epochs import encode as encode_epochs
from towline.limits import KIB
from towline.log.errors import BackupRefused
from towline.log.files.config_file import ConfigFile, read_config
from towline.log.files.config_file import encode as encode_config
from towline.log.files.segment_files import segment_name, sync_directory, sync_file
from towline.log.files.store_files import write_new
from towline.log.state.epoch_file import EpochFile
from towline.log.state.floors import QUEUE_FLOORS, floors_at
from towline.log.state.identity import IdentityFile
from towline.places import Store

from .backup_manifest import COMMITLOG, BackupDirectory, BackupFile, Manifest, base_of, is_untouched, stamped
from .copying import Copier, Progress

TAIL: Final = 64 * KIB  # before the end of the backup: compared before it is continued
TOPICS: Final = "topics.json"  # after the end of the log: a topic too many does no harm, one too few does
DESCRIPTORS_SPARE: Final = 64

Bounds = Callable[[], tuple[int, int]]
Sized = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is backed up. `bounds` says where the log begins and up to where it cannot be taken back (H24)."""

    store: Store
    segment_size: int
    queue_file_size: int
    bounds: Bounds
    node: int
    broker_name: str
    role: str
    time_ms: int
    version: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes of the log: `copied` by this backup, `kept` from those before; `removed` were of segments pruned."""

    manifest: Manifest
    copied: int
    kept: int
    removed: int


def take_backup(
    source: Source, target: Path, sized: Sized, progress: Progress, *, prune: bool = False, cold: bool = False
) -> Taken:
    """Backs the store up into `target`, which holds nothing, or a backup of the same log.

    `sized` is called with the number of bytes to copy, `progress` with each chunk. `prune`: segments that the store has
    deleted leave the backup too. Raises BackupRefused before anything is changed; ManifestLost for a manifest that
    cannot be read; DiskFull, SyncFailed, StoreNotWritable: then the next backup goes on.
    """
    backup = BackupDirectory(target)
    small = small_files(source.store)
    low, end = source.bounds()
    small[f"config/{TOPICS}"] = _config(source.store.config / TOPICS)
    known = _known(backup)
    made = _Taking(source, backup, known, low, end, Copier(progress, cold=cold))
    with closing(made):
        made.open()
        sized(made.left)
        try:
            made.copy()
            manifest = made.finish({name: data for name, data in small.items() if data is not None}, prune)
        except OSError as error:
            raise StoreNotWritable(str(target), error.strerror or str(error)) from error
    return Taken(manifest, made.copied, manifest.bytes - made.copied, made.removed)


class _Taking:
    """One backup: `open`, then `copy`, then `finish`."""

    def __init__(
        self,
        source: Source,
        backup: BackupDirectory,
        known: Manifest | None,
        low: int,
        end: int,
        copier: Copier,
    ) -> None:
        self._source, self._backup, self._known, self._copier = source, backup, known, copier
        self._low, self._end, self._size = low, end, source.segment_size
        self._epochs: Epochs = cut(EpochFile(source.store).load(), max(end, 1))
        self._open: dict[int, int] = {}  # descriptor of the segment of a base
        self._kept: list[BackupFile] = []
        self._number = 1 if known is None else known.number + 1
        self._start = low if known is None else known.start
        self.copied = self.removed = 0

    def open(self) -> None:
        """Looks whether it can be done, and takes hold of every segment that is to be copied."""
        begin, again = self._low, []
        if (known := self._known) is not None and known.end > known.start:
            self._check_fits(known)
            begin = known.end
            whole = [kept for kept in known.segments if kept.size == self._size]
            for kept in whole:
                if (same := self._as_it_was(kept)) is not None:
                    self._kept.append(same)
                else:
                    again.append(base_of(kept))
        elif known is not None:
            self._check_identity(known)
        self._hold([*again, *range(begin - begin % self._size, self._end, self._size)])

    @property
    def left(self) -> int:
        """Bytes to copy."""
        return sum(self._stop(base) - self._from(base) for base in self._open)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def copy(self) -> None:
        backup = self._backup
        backup.commitlog.mkdir(parents=True, exist_ok=True)
        sync_directory(backup.root)
        for base in list(self._open):
            self._kept.append(self._segment(base, self._open[base]))
            os.close(self._open.pop(base))  # of a deleted segment: gives its blocks back
            known = 0 if self._known is None else self._known.end
            if self._stop(base) == self._size and base + self._size > known:
                sync_directory(backup.commitlog)
                backup.save_unfinished(self._manifest(base + self._size))

    def finish(self, small: dict[str, bytes], prune: bool) -> Manifest:
        """The small files, then the manifest that names everything."""
        backup = self._backup
        sync_directory(backup.commitlog)
        gone = self._prune() if prune else []
        manifest = self._manifest(self._end)
        if self._start:
            floors = floors_at(self._source.store, self._source.queue_file_size, self._start)
            small = small | {f"config/{QUEUE_FLOORS}": encode_config(floors)}
        if manifest.epochs:
            small = small | {self._source.store.epochs.name: encode_epochs(manifest.epochs)}
        made = []
        for name, data in small.items():
            path = backup.root / manifest.meta / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new(path, data)
            made.append(_kept_of(backup.root, path, data))
        for directory in {path.parent for path in (backup.root / manifest.meta).rglob("*")}:
            sync_directory(directory)
        sync_directory(backup.root)
        manifest = replace(manifest, small=tuple(made))
        backup.save(manifest)
        for kept in gone:
            backup.path_of(kept).unlink(missing_ok=True)
            self.removed += kept.size
        return manifest

    # --- what is there already

    def _check_identity(self, known: Manifest) -> None:
        at = str(self._backup.root)
        identity = IdentityFile(self._source.store.root).load()
        ours = "" if identity is None else identity.store_id
        if known.store_id != ours:
            raise BackupRefused(at, f"it holds the log {known.store_id or 'of a real broker'}, the store's is {ours}")
        if known.segment_size != self._size:
            raise BackupRefused(at, f"its segments have {known.segment_size} bytes, the store's {self._size}")

    def _check_fits(self, known: Manifest) -> None:
        """Raises BackupRefused unless the backup's log is the store's up to the end of the backup."""
        self._check_identity(known)
        at = str(self._backup.root)
        if self._end < known.end:
            raise BackupRefused(at, f"it goes up to {known.end}, and the store's log ends at {self._end}")
        common = common_point(self._epochs, self._end, known.epochs, known.end)
        if common is None or common.point < known.end:
            point = 0 if common is None else common.point
            raise BackupRefused(
                at, f"the store's log is another one from {point} on, the backup goes up to {known.end}"
            )
        if self._low > known.end or (self._low == known.end and self._low % self._size):
            raise BackupRefused(
                at, f"it goes up to {known.end}, and what follows was deleted: ours begins at {self._low}"
            )
        self._check_tail(known)

    def _check_tail(self, known: Manifest) -> None:
        """The last bytes of the backup are the store's own, where the store still has them."""
        base = (known.end - 1) - (known.end - 1) % self._size
        kept, ours = known.segment(base), self._source.store.commitlog / segment_name(base)
        if kept is None or not ours.exists():
            return
        start, end = max(0, kept.size - TAIL), kept.size
        theirs = self._backup.path_of(kept)
        if theirs.exists() and _bytes(ours, start, end) != _bytes(theirs, start, end):
            raise BackupRefused(str(theirs), f"the bytes before {known.end} are not those of the store's log")

    def _as_it_was(self, kept: BackupFile) -> BackupFile | None:
        """Of a file that was touched since its first `size` bytes are read; None where they are not what they were."""
        path = self._backup.path_of(kept)
        if is_untouched(path, kept, self._size):
            return kept
        if not path.exists() or path.stat().st_size < kept.size:
            return None
        with path.open("rb") as file:
            crc = Copier(lambda _: None).checksum(file.fileno(), 0, kept.size)
        return stamped(path, kept) if crc == kept.crc else None

    # --- the segments

    def _hold(self, bases: list[int]) -> None:
        """Opens these segments. What is deleted before it is open moves the start of a new backup."""
        _raise_descriptors(len(bases) + DESCRIPTORS_SPARE)
        for base in bases:
            try:
                fd = os.open(self._source.store.commitlog / segment_name(base), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if self._kept or self._known is not None:
                    why = f"the store's segment {base} was deleted, and the backup does not hold it"
                    raise BackupRefused(str(self._backup.root), why) from None
                self.close()
                self._start = base + self._size
                continue
            self._open[base] = fd
        if self._start > self._end:
            raise BackupRefused(
                str(self._backup.root), "everything was deleted before it could be copied: run it again"
            )

    def _stop(self, base: int) -> int:
        return min(self._size, self._end - base)

    def _from(self, base: int) -> int:
        """From which byte of the segment on it is to be copied: behind what the backup has of it."""
        kept = None if self._known is None else self._known.segment(base)
        if kept is None or kept.size == self._size:
            return 0
        return kept.size if self._as_it_was(kept) is not None else 0

    def _segment(self, base: int, fd: int) -> BackupFile:
        name = f"{COMMITLOG}/{segment_name(base)}"
        path, start, stop = self._backup.root / name, self._from(base), self._stop(base)
        known = None if self._known is None else self._known.segment(base)
        target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(target, start)  # what a backup that was killed left there
            os.ftruncate(target, self._size)
            crc = known.crc if known is not None and start else 0
            crc = self._copier.copy(fd, target, start, stop, crc)
        finally:
            os.close(target)
        sync_file(path)
        self.copied += stop - start
        return stamped(path, BackupFile(name, stop, crc, 0))

    def _prune(self) -> list[BackupFile]:
        gone = [kept for kept in self._kept if base_of(kept) + self._size <= self._low]
        self._kept = [kept for kept in self._kept if kept not in gone]
        if gone:
            self._start = self._low
        return gone

    def _manifest(self, end: int) -> Manifest:
        source = self._source
        identity = IdentityFile(source.store.root).load()
        return Manifest(
            number=self._number,
            node=source.node,
            broker_name=source.broker_name,
            role=source.role,
            store_id="" if identity is None else identity.store_id,
            cluster="" if identity is None else identity.cluster,
            epochs=cut(self._epochs, max(end, 1)),
            segment_size=self._size,
            start=self._start,
            end=end,
            time_ms=source.time_ms,
            version=source.version,
            segments=tuple(sorted(self._kept, key=lambda kept: kept.name)),
        )


def small_files(store: Store) -> dict[str, bytes | None]:
    """What a store has beside log, queues and index: by name below the store, whole generations only."""
    found: dict[str, bytes | None] = {}
    for path in sorted(store.config.glob("*.json")) if store.config.is_dir() else []:
        found[f"config/{path.name}"] = _config(path)
    found["ha/in_sync.json"] = _config(store.in_sync)
    if store.identity.exists():
        found["identity.json"] = store.identity.read_bytes()
    return found


def _config(path: Path) -> bytes | None:
    content = read_config(path)
    if content is None:  # its owner is just replacing it
        try:
            content = ConfigFile(path).load()
        except MalformedFile:
            return None
    return None if content is None else encode_config(content)


def _known(backup: BackupDirectory) -> Manifest | None:
    """The newest of what was finished and what was broken off. Raises BackupRefused for a directory of other things."""
    finished, unfinished = backup.load(), backup.load_unfinished()
    if finished is None and unfinished is None:
        if backup.root.is_dir() and any(path.name not in ("lock", COMMITLOG) for path in backup.root.iterdir()):
            raise BackupRefused(str(backup.root), "it holds other things than a backup")
        return None
    known = [manifest for manifest in (finished, unfinished) if manifest is not None]
    newest = max(known, key=lambda manifest: (manifest.end, manifest.number))
    number = 0 if finished is None else finished.number
    return replace(newest, number=number)


def _kept_of(root: Path, path: Path, data: bytes) -> BackupFile:
    with path.open("rb") as file:
        crc = Copier(lambda _: None).checksum(file.fileno(), 0, len(data))
    return stamped(path, BackupFile(str(path.relative_to(root)), len(data), crc, 0))


def _bytes(path: Path, start: int, end: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), end - start, start)


def _raise_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
