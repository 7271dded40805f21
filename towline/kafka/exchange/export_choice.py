"""What an export takes of a store: topics, the numbers of each queue, and what stays.

The store is read by its files, of a node that runs or has stopped: up to what is confirmed, dispatched and synced.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

from towline.arrow.decode import batches
from towline.arrow.selection import Selection
from towline.format.files.topics import GROUP_PREFIXES, TopicTable, is_system_topic
from towline.kafka.errors import IllegalTopicName
from towline.kafka.format.partition_metadata import id_text
from towline.kafka.log.files import check_topic
from towline.log.queues.consume_queue import places_of
from towline.log.state.queue_minima import read_minima
from towline.log.state.topics_file import read_table
from towline.node.process.context import open_node
from towline.node.store.confirmed import confirmed_of
from towline.runtime.positions import Position
from towline.spark.stores import StoreFacts, StoreKind, StoreView

from .export_errors import NeedsName, NotDispatched, NotExportable, NothingToExport
from .export_partition import PartitionForm
from .export_source import QueueRange, safely
from .export_target import Choice
from .export_waiting import Waiting, refuse_waiting, waiting_of

DISPATCH_WAIT_S: Final = 30.0
_STEP_S: Final = 0.02

Treated = Literal["refuse", "leave-out"]
Queues = Mapping[tuple[str, int], tuple[int, int]]  # first number, and behind the last, by topic and queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportChoices:
    """What is exported, where to, and how. Exactly one of `out` and `into`; no topics are all of clients'."""

    store: Path
    topics: tuple[str, ...] = ()
    out: Path | None = None
    into: Path | None = None
    renames: Mapping[str, str] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)  # by Kafka's name
    form: PartitionForm = PartitionForm()  # noqa: RUF009
    damaged: Treated = "refuse"
    undelivered: Treated = "leave-out"

    @property
    def root(self) -> Path:
        found = self.into or self.out
        assert found is not None
        return found

    def noted(self) -> dict[str, Any]:
        """What a second attempt has to have in common with the first. What becomes of damaged messages is not: where
        the first refused one, the second may leave it out."""
        return {
            "store": str(self.store.resolve()),
            "renames": dict(self.renames),
            "compression": self.form.compression.name.lower(),
            "batch_bytes": self.form.batch_bytes,
            "segment_bytes": self.form.segment_bytes,
            "topic_ids": {topic: id_text(value) for topic, value in self.topic_ids.items()},
        }


@dataclass(frozen=True, slots=True)
class Source:
    """A store that is read: what of it is exported, and what is not."""

    facts: StoreFacts
    choices: list[Choice]
    left_topics: dict[str, str]  # and why
    waiting: list[Waiting]


def source_of(choices: ExportChoices) -> Source:
    """Reads nothing of the messages. Raises what StoreView.open does, NothingToExport, NotExportable, NeedsName,
    Undelivered."""
    with StoreView.open(choices.store) as view:
        facts = view.facts()
        _check_store(facts)
        if facts.kind is StoreKind.LIVE:
            facts = safely(facts, _end_of_running(choices.store))
        table, queues = read_table(facts.store), view.queues_to(facts.safe_end)
        known = {(each.topic, each.queue_id): (each.min_offset, each.max_offset) for each in queues}
        topics, left = _topics(choices, {*table.topics, *(name for name, _ in known)}, facts.root)
        for topic in topics:
            if topic in view.batch_topics:
                raise NotExportable(topic, "it has batch consume queues of a RocketMQ, which are not read")
        if facts.kind is not StoreKind.LIVE:
            _check_dispatched(view, topics)
    floors = {(name.decode(), number): floor for (name, number), floor in table.floors().items()}
    for queue, minimum in read_minima(facts.store).items():
        floors[queue] = max(minimum.offset, floors.get(queue, 0))
    found = [
        Choice(_range(topic, number, known, floors), choices.renames.get(topic, topic))
        for topic, count in _queues_of(topics, table, known).items()
        for number in range(count)
    ]
    if not found:
        raise NothingToExport(facts.root, "the topics have no queues")
    waiting = waiting_of(facts, set(topics))
    if choices.undelivered == "refuse":
        refuse_waiting(waiting)
    return Source(facts, found, left, waiting)


# --- topics and queues


