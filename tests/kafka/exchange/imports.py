"""Log directories that are imported, and what the store holds then, read by the rules of docs/kafka-exchange.md."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.kafka.samples import SMALL, T0
from towline.format.record import blank, properties, record, skipped
from towline.format.record.record import Record
from towline.kafka.exchange import names
from towline.kafka.exchange.import_plan import Choices
from towline.kafka.exchange.importing import Imported, import_directory
from towline.kafka.format.building import Form
from towline.kafka.format.records import Header, Records, decode_headers
from towline.kafka.log.log_directory import make
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter
from towline.log.files.segment_files import segment_base
from towline.places import Store

SEGMENT: Final = 64 * 1024
CONFIG: Final = """
mapped_file_size_commit_log = 65536
mapped_file_size_consume_queue = 6000
max_hash_slot_num = 500
max_index_num = 2000
"""


class InTurn:
    """Units one after the other, as the command does them."""

    parallel = 1

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return [work(part) for part in parts]


class AtOnce(InTurn):
    """As tasks of Spark get them: each partition by itself."""

    parallel = 4


def settings(tmp: Path, more: str = "") -> Path:
    path = tmp / "settings.toml"
    path.write_text(CONFIG + more)
    return path


def directory(root: Path) -> Path:
    """A new log directory."""
    make(root, "cluster", 1)
    return root


def write(
    root: Path, topic: str, number: int, records: Records, form: Form | None = None, start: int = 0,
    config: LogConfig = SMALL,
) -> Path:  # fmt: skip
    """A partition of these records."""
    with PartitionWriter(root, topic, number, config, start=start) as writer:
        writer.append(records, form or Form(batch_size=600))
    return root / f"{topic}-{number}"


def write_large(root: Path, topic: str, number: int, count: int) -> Path:
    """A partition that fills several segments of the tests' stores."""
    with PartitionWriter(root, topic, number, LogConfig(segment_bytes=50_000)) as writer:
        writer.append(numbered(count), Form(batch_size=4_000))
    return root / f"{topic}-{number}"


def numbered(count: int, first: int = 0, size: int = 100) -> Records:
    numbers = range(first, first + count)
    bodies = [(b"body %d " % number).ljust(size, b".") for number in numbers]
    times = [T0 + number for number in numbers]
    return Records.of(list(numbers), times, [b"k%d" % number for number in numbers], bodies)


def bring(
    source: Path, store: Path, tmp: Path, more: str = "", tasks: type[InTurn] = InTurn, **choices: Any
) -> Imported:
    """Imports a directory into a store of small files."""
    return import_directory(source, Store(store), Choices(**choices), settings(tmp, more), tasks(), lambda size: None)


@dataclass(frozen=True)
class Message:
    """One of a store's log, as a record of Kafka."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    found: Record
    properties: dict[str, str]

    @property
    def row(self) -> tuple[int, int, bytes | None, bytes | None, list[Header]]:
        return self.offset, self.timestamp, self.key, self.value, self.headers


@dataclass(frozen=True)
class Hole:
    """Numbers [first, end) that no message has."""

    first: int
    end: int


Queue = tuple[str, int]


def log_of(store: Path, size: int = SEGMENT) -> list[Record]:
    """Every record of a store's log, with all that a reader checks; each stands where it says."""
    found = []
    for path in sorted((store / "commitlog").iterdir()):
        data, base, at = np.memmap(path, np.uint8, mode="r").data, segment_base(path.name), 0
        assert base is not None
        assert len(data) == size
        while at + blank.SIZE <= len(data) and (total := int.from_bytes(data[at : at + 4], "big")):
            if int.from_bytes(data[at + 4 : at + 8], "big") == blank.MAGIC:
                assert at + total == size
                break
            one = record.decode(data, at)
            assert one.physical_offset == base + at
            found.append(one)
            at += total
    return found


def queues_of(store: Path, size: int = SEGMENT) -> dict[Queue, list[Message | Hole]]:
    found: dict[Queue, list[Message | Hole]] = {}
    for one in log_of(store, size):
        queue = found.setdefault((one.topic.decode(), one.queue_id), [])
        if one.flag == skipped.HOLE_FLAG:
            queue.append(Hole(one.queue_offset, one.queue_offset + one.prepared_transaction_offset))
        else:
            queue.append(as_kafka(one))
    return found


def messages_of(store: Path, topic: str, queue_id: int = 0, size: int = SEGMENT) -> list[Message]:
    return [each for each in queues_of(store, size).get((topic, queue_id), []) if isinstance(each, Message)]


def as_kafka(one: Record) -> Message:
    """The reverse of an import, by the page's words."""
    pairs = properties.decode(one.properties)
    headers = [(name, value.encode()) for name, value in _plain(one.properties)]
    if names.HEADERS in pairs:
        assert not headers
        headers = decode_headers(base64.b64decode(pairs[names.HEADERS]))
    timestamp = int(pairs.get(names.TIMESTAMP, one.born_timestamp))
    value = None if names.TOMBSTONE in pairs else one.body
    return Message(one.queue_offset, timestamp, _key(pairs), value, headers, one, pairs)


def _key(pairs: dict[str, str]) -> bytes | None:
    if names.KEY in pairs:
        assert names.KEYS not in pairs
        return b"" if pairs[names.KEY] == names.EMPTY_KEY else base64.b64decode(pairs[names.KEY])
    return pairs[names.KEYS].encode() if names.KEYS in pairs else None


def _plain(encoded: bytes) -> list[tuple[str, str]]:
    items = [item.partition(properties.NAME_END) for item in encoded.decode().split(properties.PAIR_END) if item]
    ours = (names.KEYS, properties.CRC32)
    return [(name, value) for name, _, value in items if name not in ours and not name.startswith(names.PREFIX)]
