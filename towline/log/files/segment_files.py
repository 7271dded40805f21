"""Segment files: names, creation, publication, reservation and zeroing; how the next segment comes into the log.

A file appears in its directory at full size, with its blocks reserved and synced, by link(2) and never by rename:
rename would replace the file that another process published and mapped a moment before (H4). Allocate makes the next
segment; the log's writer makes it by the same function when allocate is late.
"""

import ctypes
import errno
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, SyncFailed
from towline.limits import MIB, PAGE

NAME_DIGITS: Final = 20
FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
_ZERO_STEP: Final = MIB
_FALLOC_FL_KEEP_SIZE: Final = 0x01
_FALLOC_FL_ZERO_RANGE: Final = 0x10
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 0x02
_CANNOT_ZERO: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.fallocate.restype = ctypes.c_int
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_libc.sync_file_range.restype = ctypes.c_int
_SYNC_FILE_RANGE_WRITE: Final = 2


def segment_name(base: int) -> str:
    """The name of the file whose first byte is byte `base` of its stream (spec 1.1)."""
    return f"{base:0{NAME_DIGITS}d}"


def segment_base(name: str) -> int | None:
    """The reverse; None for a name that is not 20 decimal digits, or no offset of 63 bits."""
    base = int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else -1
    return base if 0 <= base < 1 << 63 else None


def create_segment(staging: Path, size: int, name: str) -> Path:
    """A new file `staging/name` of `size` reserved zero bytes, synced.

    Raises DiskFull (nothing is left behind), FileExistsError, or SyncFailed.
    """
    path = staging / name
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise DiskFull(str(path), size) from error
        raise
    try:
        reserve(fd, 0, size)
        _sync(fd, path)
    except (DiskFull, SyncFailed, OSError):
        path.unlink()
        raise
    finally:
        os.close(fd)
    return path


def publish(staged: Path, target: Path) -> bool:
    """Links `staged` to `target` and removes the staged name. False if `target` exists: then `staged` is dropped.

    File and directories are synced either way, so on return the entry of `target` is durable, whoever made it.
    """
    sync_file(staged)
    try:
        os.link(staged, target)
        won = True
    except FileExistsError:
        won = False
    except OSError as error:
        staged.unlink()
        if error.errno in FULL_ERRNOS:
            raise DiskFull(str(target), 0) from error
        raise
    sync_directory(target.parent)
    staged.unlink()
    sync_directory(staged.parent)
    return won


def clear_staging(staging: Path) -> int:
    """Removes what a killed process left under construction; returns how many files. Only before any process starts."""
    left = [path for path in staging.iterdir() if path.is_file()]
    for path in left:
        path.unlink()
    sync_directory(staging)
    return len(left)


def exchange(first: Path, second: Path) -> bool:
    """Gives each of two names the file or directory of the other, at one stroke; False where that is not supported."""
    if not hasattr(_libc, "renameat2"):
        return False
    names = os.fsencode(first), os.fsencode(second)
    if _libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    return False


def reserve(fd: int, start: int, end: int) -> None:
    """Reserves the blocks of [start, end), holes included, and keeps what is written. Raises DiskFull.

    A disk that cannot have room is not asked: it would give what it has, and leave none for queues and state files.
    """
    if end <= start:
        return
    held, free = 512 * os.fstat(fd).st_blocks, os.fstatvfs(fd)
    if (end - start) - max(0, held - start) > free.f_bavail * free.f_frsize:
        raise DiskFull(_path_of(fd), end - start)
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise DiskFull(_path_of(fd), end - start) from error
        raise


def zero_range(fd: int, start: int, end: int) -> None:
    """Zeroes [start, end) and keeps its blocks reserved, length unchanged; not synced.

    Whole pages by FALLOC_FL_ZERO_RANGE, the rest and where that is not supported by written zeros. PUNCH_HOLE would
    give the reservation back. Raises DiskFull or OSError.
    """
    assert start >= 0
    assert end <= os.fstat(fd).st_size, f"[{start}, {end}) reaches past the end of {_path_of(fd)}"
    first, last = start + -start % PAGE, end - end % PAGE
    if first >= last or not _zero_pages(fd, first, last):
        _write_zeros(fd, start, end)
        return
    _write_zeros(fd, start, first)
    _write_zeros(fd, last, end)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable. Raises SyncFailed."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd, path)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Makes it unless it is there; either way its name is durable then. Raises SyncFailed."""
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Syncs a file, whichever process wrote it. Raises SyncFailed."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(fd, path)
    finally:
        os.close(fd)


def sync_file_system(fd: int, path: Path) -> None:
    """Makes everything on the file system of `path`, open at `fd`, durable at once. Raises SyncFailed.

    For thousands of small files, each of which would commit the journal. Tells of errors since `fd` was opened.
    """
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise SyncFailed(str(path), 0, 0, number or errno.EIO, os.strerror(number or errno.EIO))


def begin_write_back(fd: int) -> None:
    """What is dirty of a file starts on its way to the disk. Nobody waits, and nothing is durable by it.

    What goes wrong is reported by the sync that follows, whoever began to write.
    """
    _libc.sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def _sync(fd: int, path: Path) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncFailed(str(path), 0, 0, error.errno or errno.EIO, error.strerror or "") from error


def _zero_pages(fd: int, start: int, end: int) -> bool:
    """Whether the file system zeroed whole pages by itself."""
    mode = _FALLOC_FL_ZERO_RANGE | _FALLOC_FL_KEEP_SIZE
    if _libc.fallocate(fd, mode, start, end - start) == 0:
        return True
    number = ctypes.get_errno()
    if number in FULL_ERRNOS:
        raise DiskFull(_path_of(fd), end - start)
    if number not in (*_CANNOT_ZERO, errno.EINTR):
        raise OSError(number, os.strerror(number), _path_of(fd))
    return False


def _write_zeros(fd: int, start: int, end: int) -> None:
    zeros = memoryview(bytes(min(_ZERO_STEP, max(0, end - start))))
    while start < end:
        try:
            start += os.pwrite(fd, zeros[: end - start], start)
        except OSError as error:
            if error.errno in FULL_ERRNOS:
                raise DiskFull(_path_of(fd), end - start) from error
            raise


def _path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def ensure_segment(commitlog: Path, staging: Path, base: int, size: int) -> bool:
    """Makes sure that the segment of `base` exists durably; whether this call made it. Both may try at once: one wins.

    `staging` is on the same file system. Raises DiskFull, SyncFailed, OSError. The length of a segment that existed is
    checked when it is mapped. Nothing is warmed: a segment is in the log as soon as it can be, and warm later.
    """
    steps = ensure_in_steps(commitlog, staging, base, size)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def ensure_in_steps(commitlog: Path, staging: Path, base: int, size: int) -> Generator[None, None, bool]:
    """The same in two steps: the file is made, and linked into the log.

    Closing the generator between the two drops what is under construction.
    """
    target = commitlog / segment_name(base)
    if target.exists():
        sync_directory(commitlog)
        return False
    # Two processes may be at it, and a killed one may have left its own: the names under construction differ.
    staged = create_segment(staging, size, f"{segment_name(base)}-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        yield
        return publish(staged, target)
    finally:
        staged.unlink(missing_ok=True)


def drop_abandoned(staging: Path) -> int:
    """Removes what a process that has gone left under construction; how many files."""
    left = [path for path in staging.iterdir() if not Path(f"/proc/{_builder(path.name)}").exists()]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def _builder(name: str) -> int:
    """The pid in the name of a file under construction, as `ensure_in_steps` makes it; 0 in any other name."""
    parts = name.split("-")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0
