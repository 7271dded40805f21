"""A store as somebody sees it who reads its files: what kind it is, its segments, and where its log safely ends (H24).

Nothing here needs Spark, nor anything of a server but for a running node: that part is loaded when one runs. Segments
are mapped by numpy itself: the store's own mapping loads the kernels' compiler, which an executor need not have.
"""

import importlib
import stat
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from towline.arrow.decode import batches
from towline.arrow.selection import Selection
from towline.errors import ForeignFile, MalformedFile, SegmentSizeMismatch
from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.record.columns import field, wider_by
from towline.format.record.record import BORN_HOST_IPV6, LAYOUT, MAGIC_V1, MAGIC_V2
from towline.log.backup.backup_manifest import BackupDirectory, Manifest, base_of
from towline.log.files.segment_files import segment_base, segment_name
from towline.log.files.store_files import last_settings
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler, places_of
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.identity import IdentityFile
from towline.places import Store
from towline.runtime.locks import store_holder, store_is_held

from .errors import MessagesGone, MissingLibrary, NoSafeEnd, NotAStore

QUEUE_FILE_SIZE: Final = 300_000 * ENTRY_SIZE  # RocketMQ's, where no file shows it
QUEUES_OPEN_MAX: Final = 64
ENDS_OF_RECORDS: Final = ("backup", "walk")
_HEAD_MAX: Final = 128  # bytes that hold a record's store time whatever its hosts' families
_ARRAYS_MAX: Final = 16
_LIVE: Final = "towline.spark.live"

Bytes = NDArray[np.uint8]


class StoreKind(Enum):
    LIVE = "live"  # a node of ours runs on it
    STOPPED = "stopped"
    BACKUP = "backup"
    ROCKETMQ = "rocketmq"  # no node of ours ever ran on it


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Entries [min_offset, max_offset) of a queue whose records stand in the log before its safe end."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """What a task needs to know of a store; the same for every task and every attempt of a query.

    `lengths` are bytes of each segment's file by its base. The log is [log_min, safe_end); `end_from` says who said so:
    positions, checkpoint, durable, backup or walk.
    """

    root: str
    kind: StoreKind
    segment_size: int
    lengths: Mapping[int, int]
    log_min: int
    safe_end: int
    end_from: str
    broker_name: str
    store_id: str  # of identity.json, "" without one
    queue_file_size: int
    orderly: bool = True  # a node runs, or was stopped in order: queues have no holes before their newest entry
    force_property_crc: bool = False  # its node's last start insisted that each record ends with its property CRC

    @property
    def segments(self) -> tuple[int, ...]:
        """Bases of the segments that hold something of the log, in order."""
        return tuple(base for base in self.lengths if base < self.safe_end and base + self.segment_size > self.log_min)

    @property
    def store(self) -> Store:
        return Store(Path(self.root))

    def only(self, bases: Iterable[int]) -> "StoreFacts":
        """The same for who reads only these segments."""
        return replace(self, lengths={base: self.lengths[base] for base in bases if base in self.lengths})

    def path_of(self, base: int) -> Path:
        return self.store.commitlog / segment_name(base)

    def segment_of(self, offset: int) -> int:
        return offset - offset % self.segment_size

    def start_in(self, base: int) -> int:
        """Where the log begins in a segment, in bytes from its first: 0 but for a log that begins inside one."""
        return max(0, self.log_min - base)

    def end_in(self, base: int) -> int:
        """Where the log ends in a segment, in bytes from its first."""
        return min(self.segment_size, self.lengths.get(base, self.segment_size), self.safe_end - base)

    def is_whole(self, base: int) -> bool:
        """Whether its bytes end where no record may be cut off. What a running node says may lie inside a record."""
        return self.end_in(base) == self.segment_size or self.end_from in ENDS_OF_RECORDS

    def array(self, base: int) -> Bytes:
        """The segment's bytes before the safe end, mapped read-only. Raises MessagesGone when its file was deleted."""
        path = self.path_of(base)
        try:
            mapped = np.memmap(path, dtype=np.uint8, mode="r")
        except (FileNotFoundError, ValueError):  # numpy maps no empty file
            why = "the segment was deleted by cleaning, or taken away"
            raise MessagesGone(str(path), f"{self.end_in(base)} bytes of the log from {base} on", why) from None
        if len(mapped) < self.end_in(base):
            raise SegmentSizeMismatch(str(path), len(mapped), self.segment_size)
        return np.asarray(mapped)[: self.end_in(base)]

    def queue_files(self) -> ConsumeQueueFiles:
        """The queues' files; to be closed by the caller."""
        return ConsumeQueueFiles(self.store.consumequeue, self.queue_file_size, QUEUES_OPEN_MAX)


