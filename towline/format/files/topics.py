"""Topics: legal names, and the file config/topics.json (spec 1.3, 1.4, 2.5)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from towline.errors import IllegalTopic, MalformedFile
from towline.format.finite import finite, no_number
from towline.limits import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

TOPIC_SYS_FLAG_UNIT: Final = 1
TOPIC_SYS_FLAG_UNIT_SUB: Final = 2

SINGLE_TAG: Final = "SINGLE_TAG"
MULTI_TAG: Final = "MULTI_TAG"
QUEUE_NUMS_DEFAULT: Final = 4

# The topic whose write queues and permission a topic that is made by itself takes over (spec 1.4).
TEMPLATE_TOPIC: Final = "TBW102"
# Towline's own member of topics.json: what was deleted while the log still holds its records. A real broker ignores it.
DELETED: Final = "towlineDeletedTopics"

# Attributes of a topic, by Kafka's names, which say the unit: RocketMQ has none that cuts queues.
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"

# Topics that a broker writes for itself (spec 1.4). BenchmarkTest and the topics named after cluster and broker are not
# among them, as in RocketMQ; nor are %RETRY% and %DLQ% topics, which the consumers' clients write.
SYSTEM_TOPICS: Final = frozenset(
    {"SCHEDULE_TOPIC_XXXX", TEMPLATE_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC"}
)
SYSTEM_PREFIXES: Final = ("RMQ_SYS_", "rmq_sys_")

# Topics of a consumer group. They are made with one queue whatever the settings say of other topics.
GROUP_PREFIXES: Final = (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)

DEPTH_MAX: Final = 64  # objects and lists in each other, of a file; RocketMQ's have five
_DIGITS_MAX: Final = 19  # of an attribute that is a number
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_WITH_DOTS: Final = re.compile(r"[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.-]*")  # a dot in front would hide the directory
# A string, which is left alone, or a bare integer where a member name stands.
_BARE_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<before>[{,]\s*)(?P<key>-?\d+)(?=\s*:)')


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic of a broker. Queues are numbered from 0; `perm` adds up PERM_ bits."""

    topic_name: str
    read_queue_nums: int = QUEUE_NUMS_DEFAULT
    write_queue_nums: int = QUEUE_NUMS_DEFAULT
    perm: int = PERM_READ_WRITE
    order: bool = False
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def retention_ms(self) -> int | None:
        """Ms after which messages are no longer read; None: as long as the log has them."""
        return _positive(self.attributes.get(RETENTION_MS))

    @property
    def retention_bytes(self) -> int | None:
        """Bytes in the log of each queue's messages that are read at most; None: as many as the log has."""
        return _positive(self.attributes.get(RETENTION_BYTES))

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def inherited(self) -> bool:
        """Whether topics that are made by themselves may take after this one."""
        return bool(self.perm & PERM_INHERIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """Which state of a configuration this is: `counter` grows with every change, `timestamp` in epoch ms."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """A topic that was deleted; one of the same name may exist again.

    Its records stand in the log before `log_offset`. `floors` by queue id: the number of the queue's next message then.
    Numbers below it are never given again and nobody reads them; the queues of a new topic of this name begin there.
    """

    log_offset: int
    floors: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable:
    """The content of topics.json: the topics by name, and those deleted."""

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    deleted: Mapping[str, DeletedTopic] = field(default_factory=dict)

    def floors(self) -> dict[tuple[bytes, int], int]:
        """(topic, queue id) -> the least number that may be read, of every queue of a deleted topic."""
        return {
            (name.encode(), queue_id): floor
            for name, deleted in self.deleted.items()
            for queue_id, floor in deleted.floors.items()
        }


def is_system_topic(name: str) -> bool:
    """Whether only the broker itself writes to a topic of this name."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES)


def is_topic_size(name: bytes) -> bool:
    """Whether a topic may have so many bytes: 127, or 255 for %RETRY% topics."""
    long = name.startswith(RETRY_TOPIC_PREFIX.encode())
    return 0 < len(name) <= (RETRY_TOPIC_SIZE_MAX if long else TOPIC_SIZE_MAX)


def is_directory_name(topic: bytes) -> bool:
    """Whether the queues of a topic can have a directory of its name: a damaged record, or a log made elsewhere, may
    hold any."""
    return topic not in (b"", b".", b"..") and b"/" not in topic and b"\0" not in topic


def check_topic(name: str, *, dots: bool = False) -> None:
    """Raises IllegalTopic unless a client may create and use a topic of this name; `dots` are RocketMQ's in no name."""
    if not name:
        raise IllegalTopic(name, "the name is empty")
    if dots and not _WITH_DOTS.fullmatch(name):
        raise IllegalTopic(name, "only letters, digits, %, |, _, - and, behind the first, dots are legal in a name")
    if not dots and not _LEGAL.fullmatch(name):
        allow = "; `dots_in_topic_names` allows dots" if _WITH_DOTS.fullmatch(name) else ""
        raise IllegalTopic(name, f"only letters, digits, %, |, _ and - are legal in a name{allow}")
    if not is_topic_size(name.encode()):
        size_max = RETRY_TOPIC_SIZE_MAX if name.startswith(RETRY_TOPIC_PREFIX) else TOPIC_SIZE_MAX
        raise IllegalTopic(name, f"the name has {len(name)} bytes, the limit is {size_max}")
    if is_system_topic(name):
        raise IllegalTopic(name, "the broker keeps this name for itself")


def topic_facts(topic: TopicConfig) -> dict[str, Any]:
    """A topic as answers to clients carry it."""
    return {
        "topic": topic.topic_name,
        "write_queues": topic.write_queue_nums,
        "read_queues": topic.read_queue_nums,
        "perm": topic.perm,
        "order": topic.order,
        "filter_type": topic.topic_filter_type,
        "system": is_system_topic(topic.topic_name),
        "retention_ms": topic.retention_ms,
        "retention_bytes": topic.retention_bytes,
    }


def topics_content(table: TopicTable) -> dict[str, Any]:
    """The object that topics.json holds."""
    version = table.data_version
    content: dict[str, Any] = {
        "dataVersion": {
            "counter": version.counter,
            "stateVersion": version.state_version,
            "timestamp": version.timestamp,
        },
        "topicConfigTable": {name: _members(topic) for name, topic in table.topics.items()},
    }
    if table.deleted:
        content[DELETED] = {
            name: {
                "floors": {str(queue_id): floor for queue_id, floor in deleted.floors.items()},
                "logOffset": deleted.log_offset,
            }
            for name, deleted in table.deleted.items()
        }
    return content


def read_topics(content: dict[str, Any], path: str) -> TopicTable:
    """The topics in the object of the file at `path`, written by Towline, RocketMQ 4 or RocketMQ 5.

    Unknown members are ignored, missing ones keep their defaults. Raises MalformedFile, with the path.
    """
    try:
        topics = {name: _topic(name, members) for name, members in content.get("topicConfigTable", {}).items()}
        version = content.get("dataVersion", {})
        return TopicTable(
            topics=topics,
            data_version=DataVersion(
                counter=int(version.get("counter", 0)),
                state_version=int(version.get("stateVersion", 0)),
                timestamp=int(version.get("timestamp", 0)),
            ),
            deleted={name: _deleted(members) for name, members in content.get(DELETED, {}).items()},
        )
    except (AttributeError, TypeError, ValueError) as problem:
        raise MalformedFile(path, f"it does not hold a table of topics ({problem})") from problem


def loads_fastjson(text: str, path: str) -> dict[str, Any]:
    """The object in `text`, in JSON or in fastjson's dialect, whose integer keys have no quotes; they become strings.

    Raises MalformedFile, with `path`, for anything else.
    """
    try:
        content = json.loads(_BARE_KEY.sub(_quoted, text), parse_float=finite, parse_constant=no_number)
    except (ValueError, RecursionError) as problem:
        raise MalformedFile(path, f"it is not JSON ({problem})") from problem
    if not isinstance(content, dict):
        raise MalformedFile(path, "it is not a JSON object")
    if not _is_shallow(content, DEPTH_MAX):
        raise MalformedFile(path, f"its objects and lists are nested deeper than {DEPTH_MAX}")
    return content


def _is_shallow(value: Any, levels: int) -> bool:
    """Whether a value can be written again, at whatever depth of calls."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found["key"] is None else f'{found["before"]}"{found["key"]}"'


def _positive(text: str | None) -> int | None:
    """The number in an attribute; None for what sets no bound, as -1, or what another program may have left there."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return None
    return int(text) or None


def _members(topic: TopicConfig) -> dict[str, object]:
    return {
        "attributes": dict(topic.attributes),
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_nums,
        "topicFilterType": topic.topic_filter_type,
        "topicName": topic.topic_name,
        "topicSysFlag": topic.topic_sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }


def _topic(name: str, members: dict[str, Any]) -> TopicConfig:
    return TopicConfig(
        topic_name=str(members.get("topicName", name)),
        read_queue_nums=int(members.get("readQueueNums", QUEUE_NUMS_DEFAULT)),
        write_queue_nums=int(members.get("writeQueueNums", QUEUE_NUMS_DEFAULT)),
        perm=int(members.get("perm", PERM_READ_WRITE)),
        order=bool(members.get("order", False)),
        topic_filter_type=str(members.get("topicFilterType", SINGLE_TAG)),
        topic_sys_flag=int(members.get("topicSysFlag", 0)),
        attributes={str(key): str(value) for key, value in members.get("attributes", {}).items()},
    )


def _deleted(members: dict[str, Any]) -> DeletedTopic:
    floors = {int(queue_id): int(floor) for queue_id, floor in members.get("floors", {}).items()}
    return DeletedTopic(log_offset=int(members.get("logOffset", 0)), floors=floors)
