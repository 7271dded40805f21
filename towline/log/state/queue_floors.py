"""Numbers of queues of which a log that begins in the middle holds no record: they go on there, and not at 0 again.

A slave that was seeded, and a backup, have the master's log from some offset on. What the queues' numbers had come to
by then stands in `config/queueFloors.json`. When the node starts as a master it goes into topics.json, as for queues of
deleted topics. A queue that has records keeps its numbers by them.
"""

from typing import Any, Final

from towline.errors import MalformedFile
from towline.format.files.topics import DeletedTopic, TopicTable, topics_content
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.places import Store

from .topics_file import TopicsConfig, read_table

NAME: Final = "queueFloors.json"
_FILES_OPEN_MAX: Final = 64


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


def adopt_floors(store: Store) -> int:
    """For the start of a master, before its log is looked at: how many queues go on at a floor. Idempotent.

    Raises MalformedFile, DiskFull, SyncFailed, StoreNotWritable.
    """
    file = ConfigFile(store.config / NAME)
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