class StoreView:
    """A store, a backup, or what a real RocketMQ wrote, opened for reading; one moment of it, however long it is kept.

    `segment_size` is taken from the files when it is not given. Raises NotAStore, ForeignFile, SegmentSizeMismatch,
    MalformedFile, NoSafeEnd.
    """

    def __init__(self, facts: StoreFacts) -> None:
        self._facts = facts
        self._arrays: dict[int, Bytes] = {}

    @classmethod
    def open(cls, path: str | Path, *, segment_size: int | None = None) -> "StoreView":
        root = Path(path).resolve()
        if not root.is_dir():
            raise NotAStore(str(root), "there is no such directory")
        manifest = BackupDirectory(root).load()
        if manifest is not None:
            return cls(_of_backup(root, manifest, segment_size))
        store = Store(root)
        if store.restoring.exists():
            raise NotAStore(str(root), "a restore into it has not ended: `towline store restore` goes on with it")
        if not store.commitlog.is_dir():
            raise NotAStore(str(root), "it holds neither commitlog/ nor backup.json")
        return cls(_of_store(store, segment_size))

    def facts(self) -> StoreFacts:
        """What tasks are handed."""
        return self._facts

    @property
    def kind(self) -> StoreKind:
        return self._facts.kind

    @property
    def segment_size(self) -> int:
        return self._facts.segment_size

    @property
    def segments(self) -> tuple[int, ...]:
        return self._facts.segments

    @property
    def log_min(self) -> int:
        return self._facts.log_min

    @property
    def safe_end(self) -> int:
        return self._facts.safe_end

    @property
    def broker_name(self) -> str:
        return self._facts.broker_name

    @property
    def store_id(self) -> str:
        return self._facts.store_id

    def array(self, base: int) -> Bytes:
        """As `StoreFacts.array`; kept mapped, because searches come back to a segment."""
        if base not in self._arrays:
            self._arrays[base] = self._facts.array(base)
            while len(self._arrays) > _ARRAYS_MAX:
                del self._arrays[next(iter(self._arrays))]
        return self._arrays[base]

    def array_if_there(self, base: int) -> Bytes | None:
        """The same; None when cleaning was here, which a task reports."""
        try:
            return self.array(base)
        except MessagesGone:
            return None

    def store_time(self, offset: int) -> int:
        """Epoch ms of the record that begins there, of which only the magic is checked; -1 where none does."""
        base = self._facts.segment_of(offset)
        at = offset - base
        data = self.array_if_there(base)
        if data is None:
            return -1
        head = np.array(data[at : at + _HEAD_MAX])
        if len(head) < LAYOUT.size:
            return -1
        start = np.zeros(1, dtype=np.int64)
        if int(field(head, start, "magic")[0]) & 0xFFFF_FFFF not in (MAGIC_V1, MAGIC_V2):
            return -1
        moved = start + wider_by(field(head, start, "sys_flag"), BORN_HOST_IPV6)
        if int(moved[0]) + LAYOUT.offset["store_timestamp"] + 8 > len(head):
            return -1
        return int(field(head, moved, "store_timestamp")[0])

    def first_store_time(self, base: int) -> int:
        """The same of the segment's first record."""
        return self.store_time(base + self._facts.start_in(base))

    @cached_property
    def queues(self) -> tuple[QueueBounds, ...]:
        """Every queue with files, in order; none of a backup. Raises SegmentSizeMismatch, ForeignFile."""
        return self._queues(self._facts.safe_end)

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """Topics with batch consume queues of a RocketMQ (spec 1.1): their messages are read from the log alone."""
        found = self._facts.store.batchconsumequeue
        return frozenset(path.name for path in found.iterdir()) if found.is_dir() else frozenset()

    def queues_to(self, end: int) -> tuple[QueueBounds, ...]:
        """The same with what they hold by now of the log before `end`. Of a store at rest nothing is read again."""
        return self.queues if self.kind is StoreKind.STOPPED else self._queues(end)

    def _queues(self, end: int) -> tuple[QueueBounds, ...]:
        found = []
        files = self._facts.queue_files()
        try:
            for topic, queue_id in files.list_queues():
                low, high = _written(files, topic, queue_id)
                high = _whole_before(files, topic, queue_id, low, high, end)
                low = files.min_offset_after(topic, queue_id, self._facts.log_min, low, high)
                found.append(QueueBounds(topic, queue_id, low, high))
        finally:
            files.close()
        return tuple(found)

    def close(self) -> None:
        """Lets go of what was mapped. Tasks map for themselves."""
        self._arrays.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lengths_of(commitlog: Path, segment_size: int | None) -> tuple[int, dict[int, int]]:
    """(segment size, length of each file by its base, in order). The last file may be shorter; empty ones do not count.

    Raises ForeignFile for a name that is no offset, SegmentSizeMismatch for a file of another size.
    """
    found: dict[int, int] = {}
    for path in sorted(commitlog.iterdir()):
        try:
            seen = path.stat()
        except FileNotFoundError:  # deleted meanwhile
            continue
        if stat.S_ISDIR(seen.st_mode):
            continue
        base = segment_base(path.name)
        if base is None:
            raise ForeignFile(str(path), "is not named by 20 decimal digits, so it is no segment")
        if seen.st_size:
            found[base] = seen.st_size
    bases = list(found)
    size = segment_size or (found[bases[0]] if bases else 0)
    for base in bases:
        name = str(commitlog / segment_name(base))
        if found[base] != size and (base != bases[-1] or found[base] > size):
            raise SegmentSizeMismatch(name, found[base], size)
        if base % size:
            raise ForeignFile(name, f"is named by an offset that is no multiple of the segment size {size}")
    return size, found


