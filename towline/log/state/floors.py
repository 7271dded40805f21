"""Floors of a store: offsets below which nothing is given or read again, as files of config/ record them.

- Queue floors. A log that begins in the middle, of a slave that was seeded or of a backup, holds no record of some
  queues: their numbers go on where `config/queueFloors.json` says, and not at 0 again. When the node starts as a master
  the floors go into topics.json, as for queues of deleted topics. A queue that has records keeps its numbers by them.
- The floor of retention: the oldest log offset still needed for delayed messages or open transactions. It is computed
  from the offsets that were written last, which are never ahead of what was delivered (0020), so master and slave
  compute the same one, and no process has to run for it.
- The floor of transactions of a RocketMQ broker that had the store last (spec 1.4). A broker passes over a half that
  was checked too often without an op record, so only its offsets show it. Its consumerOffset.json is known by the check
  that it lacks: that of a slave, which may be ahead of its log, has one.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from towline.errors import MalformedFile
from towline.format.files.topics import DeletedTopic, TopicTable, loads_fastjson, topics_content
from towline.format.record.forms import HALF_QUEUE, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_QUEUE, TIMER_TOPIC
from towline.format.record.transactions import TRANSACTION_GROUP
from towline.log.files.config_file import CHECK, ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler, is_queue_id, queue_directory
from towline.places import Store

from .topics_file import TopicsConfig, read_table

QUEUE_FLOORS: Final = "queueFloors.json"
DELAY_OFFSETS: Final = "delayOffset.json"
TIMER_OFFSETS: Final = "timerOffset.json"
GROUP_OFFSETS: Final = "consumerOffset.json"
DELIVERED_DUE: Final = "deliveredDue"
EARLIER: Final = "earlier"  # of TIMER_OFFSETS: what was through before a clock went back
TRANSACTION_OFFSETS: Final = "transactionOffset.json"
HALF_FLOOR: Final = "halfOffset"  # its members
OP_FLOOR: Final = "opOffset"
LOG_END: Final = "towlineLogEnd"  # Towline's own member of these: before it the log holds all that counts as through
_FILES_OPEN_MAX: Final = 64
_LOOK: Final = 4096  # entries, of which fillers may be the first
_OP_QUEUE: Final = "0"  # of the half topic too

Bounds = Callable[[bytes, int], tuple[int, int]]  # lowest offset and end of a queue, (0, 0) of one that is not there


# --- queues


def floors_at(store: Store, queue_file_size: int, start: int) -> dict[str, Any]:
    """The content of the file for a log that begins at `start`: queues whose newest record stands before it.

    Reads the files of every queue, while a node writes them too. Raises SegmentSizeMismatch, ForeignFile, OSError.
    """
    floors: dict[str, dict[str, int]] = {}
    files = ConsumeQueueFiles(store.consumequeue, queue_file_size, _FILES_OPEN_MAX)
    try:
        for topic, queue_id in files.list_queues() if start and store.consumequeue.is_dir() else []:
            _, end = files.end_of(topic, queue_id, start)
            if end and not len(files.read(topic, queue_id, end, 1)):  # no record behind those
                floors.setdefault(topic, {})[str(queue_id)] = end
    finally:
        files.close()
    for (name, number), floor in read_table(store).floors().items() if start else []:
        kept = floors.setdefault(name.decode(), {})
        kept[str(number)] = max(floor, kept.get(str(number), 0))
    return {"start": start, "floors": floors}


def adopt_queue_floors(store: Store) -> int:
    """Moves queueFloors.json into topics.json before a master's log is recovered; how many queues it names. Idempotent.

    Raises MalformedFile, DiskFull, SyncFailed, StoreNotWritable.
    """
    file = ConfigFile(store.config / QUEUE_FLOORS)
    content = file.load()
    if content is None:
        return 0
    try:
        start = int(content["start"])
        floors = {
            str(topic): {int(number): int(floor) for number, floor in queues.items()}
            for topic, queues in content["floors"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedFile(str(file.path), f"it names no queues: {error!r}") from None
    if floors:
        TopicsConfig(store.config / "topics.json").save(topics_content(_with(read_table(store), floors, start)))
    file.backup.unlink(missing_ok=True)
    file.path.unlink()
    return sum(map(len, floors.values()))


def _with(table: TopicTable, floors: dict[str, dict[int, int]], start: int) -> TopicTable:
    deleted = dict(table.deleted)
    for topic, queues in floors.items():
        before = deleted.get(topic, DeletedTopic(log_offset=start))
        merged = {number: max(floor, before.floors.get(number, 0)) for number, floor in queues.items()}
        deleted[topic] = DeletedTopic(log_offset=before.log_offset, floors={**before.floors, **merged})
    return TopicTable(topics=table.topics, data_version=table.data_version, deleted=deleted)


# --- retention


def undelivered_from(store: Store, files: ConsumeQueueFiles, bounds: Bounds, levels: int) -> int | None:
    """Oldest log offset still needed for delayed messages or open transactions; None when no queue holds one.

    `levels`: of the settings. Raises MalformedFile when offsets cannot be read.
    """
    found = []
    for topic, queue_id, offset in undelivered_offsets(store, levels_of(files, levels)):
        low, high = bounds(topic.encode(), queue_id)
        offset = max(offset, low)
        if offset < high:
            entries = files.read(topic, queue_id, offset, min(_LOOK, high - offset))
            records = np.flatnonzero(~is_filler(entries))
            if len(records):
                found.append(int(entries["physical_offset"][records[0]]))
    return min(found, default=None)


def levels_of(files: ConsumeQueueFiles, configured: int) -> int:
    """How many delay levels may have messages to deliver, with those that the settings no longer name."""
    directory = queue_directory(files.root, SCHEDULE_TOPIC, 0).parent
    queues = (int(path.name) for path in directory.iterdir() if is_queue_id(path.name)) if directory.is_dir() else ()
    return max(configured, 1 + max(queues, default=-1))


def undelivered_offsets(store: Store, levels: int) -> Iterator[tuple[str, int, int]]:
    """Topic, queue id, and the first offset that is not known to be delivered or ended."""
    delays = _member(store, DELAY_OFFSETS, "offsetTable")
    for level in range(1, levels + 1):
        yield SCHEDULE_TOPIC, level - 1, int(delays.get(str(level), 0))
    timers = ConfigFile(store.config / TIMER_OFFSETS).load() or {}
    yield TIMER_TOPIC, TIMER_QUEUE, int(timers.get("from", 0))
    yield HALF_TOPIC, HALF_QUEUE, _half_floor(store)


def timers_due(store: Store) -> int:
    """The time, ms since 1970, up to which timed messages are delivered that stand behind that offset."""
    return int((ConfigFile(store.config / TIMER_OFFSETS).load() or {}).get(DELIVERED_DUE, 0))


def _half_floor(store: Store) -> int:
    """The floor of the half topic. A store that only a real broker wrote has it among the offsets of its groups."""
    found = ConfigFile(store.config / TRANSACTION_OFFSETS).load()
    if found is not None:
        return int(found.get(HALF_FLOOR, 0))
    halves = _member(store, GROUP_OFFSETS, "offsetTable").get(f"{HALF_TOPIC}@{TRANSACTION_GROUP}", {})
    return int(halves.get(str(HALF_QUEUE), 0))


def _member(store: Store, name: str, member: str) -> dict[str, Any]:
    content = ConfigFile(store.config / name).load() or {}
    found = content.get(member, {})
    return found if isinstance(found, dict) else {}


# --- transactions of a RocketMQ broker


def adopt_transaction_floors(store: Store, log_end: int) -> bool:
    """Whether transactions go on at the offsets of a broker. To be called before consumerOffset.json is saved again.

    A file that cannot be read is left to its owner, who refuses it. Raises MalformedFile, StoreNotWritable, SyncFailed,
    DiskFull.
    """
    path = store.config / GROUP_OFFSETS
    try:
        content = loads_fastjson(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, MalformedFile, UnicodeDecodeError):
        return False
    if not isinstance(content, dict) or CHECK in content or not isinstance(content.get("offsetTable"), dict):
        return False
    table = content["offsetTable"]
    half, op = (_of(table.get(f"{topic}@{TRANSACTION_GROUP}")) for topic in (HALF_TOPIC, OP_TOPIC))
    file = ConfigFile(store.config / TRANSACTION_OFFSETS)
    if half <= (file.load() or {}).get(HALF_FLOOR, 0):
        return False
    file.save({HALF_FLOOR: half, OP_FLOOR: op, LOG_END: log_end})
    return True


def _of(queues: object) -> int:
    found = queues.get(_OP_QUEUE, 0) if isinstance(queues, dict) else 0
    return found if type(found) is int else 0
