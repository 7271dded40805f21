"""Copies ranges of large files, computing their CRC-32 on the way; ranges of zeros become holes."""

import errno
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from towline.errors import DiskFull, StoreNotWritable
from towline.limits import MIB
from towline.log.files.segment_files import FULL_ERRNOS

STEP: Final = 4 * MIB
_CANNOT_SHARE: Final = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.ETXTBSY)

Progress = Callable[[int], None]


class Copier:
    """`copy` any number of files. What was read is dropped from memory where `cold`, unless somebody has it mapped."""

    def __init__(self, progress: Progress, *, cold: bool = False) -> None:
        self._progress, self._cold = progress, cold
        self._buffer = memoryview(bytearray(STEP))
        self._share = True  # until the file systems say that they cannot

    def copy(self, source: int, target: int, start: int, end: int, crc: int = 0) -> int:
        """Bytes [start, end) of one descriptor to the same place of another, which has a hole there; the CRC after.

        Where the file system can, the blocks are shared. Raises EOFError where the source is shorter, DiskFull,
        StoreNotWritable.
        """
        at = start
        while at < end:
            data = self._read(source, at, end)
            crc = zlib.crc32(data, crc)
            if np.frombuffer(data, dtype=np.uint8).any():
                self._write(source, target, at, data)
            if self._cold:
                os.posix_fadvise(source, at, len(data), os.POSIX_FADV_DONTNEED)
            at += len(data)
            self._progress(len(data))
        return crc

    def checksum(self, source: int, start: int, end: int, crc: int = 0) -> int:
        """The CRC alone. Raises EOFError."""
        at = start
        while at < end:
            data = self._read(source, at, end)
            crc = zlib.crc32(data, crc)
            at += len(data)
            self._progress(len(data))
        return crc

    def _read(self, source: int, at: int, end: int) -> memoryview:
        size = os.preadv(source, [self._buffer[: min(STEP, end - at)]], at)
        if not size:
            raise EOFError(f"the file ends at byte {at}, it should have {end}")
        return self._buffer[:size]

    def _write(self, source: int, target: int, at: int, data: memoryview) -> None:
        done = 0
        try:
            while self._share and done < len(data):
                done += self._shared(source, target, at + done, len(data) - done)
            while done < len(data):
                done += os.pwrite(target, data[done:], at + done)
        except OSError as error:
            name = str(Path(f"/proc/self/fd/{target}").readlink())
            if error.errno in FULL_ERRNOS:
                raise DiskFull(name, len(data) - done) from error
            raise StoreNotWritable(name, error.strerror or str(error)) from error

    def _shared(self, source: int, target: int, at: int, size: int) -> int:
        """Bytes that the kernel copied by itself; 0 where it cannot, and then it is not asked again."""
        try:
            return os.copy_file_range(source, target, size, at, at)
        except OSError as error:
            if error.errno not in _CANNOT_SHARE:
                raise
            self._share = False
            return 0
