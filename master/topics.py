"""The topics of a master: config/topics.json, kept by the put process alone (H23)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from towline.errors import IllegalTopic, TooManyQueues, TopicExists, UnknownTopic
from towline.format.topic_errors import TopicChangeRefused, TopicProtected
from towline.format.topics import (
    GROUP_PREFIXES,
    PERM_INHERIT,
    PERM_READ_WRITE,
    QUEUE_NUMS_DEFAULT,
    TEMPLATE_TOPIC,
    DataVersion,
    DeletedTopic,
    TopicConfig,
    TopicTable,
    check_topic,
    is_system_topic,
    read_topics,
    topics_content,
)
from towline.limits import TOPIC_SIZE_MAX
from towline.log.config_file import ConfigFile
from towline.runtime.clock import Clock

QUEUES_PER_TOPIC_MAX: Final = 1024
PERM_ALL: Final = PERM_READ_WRITE | PERM_INHERIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a topic is to be; None leaves a value as it is, or at its default."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None

    def of(self, topic: TopicConfig) -> TopicConfig:
        return replace(
            topic,
            read_queue_nums=topic.read_queue_nums if self.read_queues is None else self.read_queues,
            write_queue_nums=topic.write_queue_nums if self.write_queues is None else self.write_queues,
            perm=topic.perm if self.perm is None else self.perm,
            order=topic.order if self.order is None else self.order,
        )


class Topics:
    """Looked up once per group of a request; written to disk before the first record of a new topic is accepted.

    Without `long_names` the store keeps to records of version 1, which readers before RocketMQ 5.1 need, and takes
    nothing for a topic above 127 bytes.
    """

    def __init__(
        self,
        file: ConfigFile,
        clock: Clock,
        *,
        auto_create: bool,
        queue_nums_default: int,
        queues_max: int,
        long_names: bool = True,
    ) -> None:
        self._file = file
        self._clock = clock
        self._auto_create = auto_create
        self._queue_nums_default = queue_nums_default
        self._queues_max = queues_max
        self._long_names = long_names
        self._absent = False
        self._table = TopicTable()
        self._write_queues: dict[bytes, int] = {}

    def load(self) -> None:
        content = self._file.load()
        self._absent = content is None
        if content is None:
            return
        self._table = read_topics(content, str(self._file.path))
        self._write_queues = self._open_to_clients(self._table.topics)

    def adopt(self, queues: Iterable[tuple[bytes, int]]) -> None:
        """Where there is no topics.json at all: the topics of the store's queues, pairs of topic and queue id.

        Otherwise nobody could read a store whose config/ was lost, or one that a bare message store of RocketMQ wrote.
        Where there is one, a topic that it leaves out was deleted, and stays so.
        """
        if not self._absent:
            return
        sizes: dict[str, int] = {}
        for topic, queue_id in queues:
            name = topic.decode("utf-8", "replace")
            sizes[name] = max(sizes.get(name, 0), queue_id + 1)
        if sizes:
            self._write(
                {
                    name: TopicConfig(topic_name=name, read_queue_nums=size, write_queue_nums=size)
                    for name, size in sorted(sizes.items())
                },
                {},
            )

    def forget(self, log_min: int, held: Collection[bytes]) -> None:
        """At a start: deleted topics of which neither the log nor a queue (`held`: their topics) has anything left."""
        kept = {
            name: deleted
            for name, deleted in self._table.deleted.items()
            if name in self._table.topics or deleted.log_offset > log_min or name.encode() in held
        }
        if len(kept) < len(self._table.deleted):
            self._write(self._table.topics, kept)

    def write_queues(self, topic: bytes) -> int:
        """Queues that clients may write to; -1 for an unknown topic, 0 for one that is not theirs to write."""
        return self._write_queues.get(topic, -1)

    @property
    def queues_of_clients(self) -> Mapping[bytes, int]:
        """All that `write_queues` tells. Another object after every change."""
        return self._write_queues

    def get(self, name: str) -> TopicConfig | None:
        return self._table.topics.get(name)

    def names(self) -> list[str]:
        return sorted(self._table.topics)

    def floors(self) -> dict[tuple[bytes, int], int]:
        """(topic, queue id) -> the number at which a queue goes on whose topic was deleted."""
        return self._table.floors()

    def route(self, name: str, queue_nums: int = 0, template: str = TEMPLATE_TOPIC) -> TopicConfig:
        """The topic, made when the rules of RocketMQ allow it (spec 1.4). Raises UnknownTopic, IllegalTopic.

        It takes after `template`: as many queues as asked for, at most the template's, and its permission. That needs
        the inherit bit, which the default template has while auto_create_topic_enable is set. Topics of a group are
        made whatever the settings say, with one queue.
        """
        topic = self._table.topics.get(name)
        if topic is not None:
            return topic
        self._check(name)
        if name.startswith(GROUP_PREFIXES):
            return self.create(name, 1)
        after = self._template(template)
        if after is None or not after.inherited:
            raise UnknownTopic(name)
        queues = min(queue_nums or QUEUE_NUMS_DEFAULT, after.write_queue_nums)
        return self.create(name, queues, Change(perm=after.perm & ~PERM_INHERIT))

    def create(self, name: str, queue_nums: int, change: Change | None = None) -> TopicConfig:
        """Durable when this returns. `change` may set other values than `queue_nums` for both kinds of queues.

        Raises TopicExists, IllegalTopic, TopicChangeRefused, TooManyQueues.
        """
        self._check(name)
        if name in self._table.topics:
            raise TopicExists(name)
        made = TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
        return self._put(made if change is None else change.of(made))

    def alter(self, name: str, change: Change) -> TopicConfig:
        """The changed topic, durable when this returns.

        Read queues become fewer only when no client may have written to what goes: the write queues go first. Raises
        UnknownTopic, TopicProtected, TopicChangeRefused, TooManyQueues.
        """
        topic = self._own(name)
        changed = change.of(topic)
        if changed.read_queue_nums < min(topic.read_queue_nums, topic.write_queue_nums):
            raise TopicChangeRefused(
                name,
                f"clients still write to {topic.write_queue_nums} queues, so {changed.read_queue_nums} cannot be all "
                "that is read: lower the write queues, let the others be read to their end, then lower the read queues",
            )
        return self._put(changed) if changed != topic else topic

    def make_own(self, names: Iterable[str]) -> None:
        """Topics of the broker itself that are not there yet, of one queue; RocketMQ makes them at each start."""
        missing = {
            name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
            for name in names
            if name not in self._table.topics
        }
        if missing:
            self._write({**self._table.topics, **missing}, self._table.deleted)

    def delete(self, name: str, log_offset: int, floors: Mapping[int, int]) -> DeletedTopic:
        """Durable when this returns. `log_offset` is the log's end, `floors` each queue's next number.

        Raises UnknownTopic, TopicProtected.
        """
        self._own(name)
        before = self._table.deleted.get(name, DeletedTopic(log_offset=0)).floors
        merged = {queue_id: max(before.get(queue_id, 0), floors.get(queue_id, 0)) for queue_id in {*before, *floors}}
        deleted = DeletedTopic(log_offset=log_offset, floors=merged)
        topics = {other: topic for other, topic in self._table.topics.items() if other != name}
        self._write(topics, {**self._table.deleted, name: deleted} if merged else self._table.deleted)
        return deleted

    # --- rules

    def _own(self, name: str) -> TopicConfig:
        """A topic that clients may change."""
        if is_system_topic(name):
            raise TopicProtected(name)
        topic = self._table.topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def _template(self, name: str) -> TopicConfig | None:
        topic = self._table.topics.get(name)
        if name != TEMPLATE_TOPIC:
            return topic
        if topic is None:
            queues = self._queue_nums_default
            topic = TopicConfig(
                topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=PERM_READ_WRITE | PERM_INHERIT
            )
        return topic if self._auto_create else replace(topic, perm=PERM_READ_WRITE)

    def _put(self, topic: TopicConfig) -> TopicConfig:
        name = topic.topic_name
        for what, count in (("read", topic.read_queue_nums), ("write", topic.write_queue_nums)):
            if not 1 <= count <= QUEUES_PER_TOPIC_MAX:
                raise TopicChangeRefused(name, f"{count} {what} queues; 1 to {QUEUES_PER_TOPIC_MAX} are allowed")
        if topic.read_queue_nums < topic.write_queue_nums:
            problem = f"{topic.write_queue_nums} write queues and {topic.read_queue_nums} read queues"
            raise TopicChangeRefused(name, f"{problem}: nobody could read the last of them; raise the read queues too")
        if not 0 <= topic.perm <= PERM_ALL:
            raise TopicChangeRefused(name, f"permission {topic.perm}; it is a sum of 4 read, 2 write, 1 inherit")
        topics = {**self._table.topics, name: topic}
        if self._places(topics) > self._queues_max:
            raise TooManyQueues(self._queues_max)  # here, before a message could be stored that no queue can take
        self._write(topics, self._table.deleted)
        return topic

    def _places(self, topics: Mapping[str, TopicConfig]) -> int:
        """Queues that may need a place in the node's tables; those of deleted topics keep theirs."""
        taken = sum(max(topic.read_queue_nums, topic.write_queue_nums) for topic in topics.values())
        return taken + sum(len(deleted.floors) for name, deleted in self._table.deleted.items() if name not in topics)

    def _check(self, name: str) -> None:
        check_topic(name)
        if not self._has_a_version(name):
            raise IllegalTopic(name, "it needs records of version 2, and auto_message_version_on_topic_len is off")

    def _has_a_version(self, name: str) -> bool:
        """Whether records of this topic have a version that may be written."""
        return self._long_names or len(name.encode()) <= TOPIC_SIZE_MAX

    # --- the file

    def _write(self, topics: Mapping[str, TopicConfig], deleted: Mapping[str, DeletedTopic]) -> None:
        before = self._table.data_version
        version = DataVersion(
            counter=before.counter + 1, state_version=before.state_version, timestamp=self._clock.now_ms()
        )
        table = TopicTable(topics=topics, data_version=version, deleted=deleted)
        self._file.save(topics_content(table))
        self._table = table
        self._write_queues = self._open_to_clients(topics)

    def _open_to_clients(self, topics: Mapping[str, TopicConfig]) -> dict[bytes, int]:
        """Topic -> queues that clients may write to."""
        found = {}
        for name, topic in topics.items():
            theirs = topic.writable and not is_system_topic(name) and self._has_a_version(name)
            found[name.encode()] = topic.write_queue_nums if theirs else 0
        return found
