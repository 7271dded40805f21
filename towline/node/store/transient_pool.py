"""The transient store pool: buffers of one segment each in shared memory, to which put appends (spec 6.4).

    pool/free/*           zeroed; put takes one by renaming it
    pool/taken/<base>     stands in for the segment of that base; COMMITTED says how much the segment's file holds
    pool/used/<base>      wholly committed and given back; allocate zeroes it before it is free again (H1)
    pool/owner.json       whose they are: written last, so that a pool without it was never used

A taken buffer holds the bytes that were appended while it was taken, at the offsets they have in the segment. A rename
moves a buffer without a notice to processes that have mapped it. The blocks are reserved when the pool is made, so that
a write to a buffer never meets SIGBUS (H7).

A pool outlives kill -9 of its node, because it is a directory in shared memory. The next start commits what is left
into the segment files before it walks the log (H25), provided that the pool is really this store's: an owner file
beside the buffers and in the store, the same boot, identity and directory, the same bytes before COMMITTED, and no sign
that another program wrote to the store. `pool_state` is the part that needs no kernel.
"""

import os
import resource
import shutil
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from towline.clock import boot_id
from towline.errors import DiskFull, MalformedFile, StoreNotWritable, SyncFailed
from towline.format.files.durable import Durable
from towline.limits import MIB, PAGE
from towline.log.errors import PoolElsewhere
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import ensure_segment, reserve, segment_base, segment_name
from towline.log.files.sparse_file import written
from towline.log.files.store_files import AbortFile, write_atomically
from towline.log.recovery.quarantine import Quarantine
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.identity import IdentityFile
from towline.node.process.context import Node
from towline.places import Runtime, Store
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Duty, Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .pool_state import OWNER_NAME, PoolOwner, PoolRemains, PoolState, encode_owner, has_pool, pool_remains, read_owner

COPY_STEP: Final = 4 * MIB


class TransientPool:
    """The buffers in one directory, `size` bytes each."""

    def __init__(self, root: Path, size: int) -> None:
        self.root, self.size = root, size
        self.free, self.taken, self.used = (root / name for name in ("free", "taken", "used"))

    def create(self, count: int) -> None:
        """`count` free buffers with reserved blocks. Raises DiskFull when there is no room for all of them."""
        for directory in (self.root, self.free, self.taken, self.used):
            directory.mkdir(mode=0o700, exist_ok=True)
        for number in range(count):
            path = self.free / f"new-{number}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                reserve(fd, 0, self.size)
            finally:
                os.close(fd)

    def path_of(self, base: int) -> Path:
        """The buffer that was taken for the segment of `base`; it need not exist."""
        return self.taken / segment_name(base)

    def bases(self) -> list[int]:
        """Segments for which a buffer is taken, in order."""
        found = [segment_base(path.name) for path in self.taken.iterdir()]
        return sorted(base for base in found if base is not None)

    def borrow(self, base: int) -> bool:
        """Gives the segment `base` a free buffer, unless it has one. False if none is free."""
        target = self.path_of(base)
        if target.exists():
            return True
        for path in sorted(self.free.iterdir()):
            path.rename(target)  # one process borrows, and no two segments have one base: nothing is replaced
            return True
        return False

    def open(self, base: int, *, writable: bool) -> MappedFile:
        """Maps the buffer taken for `base`. Raises FileNotFoundError if there is none."""
        return MappedFile.open(self.path_of(base), self.size, writable=writable)

    def return_buffer(self, base: int) -> Path:
        """The buffer of a segment that is wholly committed goes to `used/`; its new path."""
        target = self.used / segment_name(base)
        self.path_of(base).rename(target)
        return target

    def set_free(self, used: Path) -> None:
        """`used`, a file in `used/`, is all zeros again and may be taken."""
        used.rename(self.free / used.name)

    def files(self) -> list[Path]:
        """Every buffer, whatever its state."""
        return [path for directory in (self.free, self.taken, self.used) for path in directory.iterdir()]


def copy_committed(buffer: MappedFile, fd: int, start: int, end: int) -> None:
    """Copies bytes [start, end) of a buffer into the segment file open at `fd`, by pwrite: an error is one, no SIGBUS.

    Raises OSError; what was copied by then is copied again the next time.
    """
    while start < end:
        start += os.pwrite(fd, buffer.view[start : min(start + COPY_STEP, end)], start)