def _of_backup(root: Path, manifest: Manifest, segment_size: int | None) -> StoreFacts:
    """What the manifest names; other files, of a backup that is under way, do not count."""
    size = manifest.segment_size
    if segment_size not in (None, size):
        raise SegmentSizeMismatch(str(root), size, segment_size or 0)
    lengths = {}
    for kept in sorted(manifest.segments, key=base_of):
        path = root / kept.name
        if not path.is_file() or path.stat().st_size < kept.size:
            raise MalformedFile(str(path), f"backup.json says that it holds {kept.size} bytes, and it does not")
        lengths[base_of(kept)] = kept.size
    return StoreFacts(
        root=str(root),
        kind=StoreKind.BACKUP,
        segment_size=size,
        lengths=lengths,
        log_min=manifest.start,
        safe_end=manifest.end,
        end_from="backup",
        broker_name=manifest.broker_name,
        store_id=manifest.store_id,
        queue_file_size=QUEUE_FILE_SIZE,
    )


def _of_store(store: Store, segment_size: int | None) -> StoreFacts:
    held = store_is_held(store.lock)
    ours = store.identity.exists() or store.durable.exists()
    low, end, end_from = _bounds(store, held, ours) or (0, -1, "walk")
    size, lengths = lengths_of(store.commitlog, segment_size)  # after the end: cleaning only takes from the beginning
    bases = list(lengths)
    low = max(low, bases[0]) if bases else low
    if end < 0:
        if held:
            raise NoSafeEnd(str(store.root), store_holder(store.lock))
        end = _walked(store, size, lengths)
    identity = IdentityFile(store.root).load()
    kind = StoreKind.ROCKETMQ if not ours else StoreKind.LIVE if held else StoreKind.STOPPED
    facts = StoreFacts(
        root=str(store.root),
        kind=kind,
        segment_size=size,
        lengths=lengths,
        log_min=low,
        safe_end=max(low, end),
        end_from=end_from,
        broker_name=_broker_name(store),
        store_id="" if identity is None else identity.store_id,
        queue_file_size=_queue_file_size(store.consumequeue),
        orderly=held or not store.abort.exists(),
        force_property_crc=last_settings(store).get("force_verify_prop_crc") is True,
    )
    _check_whole(facts)
    return facts


def _bounds(store: Store, held: bool, ours: bool) -> tuple[int, int, str] | None:
    """(where the log begins at the least, where it safely ends, who says so); None where nothing says it."""
    if held and ours:
        found = _of_running_node(store)
        if found is not None:
            return (*found, "positions")
    durable = DurableFile(store.root).load() if store.durable.exists() else None
    low = durable.log_min if durable is not None else 0
    others = CheckpointFile(store.root).others_wrote()
    confirmed = _confirmed(store)
    # A real broker writes the start of the last record there: safe, but a store that it closed goes on behind it.
    if confirmed > 0 and (held or not others):
        return low, confirmed, "checkpoint"
    if durable is not None and not (others and not held):
        return low, durable.flushed, "durable"
    return None


