"""The topics of a master: config/topics.json, written by the put process alone (H23)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from towline.clock import Clock
from towline.errors import IllegalTopic, TooManyQueues, TopicChangeRefused, TopicExists, TopicProtected, UnknownTopic
from towline.format.files.topics import (
    GROUP_PREFIXES,
    PERM_INHERIT,
    PERM_READ_WRITE,
    RETENTION_BYTES,
    RETENTION_MS,
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
from towline.limits import (
    RETENTION_BYTES_MAX,
    RETENTION_BYTES_MIN,
    RETENTION_MS_MAX,
    RETENTION_MS_MIN,
    TOPIC_QUEUES_MAX,
    TOPIC_SIZE_MAX,
)
from towline.log.state.topics_file import TopicsConfig

PERM_ALL: Final = PERM_READ_WRITE | PERM_INHERIT
NO_RETENTION: Final = -1  # takes away a time or a size, as in Kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """New values of a topic; None keeps a value, or its default. NO_RETENTION: no time, or no size, of its own."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None

    def check(self, name: str) -> None:
        """Raises TopicChangeRefused for a retention that no topic may have."""
        for what, value, low, high in (
            ("ms", self.retention_ms, RETENTION_MS_MIN, RETENTION_MS_MAX),
            ("bytes in each queue", self.retention_bytes, RETENTION_BYTES_MIN, RETENTION_BYTES_MAX),
        ):
            if value is not None and value != NO_RETENTION and not low <= value <= high:
                allowed = f"{low} to {high} are allowed, {NO_RETENTION} for none"
                raise TopicChangeRefused(name, f"its messages are kept for {value} {what}; {allowed}")

    def of(self, topic: TopicConfig) -> TopicConfig:
        return replace(
            topic,
            read_queue_nums=topic.read_queue_nums if self.read_queues is None else self.read_queues,
            write_queue_nums=topic.write_queue_nums if self.write_queues is None else self.write_queues,
            perm=topic.perm if self.perm is None else self.perm,
            order=topic.order if self.order is None else self.order,
            attributes=self._attributes(topic.attributes),
        )

    def _attributes(self, before: Mapping[str, str]) -> Mapping[str, str]:
        """With the retention that is given; what is none goes."""
        given = {RETENTION_MS: self.retention_ms, RETENTION_BYTES: self.retention_bytes}
        after = {**before, **{name: str(value) for name, value in given.items() if value is not None}}
        return {name: value for name, value in after.items() if given.get(name) != NO_RETENTION}