def _topics(choices: ExportChoices, known: set[str], store: str) -> tuple[list[str], dict[str, str]]:
    """Topics to export in order, and those left out with the reason."""
    for topic in (*choices.topics, *choices.renames):
        if topic not in known:
            raise NotExportable(topic, f"{store} has no such topic")
    left: dict[str, str] = {}
    found = []
    for topic in dict.fromkeys(choices.topics) or sorted(known):
        why = "it is a system topic" if is_system_topic(topic) else ""
        if choices.topics and why:
            raise NotExportable(topic, f"{why}: what stands there is for the node itself")
        name = choices.renames.get(topic, topic)
        if not why and not _is_legal(name):
            if choices.topics or topic in choices.renames or not topic.startswith(GROUP_PREFIXES):
                raise NeedsName(name)
            why = "it is a group's own, whose name Kafka does not take"
        if why:
            left[topic] = why
        else:
            found.append(topic)
    names = Counter(choices.renames.get(topic, topic) for topic in found)
    for topic in found:
        if names[choices.renames.get(topic, topic)] > 1:
            raise NotExportable(topic, f"another topic is {choices.renames.get(topic, topic)} at Kafka as well")
    if not found:
        raise NothingToExport(store, "it has no topic of clients")
    return found, left


def _is_legal(name: str) -> bool:
    with suppress(IllegalTopicName):
        check_topic(name)
        return True
    return False


def _queues_of(topics: Sequence[str], table: TopicTable, known: Queues) -> dict[str, int]:
    """How many partitions each topic has: as many as it has queues, by its configuration or by what is there."""
    found = dict.fromkeys(topics, 0)
    for topic in topics:
        config = table.topics.get(topic)
        found[topic] = max(config.read_queue_nums, config.write_queue_nums) if config else 0
    for topic, number in known:
        if topic in found:
            found[topic] = max(found[topic], number + 1)
    return found


def _range(topic: str, number: int, known: Queues, floors: Mapping[tuple[str, int], int]) -> QueueRange:
    low, high = known.get((topic, number), (0, 0))
    start = max(low, floors.get((topic, number), 0))
    return QueueRange(topic, number, start, max(start, high))


# --- the store


def _check_store(facts: StoreFacts) -> None:
    if facts.kind is StoreKind.BACKUP:
        made = f"`towline store restore --from {facts.root} --store STORE`"
        raise NothingToExport(facts.root, f"it is a backup without queues: {made} makes a store of it")
    if not facts.orderly:
        why = "its node was killed, so queues may lack messages: start it once, and stop it"
        raise NothingToExport(facts.root, why)


def _check_dispatched(view: StoreView, topics: list[str]) -> None:
    """Of a store at rest: no message of these topics stands behind what the queues have. Raises NotDispatched."""
    facts = view.facts()
    at = _newest(view)
    wanted = Selection(topics=frozenset(topics), start_offset=at + 1)
    at = max(at, facts.log_min)
    for base in facts.segments:
        start, end = max(at - base, facts.start_in(base)), facts.end_in(base)
        if start >= end:
            continue
        whole = facts.is_whole(base)
        found = batches(view.array(base), base, start, end, ("size",), wanted, on_corruption="skip", whole=whole)
        for _ in found:
            raise NotDispatched(facts.root, at, facts.safe_end)


def _newest(view: StoreView) -> int:
    """Where the newest record of the log begins that a queue has; -1 where none has any."""
    files, found = view.facts().queue_files(), -1
    try:
        for queue in view.queues:
            if queue.count:
                last = files.raw(queue.topic, queue.queue_id, queue.max_offset - 1, 1)
                found = max(found, int(places_of(last)[0]))
    finally:
        files.close()
    return found


def _end_of_running(root: Path) -> int:
    """Of a node: up to where the log is confirmed, synced, and every message stands in its queue.

    Raises NotDispatched where queues stay behind; what slaves have not is not waited for.
    """
    node = open_node(root)
    try:
        flushed, deadline = node.positions.get(Position.FLUSHED), time.monotonic() + DISPATCH_WAIT_S
        wanted = min(flushed, confirmed_of(node)())
        while (end := node.positions.get(Position.DISPATCHED)) < wanted:
            if time.monotonic() > deadline:
                raise NotDispatched(str(root), end, wanted)
            time.sleep(_STEP_S)
        return min(end, flushed)
    finally:
        node.positions.close()
