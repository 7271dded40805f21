"""What a node leaves behind for the next start: `Known`, from its shared memory when it was killed, or written by it.

A killed node's positions and table of queue ends outlive it in memory. They are of worth only while every byte it wrote
is still in the kernel's page cache: same boot (positions say), same mount, same directory. A directory's birth and the
mount's number, which no kernel gives twice, tell a copied or re-mounted store from the one that was written to.
"""

import contextlib
import ctypes
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Final

from towline.errors import PositionsUnusable
from towline.log.known import Known, KnownQueue
from towline.log.store_files import AbortFile, write_atomically
from towline.places import Runtime, Store
from towline.runtime.positions import Position, Positions
from towline.runtime.queue_ends import QueueEnds

_STATX_BTIME: Final = 0x800
_STATX_INO: Final = 0x100
_STATX_MNT_ID_UNIQUE: Final = 0x4000  # Linux 6.8
_WANTED: Final = _STATX_INO | _STATX_BTIME | _STATX_MNT_ID_UNIQUE
_AT_FDCWD: Final = -100
_STATX_SIZE: Final = 256
_MASK, _INODE, _BIRTH, _DEVICE, _MOUNT = struct.Struct("I"), 32, struct.Struct("qI"), struct.Struct("II"), 144
_BIRTH_AT, _DEVICE_AT = 80, 136
_CRC_DIGITS: Final = 8
_FACTS: Final = ("appended", "dispatched", "indexed", "clean")

_libc = ctypes.CDLL(None, use_errno=True)


def believe(store: Store, runtime: Runtime) -> None:
    """Of a node that runs now: its positions are to count after a kill. What was known before is past."""
    for path in (store.known, runtime.known):
        path.unlink(missing_ok=True)
    if identity := _page_cache(store.commitlog):
        runtime.page_cache.write_text(identity, encoding="ascii")


def keep(store: Store, runtime: Runtime) -> None:
    """Before a start makes new positions: what a killed node left in memory is put aside for its recovery."""
    if not runtime.page_cache.exists():
        return
    identity = runtime.page_cache.read_text(encoding="ascii")
    known = _read_memory(runtime) if identity and identity == _page_cache(store.commitlog) else None
    if known is not None and AbortFile(store.root).exists():
        runtime.known.write_bytes(_encode(known))
    runtime.page_cache.unlink()


def write(store: Store, runtime: Runtime) -> None:
    """Of a node that was stopped in order: everything is synced and dispatched."""
    known = _read_memory(runtime, clean=True)
    if known is not None:
        write_atomically(store.known, _encode(known))


def forget(store: Store, runtime: Runtime) -> None:
    """Before somebody changes the files of a store on which no node runs: what was known of them is past."""
    for path in (store.known, runtime.known, runtime.page_cache):
        path.unlink(missing_ok=True)


def recall(store: Store, runtime: Runtime) -> Known | None:
    """What the node before left, None if nothing is known of it: then the whole recovery is done.

    Nothing is known twice: a recovery that is cut short may have changed what was true before it.
    """
    clean = not AbortFile(store.root).exists()
    known = None
    for path, left_clean in ((store.known, True), (runtime.known, False)):
        with contextlib.suppress(FileNotFoundError):
            if left_clean == clean:
                known = _decode(path.read_bytes())
            path.unlink()
    return known if known is not None and known.clean == clean else None


def _read_memory(runtime: Runtime, *, clean: bool = False) -> Known | None:
    try:
        positions, ends = Positions.open(runtime.positions, writable=False), QueueEnds.open(runtime.queue_ends)
    except PositionsUnusable:
        return None
    try:
        if positions.get(Position.SYNC_FAILED) or positions.get(Position.DISPATCH_STOPPED):
            return None
        # The table is ahead of DISPATCHED where reput was killed between the two; it writes those entries again.
        queues = tuple(
            KnownQueue(end.topic.decode(), end.queue_id, end.min_offset, end.max_offset, end.physical_end)
            for end in ends
        )
        return Known(
            appended=positions.get(Position.APPENDED),
            dispatched=positions.get(Position.DISPATCHED),
            indexed=positions.get(Position.INDEXED),
            clean=clean,
            queues=queues,
        )
    except UnicodeDecodeError:  # its directory has another name: recovery goes by that
        return None
    finally:
        positions.close()
        ends.close()


def _encode(known: Known) -> bytes:
    facts = {name: getattr(known, name) for name in _FACTS} | {"queues": known.queues}
    data = json.dumps(facts).encode()
    return f"{zlib.crc32(data):08x}".encode() + data


def _decode(data: bytes) -> Known | None:
    """None for what is damaged: it only makes a start quicker."""
    check, body = data[:_CRC_DIGITS], data[_CRC_DIGITS:]
    if check != f"{zlib.crc32(body):08x}".encode():
        return None
    facts: dict[str, Any] = json.loads(body)
    queues = tuple(KnownQueue(*queue) for queue in facts.pop("queues"))
    return Known(**facts, queues=queues)


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
