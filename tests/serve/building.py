"""A node's store on real files, written as put and reput leave it, for the read process to serve."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from towline.format.files.consume_queue import ENTRY, encode
from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.topics import DeletedTopic, TopicConfig, TopicTable, topics_content
from towline.format.java_hash import string_hash
from towline.format.record import blank, properties
from towline.format.record.record import Host, Record
from towline.format.record.record import encode as encode_record
from towline.kernels.base.directory import QueueDirectory
from towline.limits import KIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_service import IndexService
from towline.log.state.identity import IdentityFile
from towline.node.process.context import Node, make_private
from towline.places import Runtime, Store
from towline.runtime.doorbell import Ringer
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings

SEGMENT = 64 * KIB
ENTRIES_PER_FILE = 8
SLOTS, INDEXES = 64, 200
NOON = 1_700_000_000_000  # ms
HOST = Host(bytes([10, 0, 0, 1]), 10911)
GENERATION = 7


class StillClock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return NOON + self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@dataclass
class Built:
    """`append` writes to the log, `dispatch` makes what was appended visible and rings, as reput does."""

    root: Path
    more_settings: dict[str, Any] = field(default_factory=dict)
    base: int = 0  # where the log begins
    segment: int = SEGMENT

    def __post_init__(self) -> None:
        self.store = Store(self.root / "store")
        for directory in (self.store.commitlog, self.store.consumequeue, self.store.index, self.store.config):
            directory.mkdir(parents=True)
        self.store.run.mkdir()
        IdentityFile(self.store.root).create("DefaultCluster")
        self.runtime = Runtime(self.root / "r" / "n")
        make_private(self.runtime.root)
        self.settings = Settings(
            store_path_root_dir=self.store.root,
            mapped_file_size_commit_log=self.segment,
            mapped_file_size_consume_queue=ENTRIES_PER_FILE * ENTRY_SIZE,
            max_hash_slot_num=SLOTS,
            max_index_num=INDEXES,
            max_message_size=1024,
            request_size_max=72 * KIB,
            **self.more_settings,
        )
        self.clock = StillClock()
        self.positions = Positions.create(self.runtime.positions, GENERATION)
        self.ends = QueueEnds.create(self.runtime.queue_ends)
        self.queues = ConsumeQueueFiles(
            self.store.consumequeue, self.settings.mapped_file_size_consume_queue, open_max=16
        )
        self.log = CommitLogReader(self.store.commitlog, self.segment)
        self.index = IndexService(self.store.index, SLOTS, INDEXES, writable=True)
        self.index.load()
        self._scan = DispatchScan(self.log, QueueDirectory())
        self._ringer = Ringer(self.positions, {Duty.SERVE: self.runtime.bell(Duty.SERVE.label)})
        self.records: dict[int, bytes] = {}  # by log offset
        self._next: dict[tuple[str, int], int] = {}
        self._waiting: list[tuple[str, int, int, int, int]] = []
        self.end = self.dispatched = self.base
        for position in (Position.LOG_MIN, Position.APPENDED, Position.FLUSHED, Position.DISPATCHED):
            self._publish(position, self.base)

    def node(self) -> Node:
        log = logging.getLogger("serve")
        return Node(self.store, self.runtime, self.settings, self.positions, Duty.SERVE, GENERATION, log, self.clock)

    def topics(self, deleted: Collection[str] = (), /, **queues: int) -> None:
        """config/topics.json: name -> read and write queues."""
        table = {
            name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            for name, count in queues.items()
        }
        gone = {name: DeletedTopic(log_offset=self.end) for name in deleted}
        path = self.store.config / "topics.json"
        staged = path.with_suffix(".new")
        staged.write_text(dumps_fastjson(topics_content(TopicTable(topics=table, deleted=gone))), encoding="utf-8")
        staged.replace(path)

    def append(
        self,
        topic: str = "t",
        queue: int = 0,
        body: bytes = b"x" * 100,
        *,
        tag: str | None = None,
        keys: str | None = None,
        unique_key: str | None = None,
        store_time: int = 0,
        first: int = 0,
        sys_flag: int = 0,
        crc: str | None = None,
    ) -> int:
        """The log offset of a new record at the log's end; `first` is the offset of a queue's first message.

        `crc` are digits of a property CRC, of whatever record.
        """
        pairs = [(properties.TAGS, tag), (properties.KEYS, keys), (properties.UNIQ_KEY, unique_key)]
        pairs.append((properties.CRC32, crc))
        queue_offset = self._next.get((topic, queue), first)
        record = Record(
            topic=topic.encode(),
            body=body,
            properties=properties.encode(pairs),
            queue_id=queue,
            queue_offset=queue_offset,
            physical_offset=self.end,
            sys_flag=sys_flag,
            born_timestamp=NOON,
            store_timestamp=store_time or NOON + len(self.records),
            store_host=HOST,
        )
        room = self.segment - self.end % self.segment
        if not blank.fits(len(encode_record(record)), room):
            self._write(self.end, blank.encode(room))
            self.end += room
            return self.append(
                topic,
                queue,
                body,
                tag=tag,
                keys=keys,
                unique_key=unique_key,
                store_time=store_time,
                crc=crc,
                first=first,
                sys_flag=sys_flag,
            )
        data = encode_record(record)
        at = self.end
        self._write(at, data)
        self.records[at] = data
        self.end += len(data)
        self._publish(Position.APPENDED, self.end)
        self._next[topic, queue] = queue_offset + 1
        self._waiting.append((topic, queue, queue_offset, at, string_hash(tag) if tag else 0))
        return at

    def dispatch(self, *, ring: bool = True, indexed: bool = True) -> None:
        """Queue bytes, queue ends, index, DISPATCHED, bell: the order of reput. Not `indexed`: the disk is full."""
        for topic, queue, queue_offset, at, code in self._waiting:
            size = len(self.records[at])
            entry = np.frombuffer(encode(at, size, code), dtype=ENTRY)
            self.queues.write(topic, queue, queue_offset, entry)
            place = self.ends.find(topic.encode(), queue)
            if place < 0:
                place = self.ends.add(topic.encode(), queue, queue_offset, queue_offset, 0)
            self.ends.move_all(*np.array([[place], [queue_offset + 1], [at + size]]))
        self._waiting.clear()
        while indexed and self.dispatched < self.end:
            batch = self._scan.read(self.dispatched, self.end)
            self.index.put(batch.log, batch.rows, batch.keys)
            self.dispatched = batch.end
        self._publish(Position.INDEXED, self.dispatched)
        self._publish(Position.DISPATCHED, self.end)
        if ring:
            self._ringer.ring()

    def fill(self, count: int, topic: str = "t", queue: int = 0, **more: Any) -> list[int]:
        """`count` records of one queue, dispatched; their log offsets."""
        offsets = [self.append(topic, queue, b"%d" % number * 20, **more) for number in range(count)]
        self.dispatch()
        return offsets

    def bytes_of(self, offsets: list[int]) -> bytes:
        return b"".join(self.records[offset] for offset in offsets)

    def forget_before(self, log_min: int) -> None:
        """As the cleaner does: LOG_MIN first, then whole segments go."""
        self._publish(Position.LOG_MIN, log_min)
        for base in [base for base in range(0, log_min, self.segment) if base + self.segment <= log_min]:
            (self.store.commitlog / segment_name(base)).unlink(missing_ok=True)

    def close(self) -> None:
        self._ringer.close()
        self.queues.close()
        self.index.close()
        self.ends.close()
        self.log.close()
        self.positions.close()

    def _publish(self, position: Position, value: int) -> None:
        self.positions.writer(position, Duty.RECOVER).advance(value)

    def _write(self, offset: int, data: bytes) -> None:
        path = self.store.commitlog / segment_name(offset - offset % self.segment)
        if not path.exists():
            path.write_bytes(bytes(self.segment))
        with path.open("r+b") as file:
            file.seek(offset % self.segment)
            file.write(data)