COMPARED_MAX: Final = MIB  # bytes before COMMITTED that the file and the buffer must have in common
_CAP_IPC_LOCK: Final = 14
_IN_MEMORY: Final = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Of this machine and user, in bytes. `shared` is free room for files in memory, None without such a place."""

    shared: int | None
    available: int
    lockable: int


def pool_of(node: Node) -> TransientPool | None:
    """The pool to which the log is appended, None where it is appended to the segment files."""
    size = node.settings.mapped_file_size_commit_log
    return TransientPool(node.runtime.pool, size) if has_pool(node.positions) else None


def describe_pool(state: PoolState, settings: Settings) -> str:
    """`on`, `off`, or `off (<why it is off though the settings ask for it>)`."""
    wanted = settings.transient_store_pool_size * settings.mapped_file_size_commit_log
    what = f"{settings.transient_store_pool_size} buffers of {settings.mapped_file_size_commit_log} bytes"
    why = {
        PoolState.SLAVE: "a SLAVE appends to the segment files themselves",
        PoolState.NO_SHARED_MEMORY: "the runtime directory is not in memory: there is no XDG_RUNTIME_DIR or /dev/shm",
        PoolState.TOO_LITTLE_MEMORY: f"shared memory has no room for {what}",
        PoolState.NOT_LOCKABLE: f"{what} cannot be locked in memory: raise RLIMIT_MEMLOCK to {wanted}",
        PoolState.NOT_RECORDED: "run/pool.json cannot be written, without which nothing in it would outlive a kill",
    }.get(state)
    return state.name.lower() if why is None else f"off ({why})"


# --- the decision, once per start


def choose_pool(settings: Settings, memory: MachineMemory) -> PoolState:
    """Pure: whether a node with these settings uses a pool on such a machine."""
    wanted = settings.transient_store_pool_size * settings.mapped_file_size_commit_log
    if not settings.transient_store_pool_enable:
        return PoolState.OFF
    if settings.broker_role is BrokerRole.SLAVE:
        return PoolState.SLAVE
    if memory.shared is None:
        return PoolState.NO_SHARED_MEMORY
    if wanted > min(memory.shared, memory.available):
        return PoolState.TOO_LITTLE_MEMORY
    return PoolState.ON if wanted <= memory.lockable else PoolState.NOT_LOCKABLE


def open_pool(node: Node, begin: int) -> PoolState:
    """Makes the pool of a start whose log ends at `begin`, if it is to have one, and publishes the decision."""
    settings, pool = node.settings, TransientPool(node.runtime.pool, node.settings.mapped_file_size_commit_log)
    state = choose_pool(settings, _memory(node.runtime.root))
    if state is PoolState.ON:
        state = _create(pool, settings.transient_store_pool_size)
    if state is PoolState.ON:
        state = _record(node, pool, begin)
    if state is not PoolState.ON and settings.transient_store_pool_enable:
        node.log.warning("transient pool: %s; the log is appended to the segment files", describe_pool(state, settings))
    node.positions.writer(Position.TRANSIENT_POOL, Duty.RECOVER).advance(state)
    return state


def _create(pool: TransientPool, count: int) -> PoolState:
    try:
        pool.create(count)
        _try_to_lock(pool)
    except DiskFull:
        shutil.rmtree(pool.root)
        return PoolState.TOO_LITTLE_MEMORY
    except OSError:
        shutil.rmtree(pool.root)
        return PoolState.NOT_LOCKABLE
    return PoolState.ON


def _record(node: Node, pool: TransientPool, begin: int) -> PoolState:
    """Writes the owner file, in the store and beside the buffers. A node starts on a full disk too."""
    owner = encode_owner(_owner(node, begin))
    try:
        write_atomically(node.store.pool_owner, owner)
    except (StoreNotWritable, SyncFailed):
        shutil.rmtree(pool.root)
        return PoolState.NOT_RECORDED
    (pool.root / OWNER_NAME).write_bytes(owner)
    return PoolState.ON


def _try_to_lock(pool: TransientPool) -> None:
    """One page: the limit was compared before, but a container may forbid it altogether. Raises OSError."""
    mapped = MappedFile.open(pool.files()[0], pool.size, writable=True)
    try:
        mapped.lock(0, PAGE)
    finally:
        mapped.release()


def _owner(node: Node, begin: int) -> PoolOwner:
    identity, found = IdentityFile(node.store.root).load(), node.store.commitlog.stat()
    size = node.settings.mapped_file_size_commit_log
    durable = _durable(node.store)
    return PoolOwner(
        boot_id=boot_id(),
        generation=node.generation,
        store_id=identity.store_id if identity is not None else "",
        device=found.st_dev,
        directory=found.st_ino,
        segment_size=size,
        begin=begin,
        tail_crc=_tail_crc(node.store, size, begin),
        flushed=durable.flushed if durable is not None else 0,
        pool=str(node.runtime.pool),
    )


def _memory(directory: Path) -> MachineMemory:
    room = os.statvfs(directory)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    unlimited = limit == resource.RLIM_INFINITY or int(status["CapEff"], 16) >> _CAP_IPC_LOCK & 1
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return MachineMemory(
        shared=room.f_bavail * room.f_frsize if _is_in_memory(directory) else None,
        available=int(meminfo["MemAvailable"].split()[0]) * 1024,
        lockable=1 << 62 if unlimited else limit,
    )


def _is_in_memory(directory: Path) -> bool:
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0] in _IN_MEMORY
    return False


# --- what a killed node left


def salvage(store: Store, runtime: Runtime) -> list[str]:
    """Commits into the segment files what a killed node left in its pool. Returns sentences for the log.

    Bytes that do not continue this log are not applied but kept in diverged/. A second call changes nothing more;
    the pool stays until `drop_pool`. Raises PoolElsewhere, what writing to the store raises, and MalformedFile.
    """
    if not runtime.pool.exists():
        return _without_pool(store, runtime)
    remains = pool_remains(runtime)
    if remains is None and read_owner(runtime.pool / OWNER_NAME) is not None:
        return ["nobody can tell what is in the transient pool of the last start: its positions have gone"]
    if remains is None or remains.committed == remains.appended:
        return []
    durable = _durable(store)
    if durable is not None and durable.sync_failed:
        return ["the transient pool of the last start waits until the failed sync of the store is mended"]
    pool = TransientPool(runtime.pool, remains.owner.segment_size)
    size, what = remains.appended - remains.committed, f"[{remains.committed}, {remains.appended})"
    why = _foreign_reason(store, pool, remains, durable)
    if why is None:
        for base, start, end in _by_segment(remains):
            ensure_segment(store.commitlog, store.staging, base, pool.size)
            _copy(pool, store.commitlog / segment_name(base), base, start, end)
            if ARMED:
                reach("recover.in_salvage")
        return [f"{size} bytes {what} were in the transient pool alone and are committed now"]
    kept = ", ".join(_quarantine(store, pool, remains)) or "nothing"
    return [f"{size} bytes {what} in the transient pool are not applied: {why}; kept in {kept}"]


def _without_pool(store: Store, runtime: Runtime) -> list[str]:
    """The case that the runtime directory has no pool. Raises PoolElsewhere when another one holds bytes alone."""
    owner = read_owner(store.pool_owner)
    if owner is None:
        return []
    ours = _is_directory(store, owner) and owner.boot_id == boot_id()
    if ours and (Path(owner.pool) / OWNER_NAME).exists():
        remains = pool_remains(Runtime(Path(owner.pool).parent))
        if remains is not None and remains.owner == owner and remains.committed == remains.appended:
            return []
        raise PoolElsewhere(owner.pool, str(runtime.pool))
    return ["the transient pool of the last start has gone with the machine's memory: what was in it alone is lost"]


def _foreign_reason(store: Store, pool: TransientPool, remains: PoolRemains, durable: Durable | None) -> str | None:
    """Why the bytes do not continue the log of this store; None if they do."""
    owner, identity = remains.owner, IdentityFile(store.root).load()
    reasons = {
        "the store does not say that the pool is its": read_owner(store.pool_owner) != owner,
        "they are of another boot of the machine": owner.boot_id != boot_id(),
        "they are of another start of the node": remains.generation not in (owner.generation, 0),
        "the store has another identity": identity is None or identity.store_id != owner.store_id,
        "commitlog/ is another directory, a copy": not _is_directory(store, owner),
        "abort is gone: another program ran and stopped in order": not AbortFile(store.root).exists(),
        "the checkpoint is another program's": _is_checkpoint_foreign(store),
        "the store was not written so far": durable is None or durable.flushed < owner.flushed,
        "a buffer is missing": any(not pool.path_of(base).exists() for base, _, _ in _by_segment(remains)),
    }
    why = next((sentence for sentence, holds in reasons.items() if holds), None)
    return why if why is not None else _difference(store, pool, remains, durable.log_min if durable is not None else 0)


def _difference(store: Store, pool: TransientPool, remains: PoolRemains, log_min: int) -> str | None:
    """Compares the bytes before the pool's begin, and those committed last, with the pool. None if they agree."""
    if remains.owner.begin > log_min and _tail_crc(store, pool.size, remains.owner.begin) != remains.owner.tail_crc:
        return f"the log before {remains.owner.begin} is not what it was when the pool was made"
    base = remains.committed - remains.committed % pool.size
    start = max(remains.owner.begin, base, remains.committed - COMPARED_MAX)
    path = store.commitlog / segment_name(base)
    if start >= remains.committed:
        return _foreign_write(store, pool, remains)
    if not path.exists():
        return f"{path} is missing"
    buffer, file = pool.open(base, writable=False), MappedFile.open(path, pool.size, writable=False)
    try:
        part = slice(start - base, remains.committed - base)
        same = np.array_equal(buffer.array[part], file.array[part])
    finally:
        buffer.release()
        file.release()
    return _foreign_write(store, pool, remains) if same else f"{path} does not hold what was committed to it before"


