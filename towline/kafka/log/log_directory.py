"""A log directory: whose it is, its partitions, its checkpoints, and the lock of a broker that runs on it."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from towline.kafka.errors import LogInUse, MalformedBytes, NoLogDirectory, in_file
from towline.kafka.format import checkpoints, meta_properties, partition_metadata
from towline.kafka.format.checkpoints import TopicPartition
from towline.kafka.format.meta_properties import MetaProperties

from .files import partitions, write_whole
from .partition import Partition

LOCK: Final = ".lock"
CLEAN_STOP: Final = ".kafka_cleanshutdown"
INTERNAL: Final = ("__cluster_metadata", "__consumer_offsets", "__transaction_state", "__share_group_state")

# Of this process: it would lose its lock by closing another descriptor of the file.
_HELD: Final[set[Path]] = set()


class LogDirectory:
    """One of a broker's `log.dirs`. Raises NoLogDirectory, LogInUse while a broker runs on it, MalformedLog.

    A broker of 0.8 wrote no meta.properties: there the checkpoint of its recovery points says that it is one.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        path = root / meta_properties.NAME
        if not path.is_file() and not (root / checkpoints.RECOVERY_POINTS).is_file():
            raise NoLogDirectory(str(root))
        refuse_running(root)
        try:
            self.meta = meta_properties.decode(path.read_bytes() if path.is_file() else b"")
        except MalformedBytes as error:
            raise in_file(str(path), error) from None

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the broker was stopped, and did not die: else its partitions are to be recovered."""
        return (self.root / CLEAN_STOP).exists()

    def partitions(self, *, internal: bool = False) -> Iterator[Partition]:
        """In the order of topics and numbers; those of a broker's own topics if asked. Raises what Partition does."""
        starts = self.offsets(checkpoints.LOG_STARTS)
        for path in partitions(self.root):
            topic, _, number = path.name.rpartition("-")
            if internal or topic not in INTERNAL:
                yield Partition(path, starts.get((topic, int(number)), 0))

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Of one of the checkpoints; empty where there is none. Raises MalformedLog."""
        path = self.root / name
        if not path.exists():
            return {}
        try:
            return checkpoints.decode_offsets(path.read_bytes())
        except MalformedBytes as error:
            raise in_file(str(path), error) from None

    def keep(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes one of the checkpoints anew."""
        write_whole(self.root / name, checkpoints.encode_offsets(offsets))


def make(root: Path, cluster_id: str, node_id: int) -> LogDirectory:
    """A new directory, with an id of its own."""
    root.mkdir(parents=True, exist_ok=True)
    made = MetaProperties(cluster_id, node_id, partition_metadata.id_text(uuid4()))
    write_whole(root / meta_properties.NAME, meta_properties.encode(made))
    return LogDirectory(root)


def refuse_running(root: Path) -> None:
    """Raises LogInUse where another process holds the lock of `.lock`; the file alone is what a dead broker leaves."""
    if root.resolve() not in _HELD:
        with suppress(FileNotFoundError), _locked(root, os.O_RDONLY, fcntl.LOCK_SH):
            pass


@contextmanager
def held(root: Path) -> Iterator[None]:
    """No broker starts on the directory meanwhile. Raises LogInUse. Not to be nested."""
    with _locked(root, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX):
        _HELD.add(root.resolve())
        try:
            yield
        finally:
            _HELD.discard(root.resolve())


@contextmanager
def _locked(root: Path, flags: int, kind: int) -> Iterator[None]:
    """With the lock that a JVM takes: a record lock of POSIX over the whole file."""
    descriptor = os.open(root / LOCK, flags | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            raise LogInUse(str(root)) from None
        yield
    finally:
        os.close(descriptor)
