"""Snapshots of a stopped or killed node for its next start: `Known`, from shared memory or from a file of the store.

A killed node's positions and table of queue ends outlive it in memory. They hold only while every byte that it wrote is
still in the kernel's page cache: same boot (the positions say which), same mount, same directory. A directory's birth
and the mount's number, which no kernel gives twice, separate a copied or re-mounted store from the one written to.
The store names the generation that ran on it last: memory of an older one, in another runtime directory, is outdated.

A snapshot only makes a start quicker: where it cannot be written or read, a warning says so and the node starts.
"""

import contextlib
import ctypes
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from towline.clock import boot_id
from towline.errors import DiskFull, PositionsUnusable, StoreNotWritable, SyncFailed
from towline.log.files.store_files import AbortFile, write_atomically
from towline.log.recovery.shutdown_snapshot import Known, KnownQueue
from towline.node.store.confirmed import confirmed_parts
from towline.places import Runtime, Store
from towline.runtime.positions import Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings

_STATX_BTIME: Final = 0x800
_STATX_INO: Final = 0x100
_STATX_MNT_ID_UNIQUE: Final = 0x4000  # Linux 6.8
_WANTED: Final = _STATX_INO | _STATX_BTIME | _STATX_MNT_ID_UNIQUE
_AT_FDCWD: Final = -100
_STATX_SIZE: Final = 256
_MASK, _INODE, _BIRTH, _DEVICE, _MOUNT = struct.Struct("I"), 32, struct.Struct("qI"), struct.Struct("II"), 144
_BIRTH_AT, _DEVICE_AT = 80, 136
_CRC_DIGITS: Final = 8
_LAYOUT: Final = 3  # of what is written; another version's is not read
_FACTS: Final = ("generation", "appended", "dispatched", "indexed", "indexing", "clean", "synced", "confirmed")
_MEMORY: Final = "memory"  # of what is known from there: which page cache it speaks of
_TROUBLE: Final = (Position.SYNC_FAILED, Position.DERIVED_SYNC_FAILED, Position.DISPATCH_STOPPED)

_libc = ctypes.CDLL(None, use_errno=True)


def record_running(
    store: Store, runtime: Runtime, log: logging.Logger, positions: Positions, settings: Settings
) -> None:
    """Marks the positions of a node that runs now as valid after a kill, and deletes older snapshots."""
    with _best_effort(log):
        for path in (store.known, runtime.known, _last(store)):
            path.unlink(missing_ok=True)
        if memory := _memory_of(store):
            _last(store).write_text(str(positions.generation), encoding="ascii")
            runtime.page_cache.write_text(json.dumps({_MEMORY: memory} | _settings_facts(positions, settings)), "ascii")
            runtime.wrote.write_text(memory, encoding="ascii")


def may_have_lost(store: Store, runtime: Runtime) -> bool:
    """Whether bytes that were written here may be gone: not where only processes were killed since a node ran.

    Nothing is known after a power cut, of another page cache, or once a sync has failed.
    """
    try:
        said = runtime.wrote.read_text(encoding="ascii")
    except (OSError, ValueError):
        return True
    return not said or said != _memory_of(store)


def record_nothing_lost(store: Store, runtime: Runtime, log: logging.Logger) -> None:
    """Records that the store has lost nothing, as its recovery found: the next start need not doubt it."""
    with _best_effort(log):
        runtime.wrote.write_text(_memory_of(store), encoding="ascii")


def save_killed(store: Store, runtime: Runtime, log: logging.Logger) -> None:
    """Saves the memory of a killed node for its recovery, before a start makes new positions."""
    if not runtime.page_cache.exists():
        return
    with _best_effort(log):
        try:
            said, known = _running_facts(runtime), None
            if said.get(_MEMORY) and said[_MEMORY] == _memory_of(store):
                known = _read_memory(runtime, said)
            if known is None:
                runtime.wrote.unlink(missing_ok=True)
            elif AbortFile(store.root).exists():
                runtime.known.write_bytes(_encode(known, said[_MEMORY]))
        finally:  # the positions that follow are not yet of a node that runs
            runtime.page_cache.unlink()


def save_stopped(
    store: Store, runtime: Runtime, log: logging.Logger, positions: Positions, settings: Settings, *, clean: bool
) -> None:
    """Saves the snapshot of a node that was stopped in order: all is synced and, if it is `clean`, dispatched."""
    with _best_effort(log):
        known = _read_memory(runtime, _settings_facts(positions, settings))
        if known is not None:
            write_atomically(store.known, _encode(replace(known, clean=clean, synced=True)))


def discard_snapshots(store: Store, runtime: Runtime) -> None:
    """Deletes every snapshot, before a tool changes the files of a store on which no node runs."""
    for path in (store.known, runtime.known, runtime.page_cache, runtime.wrote, _last(store)):
        path.unlink(missing_ok=True)


