"""Writes stores as a broker does, and keeps what it wrote: the model that recovery's tests compare with."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from towline.format.files.consume_queue import ENTRY, encode
from towline.format.files.durable import Durable
from towline.format.record import blank, property_crc, record
from towline.format.record.record import Host, Record
from towline.kernels.base.directory import QueueDirectory
from towline.limits import KIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_service import IndexService
from towline.log.recovery.recovery import Recovered, RecoverySettings, recover
from towline.log.state.durable_file import DurableFile
from towline.places import Store

SEGMENT = 64 * KIB
QUEUE_FILE = 16 * 20
SLOTS, INDEXES = 64, 40
NOON = 1_700_000_000_000  # ms
HOST = Host(bytes([10, 0, 0, 1]), 10911)
SETTINGS = RecoverySettings(segment_size=SEGMENT, queue_file_size=QUEUE_FILE, index_slots=SLOTS, index_indexes=INDEXES)


@dataclass(frozen=True)
class Stored:
    """One record of the model."""

    at: int
    data: bytes
    topic: str
    queue_id: int
    queue_offset: int
    timestamp: int

    @property
    def end(self) -> int:
        return self.at + len(self.data)


@dataclass
class StoreMaker:
    """`append` first; then `dispatch` and `durable`, in any order, as far as the test wants the store to have come."""

    root: Path
    base: int = 0
    with_crc: bool = False  # property CRCs
    records: list[Stored] = field(default_factory=list)
    blanks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = self.base
        self.store.commitlog.mkdir(parents=True, exist_ok=True)
        (self.root / "abort").write_text("1")

    @property
    def store(self) -> Store:
        return Store(self.root)

    def path(self, offset: int) -> Path:
        return self.store.commitlog / segment_name(offset - offset % SEGMENT)

    def append(self, body: bytes, topic: str = "TopicA", queue_id: int = 0) -> Stored:
        """One record at the log's end, its key `k<number>`; rolls like put."""
        number = len(self.records)
        properties = f"KEYS\x01k{number}\x02".encode()
        properties = property_crc.appended(properties) if self.with_crc else properties
        size = record.record_size(len(body), len(topic.encode()), len(properties))
        room = SEGMENT - self.end % SEGMENT
        if not blank.fits(size, room):
            self.write(self.end, blank.encode(room))
            self.blanks.append(self.end)
            self.end += room
        before = [
            stored.queue_offset for stored in self.records if (stored.topic, stored.queue_id) == (topic, queue_id)
        ]
        made = Record(
            topic=topic.encode(),
            body=body,
            properties=properties,
            queue_id=queue_id,
            queue_offset=len(before),
            physical_offset=self.end,
            born_timestamp=NOON,
            store_timestamp=NOON + number,
            store_host=HOST,
        )
        data = property_crc.filled(record.encode(made)) if self.with_crc else record.encode(made)
        stored = Stored(self.end, data, topic, queue_id, len(before), NOON + number)
        self.write(self.end, stored.data)
        self.records.append(stored)
        self.end = stored.end
        return stored

    def fill(self, count: int, size: int = 400) -> None:
        """`count` records of equal size over two topics with two queues each."""
        for number in range(count):
            self.append(bytes([number % 251 + 1]) * size, f"Topic{'AB'[number % 2]}", number // 2 % 2)

    def write(self, offset: int, data: bytes) -> None:
        """Bytes into the segment of `offset`, which is made, sparse and at full size, if need be."""
        path = self.path(offset)
        if not path.exists():
            path.touch()
            with path.open("r+b") as file:
                file.truncate(SEGMENT)
        with path.open("r+b") as file:
            file.seek(offset % SEGMENT)
            file.write(data)

    def copy_crc(self, source: Stored, target: Stored) -> None:
        """As a broker stores a batch that ends with the property CRC of a message that its sender received."""
        self.write(target.end - property_crc.SIZE, source.data[-property_crc.SIZE :])

    def zero_from(self, offset: int) -> None:
        """As if nothing behind `offset` ever reached the disk."""
        self.write(offset, bytes(SEGMENT - offset % SEGMENT))
        for path in self.store.commitlog.iterdir():
            if int(path.name) > offset:
                path.unlink()

    def durable(self, flushed: int, queues: int = 0, log_min: int | None = None) -> None:
        file = DurableFile(self.root)
        file.save(
            Durable(
                flushed=flushed,
                segment_base=flushed - flushed % SEGMENT,
                queues_durable=queues,
                log_min=self.base if log_min is None else log_min,
            )
        )
        file.close()

    def dispatch(self, upto: int) -> None:
        """Queues and index as reput leaves them when it dispatched every record before `upto`."""
        files = ConsumeQueueFiles(self.store.consumequeue, QUEUE_FILE, 8)
        for stored in self.records:
            if stored.at < upto:
                entry = np.frombuffer(encode(stored.at, len(stored.data), 0), dtype=ENTRY)
                files.write(stored.topic, stored.queue_id, stored.queue_offset, entry)
        files.close()
        self.index(self.base, upto)

    def index(self, start: int, upto: int) -> None:
        service = open_index(self.store)
        reader = CommitLogReader(self.store.commitlog, SEGMENT)
        reader.load()
        scan = DispatchScan(reader, QueueDirectory())
        while start < upto:
            batch = scan.read(start, upto)
            service.put(batch.log, batch.rows, batch.keys)
            if batch.end == start:
                break
            start = batch.end
        service.close()
        reader.close()

    def recover(self, settings: RecoverySettings = SETTINGS) -> Recovered:
        return recover(self.store, settings)

    def log_bytes(self) -> bytes:
        """The whole log, segment after segment."""
        return b"".join(path.read_bytes() for path in sorted(self.store.commitlog.iterdir()))

    def kept(self) -> dict[int, bytes]:
        """What stands in diverged/, by log offset."""
        directory = self.store.diverged
        paths = sorted(directory.glob("*.log")) if directory.is_dir() else []
        return {int(path.name.partition("-")[0]): path.read_bytes() for path in paths}


def open_index(store: Store, *, writable: bool = True) -> IndexService:
    service = IndexService(store.index, SLOTS, INDEXES, writable=writable)
    service.load()
    return service


def contents(store: Store) -> dict[str, bytes]:
    """Every file that recovery may change, but for the two state files' sequence numbers."""
    folders = (store.commitlog, store.consumequeue, store.index, store.diverged)
    return {
        str(path.relative_to(store.root)): path.read_bytes()
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def open_files(root: Path) -> list[Path]:
    """Files below `root` that this process has open, one for each descriptor."""
    found = (Path(os.path.realpath(each)) for each in Path("/proc/self/fd").iterdir())
    return [path for path in found if path.is_relative_to(root.resolve()) and path != root.resolve()]
