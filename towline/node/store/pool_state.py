"""State of a transient pool: whether a node uses one, whose it is, and what a killed node left in it.

The supervisor and readers of positions import this module, so it imports no kernel; `transient_pool` does the rest.
"""

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from towline.errors import PositionsUnusable, RuntimeDirectoryFull
from towline.log.files.segment_files import FULL_ERRNOS
from towline.places import Runtime, Store
from towline.runtime.positions import Position, Positions

OWNER_NAME: Final = "owner.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOwner:
    """Whose bytes a pool holds: one start of a node on one directory, within one boot of the machine.

    `begin` is the log's end at that start: nothing before it is in a buffer. `tail_crc` is that of the bytes before it,
    `flushed` what the state file said then. `directory` is the inode of commitlog/: a copy of the store, though it lies
    at the same path and has the same identity, has another. `pool` is where the buffers lie, which depends on the
    environment of whoever started the node.
    """

    boot_id: str
    generation: int
    store_id: str
    device: int
    directory: int
    segment_size: int
    begin: int
    tail_crc: int
    flushed: int
    pool: str


def encode_owner(owner: PoolOwner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def read_owner(path: Path) -> PoolOwner | None:
    """None if there is no such file, or it is not whole."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        return PoolOwner(**content)
    except (FileNotFoundError, ValueError, TypeError):
        return None


class PoolState(IntEnum):
    """The value of TRANSIENT_POOL: what this start of the node decided."""

    OFF = 0
    ON = 1
    SLAVE = 2
    NO_SHARED_MEMORY = 3
    TOO_LITTLE_MEMORY = 4
    NOT_LOCKABLE = 5
    NOT_RECORDED = 6


def has_pool(positions: Positions) -> bool:
    return positions.get(Position.TRANSIENT_POOL) == PoolState.ON


_KEPT_POSITIONS: Final = "positions"


class PoolRemains(NamedTuple):
    """The log's bytes [committed, appended) stand in the pool alone."""

    owner: PoolOwner
    generation: int
    committed: int
    appended: int


def keep_positions(runtime: Runtime) -> None:
    """Copies the positions of an earlier start beside its pool, before a start makes new ones: they say what it holds.

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
    """Deletes a pool whose bytes are committed. The owner file goes first: a pool without one holds nothing."""
    (runtime.pool / OWNER_NAME).unlink(missing_ok=True)
    shutil.rmtree(runtime.pool, ignore_errors=True)
    store.pool_owner.unlink(missing_ok=True)


def clear_runtime(store: Store, runtime: Runtime) -> None:
    """Deletes the runtime directory of a node that ends, except what the next start reads (`snapshot_store`).

    That is what the store itself does not hold: bytes in the pool alone, and, of a node whose stop could not write
    what it knew, or of a start that failed, what a killed node would have left.
    """
    remains = pool_remains(runtime)
    pooled = remains is not None and remains.committed != remains.appended
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


def pool_remains(runtime: Runtime) -> PoolRemains | None:
    """None without a pool, or where its positions are gone, as after a reboot."""
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
        return PoolRemains(owner, positions.generation, committed, appended)
    finally:
        positions.close()


def bytes_in_pool(runtime: Runtime) -> int:
    """Bytes of the log that a killed node left in its transient pool alone."""
    remains = pool_remains(runtime)
    return remains.appended - remains.committed if remains is not None else 0
