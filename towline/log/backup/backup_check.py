"""The check of a backup: its files have the CRCs of the manifest, and every record in it is whole."""

from dataclasses import dataclass

from towline.errors import NotInLog, SegmentSizeMismatch
from towline.format.record.rules import Rule
from towline.kernels.jit.rows import Stop
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import Checks, LogWalk
from towline.log.errors import BackupDamaged, BackupRefused
from towline.places import Store

from .backup_manifest import BackupDirectory, BackupFile, Manifest
from .copying import Copier, Progress


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. `damaged`: each file that differs from the manifest, and how."""

    manifest: Manifest
    damaged: tuple[BackupDamaged, ...]


def manifest_of(backup: BackupDirectory) -> Manifest:
    """The manifest of a finished backup. Raises BackupRefused where there is none, ManifestLost."""
    manifest = backup.load()
    if manifest is None:
        unfinished = " finished" if backup.load_unfinished() is not None else ""
        raise BackupRefused(str(backup.root), f"there is no{unfinished} backup")
    size = manifest.segment_size
    for base in range(manifest.start - manifest.start % size, manifest.end, size):
        if manifest.segment(base) is None:
            raise BackupRefused(str(backup.manifest), f"it names no segment {base}")
    return manifest


def check_backup(backup: BackupDirectory, progress: Progress) -> Checked:
    """Compares every CRC, then, where all fit, walks every record. Raises like `manifest_of`."""
    manifest = manifest_of(backup)
    copier = Copier(progress)
    damaged = [found for kept in (*manifest.segments, *manifest.small) if (found := _compare(backup, kept, copier))]
    if not damaged:
        try:
            walk_records(Store(backup.root), manifest)
        except BackupDamaged as error:
            damaged.append(error)
    return Checked(manifest, tuple(damaged))


def walk_records(store: Store, manifest: Manifest) -> None:
    """Walks the records of the log that was copied into `store`. Raises BackupDamaged."""
    if manifest.end == manifest.start:
        return
    reader = CommitLogReader(store.commitlog, manifest.segment_size)
    try:
        reader.load()
        base = reader.segment_of(manifest.start)
        walk = LogWalk(reader, manifest.end, Checks(form=False))
        while base < manifest.end:
            stop = min(manifest.segment_size, manifest.end - base)
            *_, (_, at, reason) = walk.steps(base, 0, stop)
            if at < stop and reason != Stop.BLANK:
                rule = Rule(reason) if reason > 0 else Rule.SIZE_TOO_SMALL
                said = f"no whole record stands at byte {at}: {rule.name}, {rule.sentence}"
                raise BackupDamaged(str(reader.queue.path_of(base)), said)
            base += manifest.segment_size
    except (NotInLog, SegmentSizeMismatch) as error:
        raise BackupDamaged(str(store.commitlog), error.describe()) from error
    finally:
        reader.close()


def _compare(backup: BackupDirectory, kept: BackupFile, copier: Copier) -> BackupDamaged | None:
    path = backup.path_of(kept)
    try:
        with path.open("rb") as file:
            crc = copier.checksum(file.fileno(), 0, kept.size)
    except (EOFError, OSError) as error:
        return BackupDamaged(str(path), str(error))
    return None if crc == kept.crc else BackupDamaged(str(path), f"its CRC-32 is {crc:08x}, not {kept.crc:08x}")
