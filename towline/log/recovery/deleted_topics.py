"""What recovery does to the record of deleted topics when the end of the log was lost with a crash."""

from dataclasses import replace

from towline.format.files.topics import DeletedTopic, TopicTable, topics_content
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.state.topics_file import TopicsConfig, read_table
from towline.places import Store

from .recover_derived import Tail
from .recovery import Recovered


def settle(store: Store, recovered: Recovered, segment_size: int) -> TopicTable:
    """The store's topics, after a deletion that names lost bytes of the log was brought in line with what is left.

    The file of topics was synced and the log was not: numbers below a floor may have been lost. The log goes on with
    them, so the floor is lowered to where it does. Not on a slave: its master sends it those bytes again.
    """
    table = read_table(store)
    if all(deleted.log_offset <= recovered.end for deleted in table.deleted.values()):
        return table
    reader = CommitLogReader(store.commitlog, segment_size)
    reader.load()
    try:
        ends = dict(Tail.of(reader, recovered.dispatched, recovered.end).ends)
    finally:
        reader.close()
    for queue in recovered.queues:
        key = queue.topic, queue.queue_id
        ends[key] = max(ends.get(key, 0), queue.end_offset)
    settled = replace(
        table,
        deleted={
            name: _lowered(name, deleted, recovered.end, ends) if deleted.log_offset > recovered.end else deleted
            for name, deleted in table.deleted.items()
        },
    )
    TopicsConfig(store.config / "topics.json").save(topics_content(settled))
    return settled


def _lowered(name: str, deleted: DeletedTopic, end: int, ends: dict[tuple[str, int], int]) -> DeletedTopic:
    """Of a queue of which nothing is left the floor stays: it begins anew, wherever that is."""
    floors = {queue_id: min(floor, ends.get((name, queue_id), floor)) for queue_id, floor in deleted.floors.items()}
    return DeletedTopic(log_offset=end, floors=floors)
