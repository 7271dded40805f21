"""Reads through a broker, queue by queue, on machines that do not share the store's disk.

The driver asks each group of nodes for the bounds of its queues; a task pulls its ranges, from whichever node of the
group answers. What no reader of queues sees, such as halves, is not there either.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from towline.arrow.decode import chosen
from towline.arrow.errors import DamagedBody, DamagedRecord
from towline.arrow.selection import Selection
from towline.client.admin import AdminClient
from towline.client.columns import Columns
from towline.client.consumer import Consumer
from towline.client.errors import DamagedMessage
from towline.client.link.endpoints import several
from towline.client.link.routes import GroupRoute, group_routes
from towline.errors import NoAnswer, UnknownTopic
from towline.format.files.consume_queue import ENTRY
from towline.limits import MIB, QUEUE_ENTRIES_MAX

from .errors import DamagedAnswer, UnknownRead
from .offsets import Integers, sizes_of
from .options import SourceOptions
from .planning import CLOCK_SLACK_MS, dealt, queue_ranges
from .reading import Partition, QueueSplit, Reading, gone_from_queue
from .stores import QueueBounds

PULL_BYTES: Final = 4 * MIB
_SUSPEND_MS: Final = 1_000  # what is pulled is there already
_NAME: Final = "spark"


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """Messages of queues of one group of nodes; `endpoints` of their serve as the driver knew them."""

    endpoints: tuple[str, ...]
    broker_name: str
    splits: tuple[QueueSplit, ...]

    def read(self, how: Reading) -> Iterator[pa.RecordBatch]:
        # Places in the log are this broker's: nobody asked for those of a file.
        how = replace(how, selection=replace(how.selection, start_offset=None, end_offset=None))
        for split in self.splits:
            with Consumer(
                self.endpoints,
                split.topic,
                tags=how.selection.tags or "*",
                queues=[split.queue_id],
                max_count=how.batch_rows,
                max_bytes=min(how.batch_bytes, PULL_BYTES),
                suspend_ms=_SUSPEND_MS,
                timeout_ms=how.timeout_ms,
                check_crcs=how.check_crcs,
                name=_NAME,
            ) as consumer:
                yield from self._pulled(consumer, split, how)

    def _pulled(self, consumer: Consumer, split: QueueSplit, how: Reading) -> Iterator[pa.RecordBatch]:
        """Raises NoAnswer when nothing comes for too long although it is there."""
        consumer.seek(split.queue_id, split.start)
        at, since = split.start, time.monotonic()
        while at < split.end:
            try:
                columns = consumer.poll_columns(how.timeout_ms)
            except DamagedMessage as damage:
                if not self._goes_on(consumer, damage, split, how):
                    return
                continue
            self._look_for_gaps(consumer, split, how)
            if columns is not None:
                yield from self._batches(columns, split, how)
            reached = consumer.position()[split.queue_id]
            if reached == at and (time.monotonic() - since) * 1000 >= how.timeout_ms:
                raise NoAnswer(self.endpoints[0], how.timeout_ms, f"queue {split.queue_id} stands still at {at}")
            if reached != at:
                at, since = reached, time.monotonic()

    def _goes_on(self, consumer: Consumer, damage: DamagedMessage, split: QueueSplit, how: Reading) -> bool:
        """Behind a message that no node has whole, where onCorruption allows it; one behind the range ends the read.

        Raises DamagedAnswer.
        """
        if damage.queue_offset >= split.end:
            return False
        problem = f"at byte {damage.physical_offset} of the log: {damage.problem}"
        answer = DamagedAnswer(split.topic, split.queue_id, damage.queue_offset, problem)
        if how.on_corruption == "fail":
            raise answer from None
        how.damaged(answer)
        consumer.seek(split.queue_id, damage.queue_offset + 1)
        return how.on_corruption == "skip"

    def _look_for_gaps(self, consumer: Consumer, split: QueueSplit, how: Reading) -> None:
        """Where the broker went on at another place than was asked for, messages are missing."""
        while consumer.moved:
            moved = consumer.moved.popleft()
            start, end = max(moved.from_offset, split.start), min(moved.to_offset, split.end)
            if start < end:
                why = f"the broker says {moved.status.name}"
                how.lost(gone_from_queue(split.topic, split.queue_id, start, end, why))

    def _batches(self, columns: Columns, split: QueueSplit, how: Reading) -> Iterator[pa.RecordBatch]:
        inside = (columns.queue_offset >= split.start) & (columns.queue_offset < split.end)
        data, starts = np.frombuffer(columns.records, dtype=np.uint8), columns.start[inside]
        decoding = how.decoding(self.broker_name)
        decoding["check_crcs"] = False  # the consumer did
        decoding["on_damage"] = lambda damage: how.damaged(self._named(damage, columns, split))
        try:
            yield from chosen(data, 0, starts, how.columns, how.selection, **decoding)
        except (DamagedRecord, DamagedBody) as damage:
            raise self._named(damage, columns, split) from None

    def _named(self, damage: DamagedRecord | DamagedBody, columns: Columns, split: QueueSplit) -> DamagedAnswer:
        """By its number: the decoder knows bytes of the answer only."""
        row = int(np.searchsorted(columns.start, damage.offset, side="right")) - 1
        problem = damage.problem if isinstance(damage, DamagedBody) else f"{damage.rule}: {damage.sentence}"
        return DamagedAnswer(split.topic, split.queue_id, int(columns.queue_offset[row]), problem)


def partitions(options: SourceOptions, selection: Selection) -> list[Partition]:
    """What tasks pull, of every group of nodes that the endpoint names.

    Raises UnknownRead, BadOption, MessagesGone, InvalidEndpoint, NoAnswer, AskRefused.
    """
    found: list[Partition] = []
    topics: set[str] = set()
    groups = [Group(way, options, selection) for way in group_routes(options.endpoint)]
    for group in groups:
        with closing(group):
            found += group.partitions()
            topics |= group.topics
    named = {*(options.subscribe or ()), *(options.assign or ())}
    for topic in sorted(topics and named - topics):
        raise UnknownRead.of_topic(topic, topics, options.endpoint)
    return found


class Group:
    """One group of nodes, asked by the driver."""

    def __init__(self, way: GroupRoute, options: SourceOptions, selection: Selection) -> None:
        self._options, self._selection = options, selection
        self.endpoints = several(way.endpoints() if callable(way.endpoints) else way.endpoints)
        self._admin = AdminClient(self.endpoints, name=_NAME, timeout_ms=options.timeout_ms)
        self.broker_name = way.name or str(self._admin.welcome().get("name", ""))
        self.topics: set[str] = set()

    def partitions(self) -> list[Partition]:
        where, options = self._options.endpoint, self._options
        ranges = queue_ranges(self.queues(), self.broker_name, where, options, self._selection, self.offset_at)
        ranges = {queue: self.in_time(queue, *span) for queue, span in ranges.items()}
        return [
            RemotePartition(self.endpoints, self.broker_name, tuple(group)) for group in dealt(ranges, self._options)
        ]

    def close(self) -> None:
        self._admin.close()

    def queues(self) -> list[QueueBounds]:
        """The queues of the topics that are chosen, as they are now."""
        self.topics = {row["topic"] for row in self._admin.topics()}
        found = []
        for topic in sorted(self.topics):
            if not self._selection.wants_topic(topic):
                continue
            try:
                bounds = self._admin.bounds(topic)
            except UnknownTopic:  # deleted meanwhile
                continue
            found += [QueueBounds(topic, queue_id, low, end) for queue_id, (low, end) in sorted(bounds.items())]
        return found

    def offset_at(self, queue: tuple[str, int], span: tuple[int, int], time_ms: int) -> int:
        """The first offset in `span` of a message that was stored then or later, as the broker finds it."""
        low, high = span
        return min(max(low, self._admin.offset_at(*queue, time_ms)), high)

    def sizes(self, queue: tuple[str, int], first: int, count: int) -> Integers:
        """Sizes of up to `count` messages, as far as one answer has them."""
        topic, queue_id = queue
        most = min(count, QUEUE_ENTRIES_MAX)
        rows = self._admin.ask("queue_entries", topic=topic, queue=queue_id, offset=first, count=most).facts["entries"]
        return sizes_of(np.array([tuple(row) for row in rows], dtype=ENTRY), most)

    def in_time(self, queue: tuple[str, int], start: int, end: int) -> tuple[int, int]:
        """By the broker's search; each message is checked all the same."""
        selection = self._selection
        if selection.start_ms is not None:
            start = max(start, self._admin.offset_at(*queue, max(0, selection.start_ms - CLOCK_SLACK_MS)))
        if selection.end_ms is not None:
            end = min(end, self._admin.offset_at(*queue, selection.end_ms + CLOCK_SLACK_MS))
        return start, max(start, end)
