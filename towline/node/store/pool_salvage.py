"""What a node leaves in its transient pool, as far as a supervisor has to do with it; `transient` does the rest.

The supervisor imports it, so it imports little: whatever loads a kernel is the zygote's to import.
"""

import contextlib
import shutil
from typing import Final, NamedTuple

from towline.errors import PositionsUnusable, RuntimeDirectoryFull
from towline.log.commitlog.pool_owner import OWNER_NAME, PoolOwner, read_owner
from towline.log.files.segment_files import FULL_ERRNOS
from towline.places import Runtime, Store
from towline.runtime.positions import Position, Positions

_KEPT_POSITIONS: Final = "positions"


class Left(NamedTuple):
    """The log's bytes [committed, appended) stand in the pool alone."""

    owner: PoolOwner
    generation: int
    committed: int
    appended: int


def keep_positions(runtime: Runtime) -> None:
    """Before a start makes new positions: those that say what the pool of an earlier start holds are put beside it.

    Raises RuntimeDirectoryFull.
    """
    kept = runtime.pool / _KEPT_POSITIONS
    if (runtime.pool / OWNER_NAME).exists() and runtime.positions.exists() and not kept.exists():
        copy = kept.with_suffix(".new")
        try:
            shutil.copyfile(runtime.positions, copy)
        except OSError as error:
            copy.unlink(missing_ok=True)
            if error.errno not in FULL_ERRNOS:
                raise
            raise RuntimeDirectoryFull(str(kept), runtime.positions.stat().st_size) from None
        copy.rename(kept)


def drop_pool(store: Store, runtime: Runtime) -> None:
    """What was in it has been dealt with. The owner goes first: a pool without one holds nothing."""
    (runtime.pool / OWNER_NAME).unlink(missing_ok=True)
    shutil.rmtree(runtime.pool, ignore_errors=True)
    store.pool_owner.unlink(missing_ok=True)


def leave(store: Store, runtime: Runtime) -> None:
    """The node ends and its shared memory goes, except what the next start is to go by (`remembered`).

    That is what the store itself does not hold: bytes in the pool alone, and, of a node whose stop could not write
    what it knew, or of a start that failed, what a killed node would have left.
    """
    left = left_of(runtime)
    pooled = left is not None and left.committed != left.appended
    owner = read_owner(store.pool_owner)
    if not pooled and (owner is None or owner.pool == str(runtime.pool)):  # else its pool is one that we could not see
        drop_pool(store, runtime)
    if pooled:
        keep_positions(runtime)
    kept = {runtime.pool} if pooled else set()
    if not store.known.exists():
        kept |= {runtime.known, runtime.wrote}
        if runtime.page_cache.exists():
            kept |= {runtime.page_cache, runtime.positions, runtime.queue_ends}
    for entry in runtime.root.iterdir() if runtime.root.exists() else ():
        if entry in kept:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something is left there
        runtime.root.rmdir()


def left_of(runtime: Runtime) -> Left | None:
    """None when there is no pool, or nobody can tell any more what it holds: then a reboot has taken the positions."""
    owner = read_owner(runtime.pool / OWNER_NAME)
    kept = runtime.pool / _KEPT_POSITIONS
    if owner is None:
        return None
    try:
        positions = Positions.open(kept if kept.exists() else runtime.positions, writable=False)
    except PositionsUnusable:
        return None
    try:
        committed, appended = positions.get(Position.COMMITTED), positions.get(Position.APPENDED)
        return Left(owner, positions.generation, committed, appended)
    finally:
        positions.close()


def pooled_in(runtime: Runtime) -> int:
    """Bytes of the log that a killed node left in its transient pool alone."""
    left = left_of(runtime)
    return left.appended - left.committed if left is not None else 0
