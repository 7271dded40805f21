"""Removes the queue files of deleted topics; readers begin at the topics' floors.

config/topics.json keeps a deleted topic with a floor for each queue: the offset at which the queue continues, should
the topic be created again. Offsets are never given twice, so no entry is wrong, whatever is derived again from the log.
A queue's newest file stays while the log holds records of it, because a start finds the queue's end there; then it is
removed as well, with the units of ConsumeQueueExt.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from towline.errors import MalformedFile, TowlineError
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.durable_file import DurableFile
from towline.log.state.topics_file import TopicsFile
from towline.node.process.context import Node
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

LOOK_MS: Final = 100
LAST_LOOK_MS: Final = 1000  # for queues of which nothing is left in the log
QUEUES_PER_TURN: Final = 16


class DeletedQueues:
    """Removes files of deleted topics. `files` is the dispatcher's own object, so that removed files are closed there
    too."""

    def __init__(
        self, node: Node, files: ConsumeQueueFiles, ends: QueueEnds, leave: Callable[[str, int], None]
    ) -> None:
        """Before anything is dispatched: queues that are met from here on begin at their floors.

        `leave` closes what the dispatchers hold of a queue whose last file goes.
        """
        self._node, self._leave = node, leave
        self._files = files
        self._ends = ends
        self._topics = TopicsFile(node.store.config / "topics.json")
        self._known: dict[tuple[bytes, int], int] = {}
        self._emptied: deque[tuple[str, int, int, int]] = deque()  # topic, queue id, floor, log offset of the deletion
        self._last: dict[tuple[str, int], tuple[int, int]] = {}  # queues that have a newest file: floor, deletion
        self._next_ms = self._last_ms = 0
        self._unsettled = False  # what the file says of deleted topics was not seen in its other generation
        self._check_topics()

    def cycle(self) -> int:
        """Does a bounded part of the work; returns how much."""
        now_ms = self._node.clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + LOOK_MS
            self._check_topics()
        if self._last and now_ms >= self._last_ms:
            self._last_ms = now_ms + LAST_LOOK_MS
            return self._remove_last()
        return self._remove() if self._emptied else 0

    def _check_topics(self) -> None:
        try:
            if not self._topics.refresh() and not self._unsettled:
                return
            floors = self._topics.floors()
        except MalformedFile as error:
            self._node.log.error("deleted topics stay as they are: %s", error)
            return
        table = self._topics.table
        self._unsettled = floors != table.floors()
        self._ends.floors = floors
        for (topic, queue_id), floor in floors.items():
            if self._known.get((topic, queue_id)) == floor:
                continue
            place = self._ends.find(topic, queue_id)
            if place >= 0:
                self._ends.raise_min(place, floor)
            name = topic.decode()
            self._emptied.append((name, queue_id, floor, table.deleted[name].log_offset))
        self._known = floors

    def _remove(self) -> int:
        """Removes files that hold only entries below their queue's floor, once all of those were dispatched."""
        dispatched = self._node.positions.get(Position.DISPATCHED)
        done = 0
        for _ in range(min(QUEUES_PER_TURN, len(self._emptied))):
            topic, queue_id, floor, log_offset = self._emptied.popleft()
            if dispatched < log_offset:
                self._emptied.append((topic, queue_id, floor, log_offset))
                continue
            try:
                count = self._files.delete_below(topic, queue_id, floor)
            except (TowlineError, OSError) as error:
                self._node.log.error("files of queue %s/%d stay: %s", topic, queue_id, error)
                continue
            done += 1
            self._last[topic, queue_id] = floor, log_offset
            text = "queue %s/%d was deleted: it goes on at %d, %d of its files were removed"
            self._node.log.info(text, topic, queue_id, floor, count)
        return done

    def _remove_last(self) -> int:
        """Removes everything of queues whose last record has left the log, and whose topic was not created again."""
        log_min = self._node.positions.get(Position.LOG_MIN)
        gone = [queue for queue, (_, log_offset) in self._last.items() if log_offset <= log_min]
        if not gone or self._durable_min() < max(self._last[queue][1] for queue in gone):
            return 0
        for topic, queue_id in gone[:QUEUES_PER_TURN]:
            floor, _ = self._last.pop((topic, queue_id))
            place = self._ends.find(topic.encode(), queue_id)
            if topic in self._topics.table.topics or place < 0 or self._ends.max_offset(place) > floor:
                continue
            self._leave(topic, queue_id)
            try:
                self._files.delete(topic, queue_id)
            except (TowlineError, OSError) as error:
                self._node.log.error("files of queue %s/%d stay: %s", topic, queue_id, error)
                continue
            self._node.log.info("queue %s/%d was deleted: nothing of it is left", topic, queue_id)
        return len(gone)

    def _durable_min(self) -> int:
        """The log's beginning that a start would use."""
        try:
            durable = DurableFile(self._node.store.root).load()
        except MalformedFile:  # cleaning says so
            return -1
        return durable.log_min if durable is not None else -1
