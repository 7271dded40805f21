"""The topics of a master: config/topics.json, kept by the put process alone (H23)."""

from collections.abc import Iterable, Mapping
from typing import Final

from towline.errors import IllegalTopic, TooManyQueues, TopicExists, UnknownTopic
from towline.format.topics import (
    QUEUE_NUMS_DEFAULT,
    DataVersion,
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
        self._version = DataVersion()
        self._topics: dict[str, TopicConfig] = {}
        self._write_queues: dict[bytes, int] = {}

    def load(self) -> None:
        content = self._file.load()
        self._absent = content is None
        if content is None:
            return
        table = read_topics(content, str(self._file.path))
        self._version = table.data_version
        self._topics = dict(table.topics)
        self._write_queues = self._queues_of_clients(self._topics)

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
                }
            )

    def write_queues(self, topic: bytes) -> int:
        """Queues that clients may write to; -1 for an unknown topic, 0 for one that is not theirs to write."""
        return self._write_queues.get(topic, -1)

    def get(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def names(self) -> list[str]:
        return sorted(self._topics)

    def route(self, name: str, queue_nums: int = 0) -> TopicConfig:
        """The topic, created when settings allow it. Raises UnknownTopic, IllegalTopic."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        self._check(name)
        if not self._auto_create:
            raise UnknownTopic(name)
        return self.create(name, min(queue_nums or QUEUE_NUMS_DEFAULT, self._queue_nums_default))

    def create(self, name: str, queue_nums: int) -> TopicConfig:
        """Raises TopicExists, IllegalTopic, TooManyQueues. Durable when this returns."""
        self._check(name)
        if name in self._topics:
            raise TopicExists(name)
        if not 1 <= queue_nums <= QUEUES_PER_TOPIC_MAX:
            raise IllegalTopic(name, f"{queue_nums} queues; 1 to {QUEUES_PER_TOPIC_MAX} are allowed")
        if queue_nums + sum(topic.write_queue_nums for topic in self._topics.values()) > self._queues_max:
            raise TooManyQueues(self._queues_max)  # here, before a message could be stored that no queue can take
        topic = TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
        self._write({**self._topics, name: topic})
        return topic

    def _write(self, topics: Mapping[str, TopicConfig]) -> None:
        version = DataVersion(
            counter=self._version.counter + 1,
            state_version=self._version.state_version,
            timestamp=self._clock.now_ms(),
        )
        self._file.save(topics_content(TopicTable(topics=topics, data_version=version)))
        self._version = version
        self._topics = dict(topics)
        self._write_queues = self._queues_of_clients(topics)

    def _queues_of_clients(self, topics: Mapping[str, TopicConfig]) -> dict[bytes, int]:
        """Topic -> queues that clients may write to."""
        found = {}
        for name, topic in topics.items():
            theirs = topic.writable and not is_system_topic(name) and self._has_a_version(name)
            found[name.encode()] = topic.write_queue_nums if theirs else 0
        return found

    def _has_a_version(self, name: str) -> bool:
        """Whether records of this topic have a version that may be written."""
        return self._long_names or len(name.encode()) <= TOPIC_SIZE_MAX

    def _check(self, name: str) -> None:
        check_topic(name)
        if not self._has_a_version(name):
            raise IllegalTopic(name, "it needs records of version 2, and auto_message_version_on_topic_len is off")