def _confirmed(store: Store) -> int:
    """0 where the checkpoint says nothing; while it is being written it does not fit its check."""
    try:
        checkpoint = CheckpointFile(store.root).load()
    except MalformedFile:
        return 0
    return 0 if checkpoint is None else checkpoint.confirm_phy_offset


def _of_running_node(store: Store) -> tuple[int, int] | None:
    running = server_part(f"reading {store.root} while a node runs on it")
    found: tuple[int, int] | None = running.bounds(store, store_holder(store.lock))
    return found


def server_part(what: str) -> ModuleType:
    """What needs the server's libraries, which a reader need not have. Raises MissingLibrary."""
    try:
        return importlib.import_module(_LIVE)
    except ModuleNotFoundError as error:
        raise MissingLibrary(str(error.name), what) from None


def _walked(store: Store, size: int, lengths: Mapping[int, int]) -> int:
    """Of a store at rest without marks: behind the last whole record. Only the last segment with one is walked."""
    unclean = store.abort.exists()
    everything = Selection(system=True, halves=True)
    for base in reversed(list(lengths)):
        log = np.asarray(np.memmap(store.commitlog / segment_name(base), dtype=np.uint8, mode="r"))
        if not log[:4].any():  # made ahead
            continue
        end = base
        columns = ("commitLogOffset", "size")
        for found in batches(log, base, 0, len(log), columns, everything, check_crcs=unclean, on_corruption="stop"):
            end = found["commitLogOffset"][-1].as_py() + found["size"][-1].as_py()
        return end
    return next(iter(lengths), 0)


def _check_whole(facts: StoreFacts) -> None:
    """Raises MessagesGone where the files do not hold what lies between the first of them and the safe end."""
    at = facts.log_min
    for base in facts.segments:
        if base > at:
            _refuse_gap(facts, at, base)
        at = base + min(facts.segment_size, facts.lengths[base])
    if at < facts.safe_end:
        _refuse_gap(facts, at, facts.safe_end)


def _refuse_gap(facts: StoreFacts, start: int, end: int) -> None:
    path = facts.path_of(facts.segment_of(start)) if facts.segment_size else facts.store.commitlog
    amount = f"{end - start} bytes of the log from {start} on"
    raise MessagesGone(str(path), amount, "the file of the segment is missing, or shorter than it was")


def _written(files: ConsumeQueueFiles, topic: str, queue_id: int) -> tuple[int, int]:
    """(first entry, behind the last one) of a queue's files. What entries hold is not read: recovery ends a queue
    at the first that is none, but a reader has to say that one is damaged.
    """
    bases = files.bases(topic, queue_id)
    room, first = files.file_size // ENTRY_SIZE, bases[0] // ENTRY_SIZE if bases else 0
    for base in reversed(bases):
        start = base // ENTRY_SIZE
        end = bisect_left(
            range(start + room),
            True,
            lo=start,
            key=lambda number: files.raw(topic, queue_id, number, 1)["record_size"][0] <= 0,
        )
        if end > start:
            return first, end
    return first, first


def _whole_before(files: ConsumeQueueFiles, topic: str, queue_id: int, low: int, high: int, end: int) -> int:
    """Behind the last entry whose record ends at or before `end`, which may lie inside a record."""
    high = files.min_offset_after(topic, queue_id, end, low, high)
    if high > low:
        last = files.raw(topic, queue_id, high - 1, 1)
        high -= not is_filler(last)[0] and int(places_of(last)[0]) + int(last["record_size"][0]) > end
    return high


def _broker_name(store: Store) -> str:
    """As the node's last start knew it; "" of a real broker's store."""
    return str(last_settings(store).get("broker_name", ""))


def _queue_file_size(consumequeue: Path) -> int:
    """That of the first file there is."""
    for path in consumequeue.glob("*/*/*"):
        if segment_base(path.name) is not None and (length := path.stat().st_size):
            if length % ENTRY_SIZE:
                raise SegmentSizeMismatch(str(path), length, length - length % ENTRY_SIZE)
            return length
    return QUEUE_FILE_SIZE
