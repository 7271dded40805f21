"""Does the work of `towline store backup` and `towline store restore`."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from towline.errors import StoreNotWritable, StoreTaken
from towline.log.backup.backup import Source, Taken, take_backup
from towline.log.backup.backup_check import Checked, check_backup, manifest_of
from towline.log.backup.backup_manifest import BackupDirectory, Manifest, total
from towline.log.backup.restore import restore
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import Checks, LogWalk
from towline.log.state.durable_file import DurableFile
from towline.node.process.context import runtime_of
from towline.node.store.store_access import positions_of_holder
from towline.node.store.store_shape import shape_of
from towline.places import Store
from towline.runtime.locks import StoreLock
from towline.runtime.positions import Position

from .interrupts import Interrupts
from .output import FAILED, add_row, progress_console, show, sized, table

DISPATCH_WAIT_S: Final = 5.0
STEP_S: Final = 0.02
MASTER: Final = "master"
SLAVE: Final = "slave"


def backup_store(
    root: Path, target: Path, config: Path | None, prune: bool, limit: int, cold: bool, as_json: bool
) -> int:
    """`limit`: bytes a second, 0 for none. Raises what `take_backup` does, and HolderSilent (H24)."""
    store, backup = Store(root.resolve()), BackupDirectory(target)
    settings, _ = shape_of(store, config)
    started = time.monotonic()
    with Interrupts(), _alone(backup), _bounds(store, settings.segment_size) as bounds, _bar("backing up") as bar:
        source = Source(
            store=store,
            segment_size=settings.segment_size,
            queue_file_size=settings.queue_file_size,
            bounds=bounds,
            time_ms=time.time_ns() // 1_000_000,
            version=_version(),
            **_facts(store),
        )
        progress = _Paced(bar.advance, limit)
        taken = take_backup(source, target, bar.total, progress, prune=prune, cold=cold)
    seconds = time.monotonic() - started
    show(_document(target, taken, seconds), as_json, lambda console: _render(console, target, taken, seconds))
    return 0


def verify_backup(target: Path, as_json: bool) -> int:
    """Status 0 where it is whole, 1 where it is not."""
    backup = BackupDirectory(target)
    with Interrupts(), _bar("verifying") as bar:
        manifest = manifest_of(backup)
        bar.total(total((*manifest.segments, *manifest.small)))
        found = check_backup(backup, bar.advance)
    rows = [{"file": error.path, "problem": error.problem} for error in found.damaged]
    result = _manifest_row(target, found.manifest) | {"sound": not rows, "damaged": rows}
    show(result, as_json, lambda console: _render_checked(console, target, found))
    return FAILED if rows else 0


def restore_store(source: Path, root: Path, role: str, as_json: bool) -> int:
    store, backup = Store(root.resolve()), BackupDirectory(source)
    manifest, seconds = restore_into(store, backup)
    command = f"towline {role} start --store {store.root}"
    result = _manifest_row(source, manifest) | {"store": str(store.root), "seconds": round(seconds, 3), "next": command}
    text = f"{store.root} holds the log from {manifest.start:,} to {manifest.end:,} of backup {manifest.number}"

    def render(console: Console) -> None:
        console.print(f"{text}, every byte and record checked, in {seconds:.1f} s", markup=False)
        if role == MASTER:
            console.print("its start as a master begins a new epoch; a node of the old group that is ahead replaces it")
        console.print(f"next: {command}", markup=False, soft_wrap=True)

    show(result, as_json, render)
    return 0


def restore_into(store: Store, backup: BackupDirectory) -> tuple[Manifest, float]:
    """The manifest, and how many seconds it took. Raises what `restore` does, and StoreTaken."""
    started = time.monotonic()
    with Interrupts(), _bar("restoring") as bar:
        bar.total(manifest_of(backup).bytes)
        lock = StoreLock(store.lock)
        try:
            manifest = restore(backup, store, bar.advance)
        finally:
            lock.release()
    return manifest, time.monotonic() - started


class _Bar:
    """A bar on standard error: bytes, speed, and the time that is left."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None)

    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size)

    def advance(self, size: int) -> None:
        self._progress.advance(self._task, size)


@contextmanager
def _bar(what: str) -> Iterator[_Bar]:
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        yield _Bar(progress, what)


class _Paced:
    """Lets through so many bytes a second."""

    def __init__(self, advance: Callable[[int], None], limit: int) -> None:
        self._advance, self._limit, self._done, self._since = advance, limit, 0, time.monotonic()

    def __call__(self, size: int) -> None:
        self._advance(size)
        self._done += size
        if self._limit:
            time.sleep(max(0.0, self._done / self._limit - (time.monotonic() - self._since)))


