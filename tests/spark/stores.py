"""Stores as a broker leaves them, with what every message of them should be read as: rows made without any reader."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from towline.format.files.checkpoint import Checkpoint
from towline.format.files.consume_queue import ENTRY, encode
from towline.format.files.durable import Durable
from towline.format.java_hash import string_hash
from towline.format.record import blank, record
from towline.format.record.record import Host, Record
from towline.limits import KIB
from towline.log.backup.backup import Source, take_backup
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.places import Store

SEGMENT = 64 * KIB
QUEUE_FILE = 100 * 20
NOON = 1_700_000_000_000  # ms
BORN = Host(bytes([10, 0, 0, 9]), 4711)
STORED = Host(bytes([10, 0, 0, 1]), 10911)


@dataclass
class MadeStore:
    """`put` messages, then `dispatch` them and say how far the log is safe. `rows` are what readers should see."""

    root: Path
    segment_size: int = SEGMENT
    base: int = 0
    step_ms: int = 1000
    rows: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end = self.base
        self.store.commitlog.mkdir(parents=True, exist_ok=True)

    @property
    def store(self) -> Store:
        return Store(self.root)

    def put(
        self,
        topic: str,
        queue_id: int = 0,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | None = None,
        uniq: str | None = None,
        sys_flag: int = 0,
        body_read: bytes | None = None,
        **properties: str,
    ) -> dict[str, Any]:
        """One message at the log's end, which rolls like put's. `body_read` is what a compressed body holds."""
        named = {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": uniq} | properties
        pairs = {name: value for name, value in named.items() if value is not None}
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
        room = self.segment_size - self.end % self.segment_size
        size = record.record_size(len(body), len(topic.encode()), len(text))
        if not blank.fits(size, room):
            self.write(self.end, blank.encode(room))
            self.end += room
        number = self.numbers.get((topic, queue_id), 0)
        made = Record(
            topic=topic.encode(),
            body=body,
            properties=text,
            queue_id=queue_id,
            queue_offset=number,
            physical_offset=self.end,
            flag=len(self.rows) % 7,
            sys_flag=sys_flag,
            born_timestamp=NOON + len(self.rows) * self.step_ms - 3,
            born_host=BORN,
            store_timestamp=NOON + len(self.rows) * self.step_ms,
            store_host=STORED,
            reconsume_times=len(self.rows) % 3,
            prepared_transaction_offset=0,
        )
        data = record.encode(made)
        self.write(self.end, data)
        row = _row(made, pairs, self.end, len(data)) | ({} if body_read is None else {"body": body_read})
        self.numbers[topic, queue_id] = number + 1
        self.rows.append(row)
        self.end += len(data)
        return row

    def fill(self, count: int, topics: int = 3, queues: int = 2, size: int = 300) -> "MadeStore":
        """Messages over topics TopicA, TopicB, ... and their queues, with tags, keys and unique keys."""
        for number in range(count):
            topic = f"Topic{chr(ord('A') + number % topics)}"
            self.put(
                topic,
                number // topics % queues,
                bytes([number % 251]) * (size + number % 40),
                tags=f"tag{number % 4}" if number % 5 else None,
                keys=f"k{number} all",
                uniq=f"U{number:08d}",
            )
        return self

    def write(self, offset: int, data: bytes) -> None:
        path = self.path(offset)
        if not path.exists():
            path.touch()
            with path.open("r+b") as file:
                file.truncate(self.segment_size)
        with path.open("r+b") as file:
            file.seek(offset % self.segment_size)
            file.write(data)

    def path(self, offset: int) -> Path:
        return self.store.commitlog / segment_name(offset - offset % self.segment_size)

    def dispatch(self) -> "MadeStore":
        """Queues of everything, as reput writes them: halves and rolled-back messages have no entry."""
        files = ConsumeQueueFiles(self.store.consumequeue, QUEUE_FILE, 64)
        for row in self.rows:
            if row["sysFlag"] & record.TRANSACTION_MASK in (0, record.TRANSACTION_COMMIT):
                entry = np.frombuffer(encode(row["commitLogOffset"], row["size"], row["tagsCode"]), dtype=ENTRY)
                files.write(row["topic"], row["queueId"], row["queueOffset"], entry)
        files.close()
        return self

    def safe(self, end: int | None = None, log_min: int = 0) -> "MadeStore":
        """As a node that was stopped leaves it: everything before `end` is durable and confirmed."""
        end = self.end if end is None else end
        durable = DurableFile(self.root)
        durable.save(Durable(flushed=end, segment_base=end - end % self.segment_size, log_min=log_min))
        durable.close()
        CheckpointFile(self.root).save(Checkpoint(confirm_phy_offset=end))
        return self

    def backup(self, target: Path, broker_name: str = "broker-x") -> Path:
        source = Source(
            store=self.store,
            segment_size=self.segment_size,
            queue_file_size=QUEUE_FILE,
            bounds=lambda: (self.base, self.end),
            node=0,
            broker_name=broker_name,
            role="master",
            time_ms=0,
            version="0",
        )
        take_backup(source, target, lambda _: None, lambda _: None)
        return target

    def whole(self, count: int = 600) -> "MadeStore":
        """A stopped store of ours with messages and queues."""
        return self.fill(count).dispatch().safe()


def _row(made: Record, pairs: dict[str, str], at: int, size: int) -> dict[str, Any]:
    """What a reader should see."""
    tags = pairs.get("TAGS")
    return {
        "topic": made.topic.decode(),
        "queueId": made.queue_id,
        "queueOffset": made.queue_offset,
        "tags": tags,
        "keys": pairs.get("KEYS"),
        "uniqKey": pairs.get("UNIQ_KEY"),
        "body": made.body,
        "properties": pairs,
        "flag": made.flag,
        "bornTimestamp": _time(made.born_timestamp),
        "bornHost": str(made.born_host),
        "storeTimestamp": _time(made.store_timestamp),
        "storeHost": str(made.store_host),
        "brokerName": "",
        "commitLogOffset": at,
        "size": size,
        "sysFlag": made.sys_flag,
        "bodyCRC": record.body_crc(made.body),
        "reconsumeTimes": made.reconsume_times,
        "preparedTransactionOffset": made.prepared_transaction_offset,
        "tagsCode": string_hash(tags) if tags else 0,
    }


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
