"""The file `checkpoint` of the store root; flush writes it, recovery reads it (spec 6.6)."""

import os
import time
from pathlib import Path
from typing import Final

from towline.errors import SyncFailed
from towline.format.files import checkpoint
from towline.format.files.checkpoint import Checkpoint
from towline.log.files.store_files import write_atomically

NAME: Final = "checkpoint"
READS: Final = 10
READ_AGAIN_S: Final = 0.005


class CheckpointFile:
    """Overwritten in place, as a real broker does: the file is one page, and everything in it can be rebuilt."""

    def __init__(self, store: Path) -> None:
        self.path = store / NAME

    def load(self) -> Checkpoint | None:
        """The checkpoint; None without the file. Raises MalformedFile."""
        try:
            data = self._read()
        except FileNotFoundError:
            return None
        return checkpoint.decode(data, str(self.path))

    def others_wrote(self) -> bool:
        """Whether a real broker wrote it last: a whole page whose check is not the one that Towline writes."""
        data = self._read() if self.path.is_file() else b""
        return len(data) == checkpoint.SIZE and checkpoint.sealed(data) != data

    def save(self, content: Checkpoint) -> None:
        """Writes the checkpoint durably. Raises StoreNotWritable, SyncFailed."""
        data = checkpoint.sealed(checkpoint.encode(content))
        if not self.path.exists():
            write_atomically(self.path, data)
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data, 0)
            os.fdatasync(fd)
        except OSError as error:
            raise SyncFailed(str(self.path), 0, len(data), error.errno or 0, error.strerror or "") from error
        finally:
            os.close(fd)

    def _read(self) -> bytes:
        """The whole file. Beside flush, half of what it writes may be seen: read again until the check fits, or for so
        long that a real broker wrote it, or it is damaged."""
        for _ in range(READS):
            data = self.path.read_bytes()
            if len(data) != checkpoint.SIZE or checkpoint.sealed(data) == data:
                break
            time.sleep(READ_AGAIN_S)
        return data