def _foreign_write(store: Store, pool: TransientPool, remains: PoolRemains) -> str | None:
    """Behind COMMITTED files hold zeros, or what a commit that was cut short put there; else another program wrote."""
    for base, start, end in _by_segment(remains):
        path = store.commitlog / segment_name(base)
        if not path.exists():
            continue
        buffer = pool.open(base, writable=False)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for first, last in written(fd, start - base, end - base):
                found = np.frombuffer(os.pread(fd, last - first, first), dtype=np.uint8)
                if ((found != 0) & (found != buffer.array[first:last])).any():
                    return f"another program wrote to {path} behind what was committed"
        finally:
            os.close(fd)
            buffer.release()
    return None


def _is_checkpoint_foreign(store: Store) -> bool:
    try:
        CheckpointFile(store.root).load()
    except MalformedFile:
        return True
    return False


def _is_directory(store: Store, owner: PoolOwner) -> bool:
    try:
        found = store.commitlog.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (owner.device, owner.directory)


def _durable(store: Store) -> Durable | None:
    file = DurableFile(store.root)
    durable = file.load()
    file.close()
    return durable


def _tail_crc(store: Store, size: int, end: int) -> int:
    """Of up to COMPARED_MAX bytes of the log before `end`, not before their segment; 0 where there are none."""
    base = max(0, end - 1) // size * size
    path = store.commitlog / segment_name(base)
    if end == 0 or not path.exists():
        return 0
    start = max(base, end - COMPARED_MAX)
    with path.open("rb") as file:
        return zlib.crc32(os.pread(file.fileno(), end - start, start - base))


def _by_segment(remains: PoolRemains) -> list[tuple[int, int, int]]:
    """[committed, appended) by segment: its base, and start and end in the log."""
    size = remains.owner.segment_size
    first = remains.committed - remains.committed % size
    return [
        (base, max(base, remains.committed), min(base + size, remains.appended))
        for base in range(first, remains.appended, size)
    ]


def _quarantine(store: Store, pool: TransientPool, remains: PoolRemains) -> list[str]:
    now = time.time_ns() // 1_000_000
    diverged = Quarantine(store.root)
    return [
        str(diverged.keep(pool.path_of(base), base, start, end, now))
        for base, start, end in _by_segment(remains)
        if pool.path_of(base).exists()
    ]


def _copy(pool: TransientPool, path: Path, base: int, start: int, end: int) -> None:
    """Raises StoreNotWritable."""
    buffer = pool.open(base, writable=False)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        copy_committed(buffer, fd, start - base, end - base)
    except OSError as error:
        raise StoreNotWritable(str(path), error.strerror or str(error)) from error
    finally:
        os.close(fd)
        buffer.release()