class Topics:
    """Looked up once per group of a request; written to disk before the first record of a new topic is accepted.

    A staged change is seen only by later changes; everybody else sees it when it was written and `commit` is called.
    Until then it can be rolled back. But a topic that is being deleted is closed at once.

    Without `long_names` the store keeps to records of version 1, which readers before RocketMQ 5.1 need, and refuses
    topics above 127 bytes.
    """

    def __init__(
        self,
        file: TopicsConfig,
        clock: Clock,
        *,
        auto_create: bool,
        queue_nums_default: int,
        queues_max: int,
        long_names: bool = True,
        dots: bool = False,
    ) -> None:
        self.file = file
        self._clock = clock
        self.auto_create, self.dots = auto_create, dots
        self._queue_nums_default = queue_nums_default
        self._queues_max = queues_max
        self._long_names = long_names
        self._absent = self._behind = False
        self._table = TopicTable()
        self._next = self._table
        self._write_queues: dict[bytes, int] = {}
        self._in_doubt: frozenset[str] = frozenset()

    def load(self) -> list[str]:
        """Loads the file and returns warnings. Raises MalformedFile, and what `TopicsConfig.settle` raises."""
        content = self.file.load()
        self._absent, self._behind = content is None, self.file.from_backup
        if content is None:
            return []
        self._next = read_topics(content, str(self.file.path))
        self.commit()
        if not self._behind:
            self.file.settle(content)
            return []
        lost = "topics that were made or altered last are as they were, but for those of which there are messages"
        return [f"{self.file.path} cannot be read; the generation before is used, {self.file.backup}: {lost}"]

    def adopt(self, ends: Iterable[tuple[bytes, int, int]], *, followed: bool = False) -> list[str]:
        """Adds topics that the store's queues show (topic, queue id, next offset) and the file lacks; returns their
        names.

        Without a topics.json nobody could read a store whose config/ was lost, or one written by a bare message store
        of RocketMQ. Where there is a file, a topic that it lacks was deleted, and stays so. But a file that `followed`
        a master's may lack a topic that was made just before the master died, and the generation before a torn file may
        lack the topic that was made last; deleted topics stand in both as such. The number of its queues is unknown: it
        gets at least as many as a new topic, because a producer that knew the topic may write to any of them.
        """
        if not (self._absent or self._behind or followed):
            return []
        sizes: dict[str, int] = {}
        floors = self._table.floors()
        for topic, queue_id, following in ends:
            if following > floors.get((topic, queue_id), -1):  # else nothing was put to it since it was deleted
                name = topic.decode("utf-8", "replace")
                sizes[name] = max(sizes.get(name, 0), queue_id + 1)
        unknown = {name: size for name, size in sorted(sizes.items()) if name not in self._table.topics}
        found = {name: self._with_queues(name, max(size, self._default_queues(name))) for name, size in unknown.items()}
        if self._queue_entries({**self._table.topics, **found}) > self._queues_max:
            found = {name: self._with_queues(name, size) for name, size in unknown.items()}
        if found:
            self._stage({**self._table.topics, **found}, self._table.deleted)
            self._save()
        return list(found)

    def _default_queues(self, name: str) -> int:
        return 1 if name.startswith(GROUP_PREFIXES) or is_system_topic(name) else self._queue_nums_default

    @staticmethod
    def _with_queues(name: str, size: int) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=size, write_queue_nums=size)

    def purge_deleted(self, log_min: int, held: Collection[bytes]) -> None:
        """Forgets, at a start, deleted topics of which neither the log nor a queue (`held`: their topics) holds
        anything."""
        kept = {
            name: deleted
            for name, deleted in self._table.deleted.items()
            if name in self._table.topics or deleted.log_offset > log_min or name.encode() in held
        }
        if len(kept) < len(self._table.deleted):
            self._stage(self._table.topics, kept)
            self._save()

    def write_queues(self, topic: bytes) -> int:
        """The number of queues that clients may write to; -1 for an unknown topic, 0 for one that clients may not write
        to."""
        return self._write_queues.get(topic, -1)

    @property
    def client_queues(self) -> Mapping[bytes, int]:
        """What `write_queues` returns, for all topics; another object after each change."""
        return self._write_queues

    def get(self, name: str) -> TopicConfig | None:
        """The topic; None also for one that is being deleted."""
        return self._table.topics.get(name) if self.write_queues(name.encode(errors="replace")) >= 0 else None

    def committed(self, name: str) -> TopicConfig | None:
        """The topic, if it exists and no change of it is under way."""
        topic = self._table.topics.get(name)
        return topic if topic is self._next.topics.get(name) else None

    def names(self) -> list[str]:
        return sorted(self._table.topics)

    def floors(self) -> dict[tuple[bytes, int], int]:
        """(topic, queue id) -> the offset at which the queue of a deleted topic continues."""
        return self._table.floors()

    def route(self, name: str, queue_nums: int = 0, template: str = TEMPLATE_TOPIC) -> TopicConfig:
        """Returns the topic, creating it where the rules of RocketMQ allow (spec 1.4). Raises UnknownTopic,
        IllegalTopic.

        It inherits the permission of `template`, and its number of queues unless fewer are asked for. That needs the
        inherit bit, which the default template has while auto_create_topic_enable is set. Topics of a group are always
        created, with one queue.
        """
        topic = self._next.topics.get(name)
        return self._stage_topic(self._routed(name, queue_nums, template)) if topic is None else topic

    def check_route(self, name: str, queue_nums: int = 0, template: str = TEMPLATE_TOPIC) -> None:
        """Raises what `route` would raise."""
        if name not in self._next.topics:
            self._routed(name, queue_nums, template)

    def _routed(self, name: str, queue_nums: int, template: str) -> TopicConfig:
        self._check(name)
        if name.startswith(GROUP_PREFIXES):
            return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        after = self._template(template)
        if after is None or not after.inherited:
            raise UnknownTopic(name)
        queues = min(queue_nums or after.write_queue_nums, after.write_queue_nums)
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=after.perm & ~PERM_INHERIT
        )

    def create(self, name: str, queue_nums: int, change: TopicChange | None = None) -> TopicConfig:
        """Creates a topic. `change` may set other values than `queue_nums` for both kinds of queues.

        Raises TopicExists, IllegalTopic, TopicChangeRefused, TooManyQueues.
        """
        self._check(name)
        if name in self._next.topics:
            raise TopicExists(name)
        made = TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
        if change is not None:
            change.check(name)
        return self._stage_topic(made if change is None else change.of(made))

    def alter(self, name: str, change: TopicChange) -> TopicConfig:
        """Changes a topic and returns it.

        Read queues can be removed only when no client may still write to them: the write queues have to be removed
        first. Raises UnknownTopic, TopicProtected, TopicChangeRefused, TooManyQueues.
        """
        topic = self._client_topic(name)
        change.check(name)
        changed = change.of(topic)
        if changed.read_queue_nums < min(topic.read_queue_nums, topic.write_queue_nums):
            raise TopicChangeRefused(
                name,
                f"clients still write to {topic.write_queue_nums} queues, so {changed.read_queue_nums} cannot be all "
                "that is read: lower the write queues, let the others be read to their end, then lower the read queues",
            )
        return self._stage_topic(changed) if changed != topic else topic

    def create_system_topics(self, names: Iterable[str]) -> None:
        """Creates missing topics of the broker itself, with one queue each, as RocketMQ does at each start."""
        missing = {
            name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
            for name in names
            if name not in self._next.topics
        }
        if missing:
            self._stage({**self._next.topics, **missing}, self._next.deleted)

    def delete(self, name: str, log_offset: int, floors: Mapping[int, int]) -> DeletedTopic:
        """Deletes a topic. `log_offset` is the log's end, `floors` each queue's next offset: no put follows.

        Raises UnknownTopic, TopicProtected.
        """
        self._client_topic(name)
        before = self._next.deleted.get(name, DeletedTopic(log_offset=0)).floors
        merged = {queue_id: max(before.get(queue_id, 0), floors.get(queue_id, 0)) for queue_id in {*before, *floors}}
        deleted = DeletedTopic(log_offset=log_offset, floors=merged)
        topics = {other: topic for other, topic in self._next.topics.items() if other != name}
        self._stage(topics, {**self._next.deleted, name: deleted})  # without floors too: delayed messages may be for it
        self._write_queues = {other: queues for other, queues in self._write_queues.items() if other != name.encode()}
        return deleted

    # --- rules

    def _client_topic(self, name: str) -> TopicConfig:
        """A topic that clients may change."""
        if is_system_topic(name):
            raise TopicProtected(name)
        topic = self._next.topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def _template(self, name: str) -> TopicConfig | None:
        topic = self._next.topics.get(name)
        if name != TEMPLATE_TOPIC:
            return topic
        if topic is None:
            queues = self._queue_nums_default
            topic = TopicConfig(
                topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=PERM_READ_WRITE | PERM_INHERIT
            )
        return topic if self.auto_create else replace(topic, perm=PERM_READ_WRITE)

    def _stage_topic(self, topic: TopicConfig) -> TopicConfig:
        name = topic.topic_name
        for what, count in (("read", topic.read_queue_nums), ("write", topic.write_queue_nums)):
            if not 1 <= count <= TOPIC_QUEUES_MAX:
                raise TopicChangeRefused(name, f"{count} {what} queues; 1 to {TOPIC_QUEUES_MAX} are allowed")
        if topic.read_queue_nums < topic.write_queue_nums:
            problem = f"{topic.write_queue_nums} write queues and {topic.read_queue_nums} read queues"
            raise TopicChangeRefused(name, f"{problem}: nobody could read the last of them; raise the read queues too")
        if not 0 <= topic.perm <= PERM_ALL:
            raise TopicChangeRefused(name, f"permission {topic.perm}; it is a sum of 4 read, 2 write, 1 inherit")
        topics = {**self._next.topics, name: topic}
        if self._queue_entries(topics) > self._queues_max:
            # Here, before a message could be stored that no queue can take.
            raise TooManyQueues(self._queues_max, self._queue_entries(topics) - _queues_of(topics))
        self._stage(topics, self._next.deleted)
        return topic

    def _queue_entries(self, topics: Mapping[str, TopicConfig]) -> int:
        """The number of queues that may need an entry in the node's tables; those of deleted topics keep theirs."""
        return _queues_of(topics) + sum(
            len(deleted.floors) for name, deleted in self._next.deleted.items() if name not in topics
        )

    def _check(self, name: str) -> None:
        check_topic(name, dots=self.dots)
        if not self._has_a_version(name):
            raise IllegalTopic(name, "it needs records of version 2, and auto_message_version_on_topic_len is off")

    def _has_a_version(self, name: str) -> bool:
        """Whether records of this topic have a version that may be written."""
        return self._long_names or len(name.encode()) <= TOPIC_SIZE_MAX

    # --- the file

    @property
    def changed(self) -> bool:
        """Whether a staged change is not committed."""
        return self._next is not self._table

    def content(self) -> Callable[[], dict[str, Any]]:
        """Returns a function that builds the file's content with all staged changes. Any thread may call it."""
        table = self._next
        return lambda: topics_content(table)

    def commit(self) -> None:
        """Commits the staged changes, which were written."""
        self._table, self._in_doubt = self._next, frozenset()
        self._write_queues = self._client_queues(self._table.topics)

    def rollback(self) -> None:
        """Drops the staged changes, which were not written."""
        self._next = self._table
        self._write_queues = self._client_queues(self._table.topics)

    def mark_in_doubt(self) -> None:
        """Closes the topics of staged changes that failed but may survive a crash, until a save succeeds."""
        before, after = self._table.topics, self._next.topics
        self._in_doubt |= {name for name in (*before, *after) if before.get(name) is not after.get(name)}
        self.rollback()

    @property
    def in_doubt(self) -> frozenset[str]:
        """Topics whose state after a restart is unknown."""
        return self._in_doubt

    def _save(self) -> None:
        """Saves at a start, before anybody is served. Raises StoreNotWritable, SyncFailed."""
        self.file.save(self.content()())
        self.commit()

    def _stage(self, topics: Mapping[str, TopicConfig], deleted: Mapping[str, DeletedTopic]) -> None:
        before = self._next.data_version
        version = DataVersion(
            counter=before.counter + 1, state_version=before.state_version, timestamp=self._clock.now_ms()
        )
        self._next = TopicTable(topics=topics, data_version=version, deleted=deleted)

    def _client_queues(self, topics: Mapping[str, TopicConfig]) -> dict[bytes, int]:
        """Topic -> number of queues that clients may write to."""
        found = {}
        for name in topics.keys() - self._in_doubt:
            topic = topics[name]
            theirs = topic.writable and not is_system_topic(name) and self._has_a_version(name)
            found[name.encode()] = topic.write_queue_nums if theirs else 0
        return found


def _queues_of(topics: Mapping[str, TopicConfig]) -> int:
    return sum(max(topic.read_queue_nums, topic.write_queue_nums) for topic in topics.values())
