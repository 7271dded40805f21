"""Restores a store from a backup: CRCs are checked while the bytes are copied, then every record is walked.

Queues and index are derived by the first start. The promises of the backup's node and its in-sync set are not restored:
they belong to a log that has grown since (H14). While the work lasts `restoring.json` stands in the store, and no node
starts on it.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from towline.errors import StoreNotWritable
from towline.format.files.durable import Durable
from towline.log.errors import BackupDamaged, BackupRefused, RestoreUnfinished
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import sync_directory, sync_file
from towline.log.files.store_files import write_new
from towline.log.state.durable_file import DurableFile
from towline.places import Store

from .backup_check import manifest_of, walk_records
from .backup_manifest import BackupDirectory, BackupFile, Manifest
from .copying import Copier, Progress

BEFORE: Final = frozenset({"lock", "run", "lost+found"})  # of a directory that counts as empty
NOT_PUT_BACK: Final = ("ha/",)


def restore(backup: BackupDirectory, store: Store, progress: Progress) -> Manifest:
    """Makes the store of the newest backup. One that was broken off begins anew.

    Raises BackupRefused, ManifestLost before anything is changed; BackupDamaged, DiskFull, SyncFailed,
    StoreNotWritable later: then the store cannot be started, and the next call begins anew.
    """
    manifest = manifest_of(backup)
    _check_empty(store)
    try:
        _begin(store, backup)
        copier = Copier(progress)
        for directory in (store.commitlog, store.config):
            directory.mkdir()
        for kept in (*manifest.segments, *manifest.small):
            _check_there(backup, kept)
        for kept in manifest.segments:
            _segment(backup, store, kept, manifest.segment_size, copier)
        for kept in manifest.small:
            _small(backup, store, manifest, kept)
    except OSError as error:
        raise StoreNotWritable(str(store.root), error.strerror or str(error)) from error
    walk_records(store, manifest)
    _promise(store, manifest)
    ConfigFile(store.restoring).backup.unlink(missing_ok=True)
    store.restoring.unlink()
    sync_directory(store.root)
    return manifest


def check_restored(store: Store) -> None:
    """Refuses the start of a store whose restore is not finished. Raises RestoreUnfinished."""
    if store.restoring.exists():
        content = ConfigFile(store.restoring).load() or {}
        raise RestoreUnfinished(str(store.root), str(content.get("backup", "")))


def is_empty(store: Store) -> bool:
    """Whether nothing stands where the store is to be, or only what a restore that was broken off left there."""
    if store.restoring.exists() or not store.root.is_dir():
        return True
    return all(path.name in BEFORE for path in store.root.iterdir())


def _check_empty(store: Store) -> None:
    if not is_empty(store):
        raise BackupRefused(str(store.root), "the directory is not empty: a store is restored into a new one alone")


def _begin(store: Store, backup: BackupDirectory) -> None:
    store.root.mkdir(parents=True, exist_ok=True)
    if not store.restoring.exists():
        ConfigFile(store.restoring).save({"backup": str(backup.root.resolve())})
    for path in store.root.iterdir():
        if path.name in BEFORE or path.name.startswith(store.restoring.name):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_there(backup: BackupDirectory, kept: BackupFile) -> None:
    if not backup.path_of(kept).is_file():
        raise BackupDamaged(str(backup.path_of(kept)), "the file does not exist")


def _segment(backup: BackupDirectory, store: Store, kept: BackupFile, size: int, copier: Copier) -> None:
    path = store.commitlog / Path(kept.name).name
    source = os.open(backup.path_of(kept), os.O_RDONLY | os.O_CLOEXEC)
    try:
        with path.open("xb") as target:
            os.ftruncate(target.fileno(), size)
            crc = copier.copy(source, target.fileno(), 0, kept.size)
    except EOFError as error:
        raise BackupDamaged(str(backup.path_of(kept)), str(error)) from error
    finally:
        os.close(source)
    if crc != kept.crc:
        raise BackupDamaged(str(backup.path_of(kept)), f"its CRC-32 is {crc:08x}, not {kept.crc:08x}")
    sync_file(path)


def _small(backup: BackupDirectory, store: Store, manifest: Manifest, kept: BackupFile) -> None:
    name = kept.name.removeprefix(f"{manifest.meta}/")
    if name.startswith(NOT_PUT_BACK):
        return
    with backup.path_of(kept).open("rb") as file:
        crc = Copier(lambda _: None).checksum(file.fileno(), 0, kept.size)
    if crc != kept.crc:
        raise BackupDamaged(str(backup.path_of(kept)), f"its CRC-32 is {crc:08x}, not {kept.crc:08x}")
    path = store.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, backup.path_of(kept).read_bytes())


def _promise(store: Store, manifest: Manifest) -> None:
    """All of the log is on the disk, and nothing of queues and index."""
    size = manifest.segment_size
    state = Durable(
        flushed=manifest.end,
        segment_base=manifest.end - manifest.end % size,
        queues_durable=manifest.start,
        log_min=manifest.start,
    )
    for directory in (store.commitlog, store.config):
        sync_directory(directory)
    file = DurableFile(store.root)
    file.save(state)
    file.close()