@contextmanager
def _alone(backup: BackupDirectory) -> Iterator[None]:
    """No other backup into the same directory meanwhile."""
    lock = StoreLock(backup.lock)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _bounds(store: Store, size: int) -> Iterator[Callable[[], tuple[int, int]]]:
    """How to learn where the log begins and ends; a store on which no node runs is kept from starting meanwhile."""
    lock = None
    try:
        lock = StoreLock(store.lock)
    except StoreTaken as taken:
        yield _running(store, taken.pid)
        return
    except StoreNotWritable:  # a copy on a medium that cannot be written: nobody starts a node on it
        lock = None
    try:
        yield lambda: _walked(store, size)
    finally:
        if lock is not None:
            lock.release()


def _running(store: Store, holder: int) -> Callable[[], tuple[int, int]]:
    """Of a node: synced, confirmed, and behind a whole record, which is what reput has dispatched.

    Raises HolderSilent for any other holder of the store, as a real broker.
    """
    positions = positions_of_holder(runtime_of(store.root).positions, holder)

    def bounds() -> tuple[int, int]:
        wanted, deadline = positions.get(Position.FLUSHED), time.monotonic() + DISPATCH_WAIT_S
        while positions.get(Position.DISPATCHED) < wanted and time.monotonic() < deadline:
            time.sleep(STEP_S)
        end = min(positions.get(Position.DISPATCHED), positions.get(Position.FLUSHED))
        low = min(positions.get(Position.LOG_MIN), end)
        positions.close()
        return low, end

    return bounds


def _walked(store: Store, size: int) -> tuple[int, int]:
    """Of a store at rest: the log ends where a start would end it."""
    durable = DurableFile(store.root).load()
    reader = CommitLogReader(store.commitlog, size)
    reader.load()
    try:
        if not reader.queue.bases:
            low = durable.log_min if durable is not None else 0
            return low, low
        low = reader.queue.min_offset
        if durable is not None:
            low = max(low, durable.log_min)
        surely = low if durable is None else max(low, durable.flushed)
        walk = LogWalk(reader, surely, Checks(form=durable is not None))
        return low, walk.run(reader.segment_of(max(low, surely - 1))).end
    finally:
        reader.close()


def _facts(store: Store) -> dict[str, Any]:
    """Whose store it is, as far as a node of ours ever ran on it."""
    known = json.loads(store.settings.read_text(encoding="utf-8")) if store.settings.exists() else {}
    role = SLAVE if known.get("broker_role") == "SLAVE" else MASTER
    return {"node": known.get("broker_id", 0), "broker_name": known.get("broker_name", ""), "role": role}


def _version() -> str:
    try:
        return installed("towline")
    except PackageNotFoundError:
        return "not installed"


def _manifest_row(target: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "backup": str(target.resolve()),
        "number": manifest.number,
        "node": manifest.node,
        "store_id": manifest.store_id,
        "cluster": manifest.cluster,
        "from": manifest.start,
        "end": manifest.end,
        "epochs": [list(epoch) for epoch in manifest.epochs],
        "segments": len(manifest.segments),
        "bytes": manifest.bytes,
        "time_ms": manifest.time_ms,
        "version": manifest.version,
    }


def _document(target: Path, taken: Taken, seconds: float) -> dict[str, Any]:
    sizes = {"copied": taken.copied, "kept": taken.kept, "removed": taken.removed, "seconds": round(seconds, 3)}
    return _manifest_row(target, taken.manifest) | sizes


def _render(console: Console, target: Path, taken: Taken, seconds: float) -> None:
    manifest = taken.manifest
    made = table(f"backup {manifest.number}", "#from", "#end", "#segments", "#copied", "#kept")
    sizes = sized(taken.copied), sized(taken.kept)
    add_row(made, str(target), f"{manifest.start:,}", f"{manifest.end:,}", len(manifest.segments), *sizes)
    console.print(made)
    if taken.removed:
        console.print(f"{sized(taken.removed)} of segments that the store has deleted were removed")
    console.print(f"{seconds:.1f} s, {taken.copied / seconds / 1e6:,.0f} MB/s")


def _render_checked(console: Console, target: Path, found: Checked) -> None:
    for error in found.damaged:
        console.print(f"damaged: {error.path}: {error.problem}", markup=False, soft_wrap=True)
    manifest = found.manifest
    size = f"{manifest.start:,} to {manifest.end:,}, {len(manifest.segments)} segments, {sized(manifest.bytes)}"
    verdict = "is damaged" if found.damaged else "is whole: every hash fits, every record is sound"
    console.print(f"backup {manifest.number} in {target} ({size}) {verdict}", markup=False, soft_wrap=True)
