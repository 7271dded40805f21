"""`epochFileCheckpoint`: the epochs of a store's log. Written by a master's start, on a slave by receive (H23).

An entry is on the disk before the first byte of its epoch is appended. `.bak` holds the previous list, as in RocketMQ.
A file that cannot be read was damaged or edited and is refused: the previous list would assign the newest bytes to
another epoch. Where the file is missing or empty, a broker crashed between two renames, and `.bak` is valid.
"""

from pathlib import Path

from towline.errors import MalformedFile
from towline.format.files.epochs import IMPLIED, Epochs, cut, decode, encode, limited, opened
from towline.log.errors import EpochPast, EpochsLost
from towline.log.files.segment_files import sync_directory
from towline.log.files.store_files import write_atomically
from towline.places import Store


class EpochFile:
    """One owner saves; anybody may load."""

    def __init__(self, store: Store) -> None:
        self.path = store.epochs
        self.backup = self.path.with_name(self.path.name + ".bak")

    @property
    def is_healed(self) -> bool:
        """Whether `load` reads `.bak`, because a crash left nothing else."""
        return not _has_bytes(self.path) and _has_bytes(self.backup)

    def load(self) -> Epochs:
        """The list; IMPLIED for a store that has none. Raises EpochsLost."""
        for path in (self.path, self.backup):
            if _has_bytes(path):
                try:
                    return decode(path.read_bytes(), str(path)) or IMPLIED
                except MalformedFile as error:
                    raise EpochsLost(error.path, error.problem) from error
        return IMPLIED

    def save(self, epochs: Epochs) -> None:
        """Writes the list durably; the previous one becomes `.bak`. An empty list removes both files.

        Raises DiskFull, StoreNotWritable, SyncFailed.
        """
        if not epochs:
            for path in (self.backup, self.path):
                path.unlink(missing_ok=True)
            sync_directory(self.path.parent)
            return
        data = encode(epochs)
        before = self.path.read_bytes() if _has_bytes(self.path) else b""
        if before == data:  # perhaps left by a save of which nobody knows whether it holds
            sync_directory(self.path.parent)
            return
        if before:
            write_atomically(self.backup, before)
        write_atomically(self.path, data)

    def cut(self, end: int, log_min: int = 0) -> Epochs:
        """Drops the entries at or behind `end`, of which the log holds nothing, and those wholly below `log_min`.

        Returns what is left: IMPLIED where nothing is. Raises like `load` and `save`.
        """
        before = self.load()
        left = limited(cut(before, end), log_min)
        if left != before or self.path.exists() or self.is_healed:
            self.save(left)  # also one that is laid out in another way
        return left or IMPLIED


def open_epoch(store: Store, epoch: int, end: int) -> Epochs:
    """Records the epoch of a master that starts, durably, before put does: it begins at the log's recovered end.

    Raises EpochPast where the log holds bytes of that epoch or a later one; like `EpochFile.load` and `save`.
    """
    file = EpochFile(store)
    try:
        epochs = opened(file.load(), epoch, end)
    except ValueError as error:
        raise EpochPast(epoch, str(error)) from None
    file.save(epochs)
    return epochs


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
