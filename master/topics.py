"""The topics of a master: config/topics.json, kept by the put process alone (H23)."""

from collections.abc import Mapping
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
from towline.log.config_file import ConfigFile
from towline.runtime.clock import Clock

QUEUES_PER_TOPIC_MAX: Final = 1024


class Topics:
    """Looked up once per group of a request; written to disk before the first record of a new topic is accepted."""

    def __init__(
        self, file: ConfigFile, clock: Clock, *, auto_create: bool, queue_nums_default: int, queues_max: int
    ) -> None:
        self._file = file
        self._clock = clock
        self._auto_create = auto_create
        self._queue_nums_default = queue_nums_default
        self._queues_max = queues_max
        self._version = DataVersion()
        self._topics: dict[str, TopicConfig] = {}
        self._write_queues: dict[bytes, int] = {}

    def load(self) -> None:
        content = self._file.load()
        if content is None:
            return
        table = read_topics(content, str(self._file.path))
        self._version = table.data_version
        self._topics = dict(table.topics)
        self._write_queues = {name.encode(): _writable_queues(topic) for name, topic in self._topics.items()}

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
        check_topic(name)
        if not self._auto_create:
            raise UnknownTopic(name)
        return self.create(name, min(queue_nums or QUEUE_NUMS_DEFAULT, self._queue_nums_default))

    def create(self, name: str, queue_nums: int) -> TopicConfig:
        """Raises TopicExists, IllegalTopic, TooManyQueues. Durable when this returns."""
        check_topic(name)
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
        self._write_queues = {name.encode(): _writable_queues(topic) for name, topic in topics.items()}


def _writable_queues(topic: TopicConfig) -> int:
    return topic.write_queue_nums if topic.writable and not is_system_topic(topic.topic_name) else 0