def load_snapshot(store: Store, runtime: Runtime, log: logging.Logger) -> Known | None:
    """The snapshot of the node before; None if there is none, and the whole recovery is done.

    It is deleted when it is read: a recovery that is cut short may have changed what was true before. One that finds a
    snapshot true saves it again (`save_for_next_recovery`).
    """
    clean = not AbortFile(store.root).exists()
    found = None
    for path in (store.known, runtime.known):
        if path.exists():
            with _best_effort(log):
                data = path.read_bytes()
                path.unlink()
                known, memory = _decode(data)
                lasting = known is not None and (known.synced if path == store.known else memory == _memory_of(store))
                found = known if lasting else found
    if found is None or found.clean != clean:
        return None
    return found if clean or found.generation == _last_generation(store) else None


def save_for_next_recovery(store: Store, runtime: Runtime, log: logging.Logger, known: Known) -> None:
    """Saves a snapshot that a recovery found true and did not outdate; valid until a node runs."""
    with _best_effort(log):
        if known.synced:
            write_atomically(store.known, _encode(known))
        else:
            runtime.known.write_bytes(_encode(known, _memory_of(store)))


@contextlib.contextmanager
def _best_effort(log: logging.Logger) -> Iterator[None]:
    try:
        yield
    except (OSError, DiskFull, StoreNotWritable, SyncFailed) as error:
        log.warning("the next start may have to read everything: %s", error)


def _last(store: Store) -> Path:
    """Names the generation that ran on the store last."""
    return store.run / "generation"


def _last_generation(store: Store) -> int | None:
    try:
        return int(_last(store).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _settings_facts(positions: Positions, settings: Settings) -> dict[str, Any]:
    """The settings by which the positions of a node are read."""
    parts = [part.name for part in confirmed_parts(settings, positions)]
    return {"indexing": settings.message_index_enable, "confirmed": parts}


def _running_facts(runtime: Runtime) -> dict[str, Any]:
    """The page-cache file that a running node wrote; empty where it cannot be read, as of another version."""
    try:
        said = json.loads(runtime.page_cache.read_bytes())
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _read_memory(runtime: Runtime, meaning: Mapping[str, Any]) -> Known | None:
    try:
        positions, ends = Positions.open(runtime.positions, writable=False), QueueEnds.open(runtime.queue_ends)
    except PositionsUnusable:
        return None
    try:
        if any(positions.get(trouble) for trouble in _TROUBLE):
            return None
        # The table is ahead of DISPATCHED where reput was killed between the two; it writes those entries again.
        queues = tuple(
            KnownQueue(end.topic.decode(), end.queue_id, end.min_offset, end.max_offset, end.physical_end)
            for end in ends
        )
        return Known(
            generation=positions.generation,
            appended=positions.get(Position.APPENDED),
            dispatched=positions.get(Position.DISPATCHED),
            indexed=positions.get(Position.INDEXED),
            indexing=bool(meaning["indexing"]),
            clean=False,
            confirmed=min(positions.get(Position[part]) for part in meaning["confirmed"]),
            queues=queues,
        )
    except UnicodeDecodeError:  # its directory has another name: recovery goes by that
        return None
    finally:
        positions.close()
        ends.close()


def _encode(known: Known, memory: str = "") -> bytes:
    facts = {name: getattr(known, name) for name in _FACTS}
    facts |= {"layout": _LAYOUT, _MEMORY: memory, "queues": known.queues}
    data = json.dumps(facts).encode()
    return f"{zlib.crc32(data):08x}".encode() + data


def _decode(data: bytes) -> tuple[Known | None, str]:
    """None for what is damaged or of another version: it only makes a start quicker. And whose memory it was in."""
    check, body = data[:_CRC_DIGITS], data[_CRC_DIGITS:]
    if check != f"{zlib.crc32(body):08x}".encode():
        return None, ""
    try:
        facts: dict[str, Any] = json.loads(body)
        queues = tuple(KnownQueue(*queue) for queue in facts.pop("queues"))
        memory = str(facts.pop(_MEMORY))
        return (Known(**facts, queues=queues), memory) if facts.pop("layout") == _LAYOUT else (None, "")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None, ""


def _memory_of(store: Store) -> str:
    """Names what holds the bytes that are written to the store now; empty where the kernel cannot tell."""
    identity = _page_cache(store.commitlog)
    return f"boot {boot_id()} {identity}" if identity else ""


def _page_cache(directory: Path) -> str:
    """Names the page cache that a directory's files are in; empty where the kernel cannot tell."""
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if not hasattr(_libc, "statx"):
        return ""
    if _libc.statx(_AT_FDCWD, os.fsencode(directory), 0, _WANTED, buffer) != 0:
        return ""
    if _MASK.unpack_from(buffer)[0] & _WANTED != _WANTED:
        return ""
    inode, mount = (int.from_bytes(buffer.raw[at : at + 8], "little") for at in (_INODE, _MOUNT))
    birth, device = _BIRTH.unpack_from(buffer, _BIRTH_AT), _DEVICE.unpack_from(buffer, _DEVICE_AT)
    return f"mount {mount} device {device[0]}:{device[1]} inode {inode} born {birth[0]}.{birth[1]:09d}"
