"""The options of the format `towline`, as Spark hands them over: names in any case, every value checked.

A view has one set of options for whoever reads from it and for INSERT INTO: each side takes its own and passes over the
other's. `topic`, where rows go, is what is read as well where no other option chooses topics.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from towline.arrow.columns import schema_of
from towline.arrow.decode import OnCorruption
from towline.filter.errors import BadExpression
from towline.filter.tags import parse as parse_tags
from towline.limits import KIB, MIB

from .errors import BadOption, NoTable, UnknownOption, nearest

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
SPLIT_BYTES_MIN: Final = 64 * MIB  # below it a task costs more than it reads
TRIGGER_DELAY_MS: Final = 15 * 60_000  # as spark-sql-kafka has it
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 32 * MIB
_UNITS: Final = {"": 1, "k": KIB, "m": MIB, "g": KIB * MIB}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)")
_MS_OF: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_NUMBER, _LATEST_NUMBER = -2, -1  # as spark-sql-kafka writes them


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message of a queue that was stored at `ms` since 1970 or later; the end where there is none."""

    ms: int


Place = int | str | AtTime


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where reading begins or ends: everywhere at `word`, or by (topic, broker name or "", queue id).

    In the table an offset, one of the words, or a time. `word` is "" where there is a table.
    """

    word: str = ""
    table: Mapping[tuple[str, str, int], Place] = field(default_factory=dict)

    def of(self, topic: str, broker_name: str, queue_id: int) -> Place | None:
        """None for a queue that the table does not name."""
        if self.word:
            return self.word
        found = self.table.get((topic, broker_name, queue_id))
        return self.table.get((topic, "", queue_id)) if found is None else found

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for topic, _, _ in self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Times are ms since 1970, offsets of queues numbers of messages, physical ones bytes; ends are exclusive.

    None where an option was not given and the reader decides.
    """

    path: str = ""
    endpoint: str = ""
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    starting_offsets: Offsets | None = None
    ending_offsets: Offsets | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    starting_physical_offset: int | None = None
    ending_physical_offset: int | None = None
    sub_expression: str = "*"
    keys: frozenset[str] | None = None
    uniq_keys: frozenset[str] | None = None
    include_system_topics: bool = False
    include_halves: bool = False
    read_mode: str = "auto"
    columns: tuple[str, ...] | None = None
    min_partitions: int | None = None
    split_bytes: int = SPLIT_BYTES_MIN
    min_messages_per_trigger: int | None = None
    max_trigger_delay_ms: int = TRIGGER_DELAY_MS
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    check_crcs: bool | None = None  # where bodies are read
    on_corruption: OnCorruption = "fail"
    decompress: bool = True
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    segment_size: int | None = None
    timeout_ms: int = 10_000

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises UnknownOption, BadOption, UnknownColumn."""
        found: dict[str, Any] = {}
        given: dict[str, str] = {}
        if {name.lower() for name in options} >= OF_TABLES:
            raise NoTable()
        for name, text in options.items():
            known = _BY_CASE.get(name.lower())
            if known is None and name.lower() in _SINK_CASE:
                continue
            if known is None:
                raise UnknownOption(name, nearest(name, (*_READERS, *SINK_NAMES)))
            attribute, read = _READERS[known]
            if attribute in found:
                raise BadOption(known, text, f"{given[attribute]} says the same; give one of them")
            given[attribute] = known
            found[attribute] = read(known, text)
        topic = next((text for name, text in options.items() if name.lower() == "topic"), "")
        if topic and not {"subscribe", "subscribe_pattern", "assign"} & given.keys():
            found["subscribe"], given["subscribe"] = (_text("topic", topic),), "topic"
        made = cls(**found)
        made._check(given)
        return made

    @property
    def names_topics(self) -> bool:
        """Whether topics were chosen in any of the three ways."""
        return self.subscribe is not None or self.subscribe_pattern is not None or self.assign is not None

    @property
    def has_physical_bounds(self) -> bool:
        return self.starting_physical_offset is not None or self.ending_physical_offset is not None

    def wants(self, topic: str, queue_id: int) -> bool:
        """Whether a queue is among those that were chosen; all are where none were."""
        if self.assign is not None:
            return queue_id in self.assign.get(topic, ())
        if self.subscribe is not None:
            return topic in self.subscribe
        return self.subscribe_pattern is None or re.fullmatch(self.subscribe_pattern, topic) is not None

    def _check(self, given: Mapping[str, str]) -> None:
        """Of several options together."""
        ways = [given[name] for name in ("subscribe", "subscribe_pattern", "assign") if name in given]
        if len(ways) > 1:
            raise BadOption(ways[1], "", f"{ways[0]} chooses the topics already; give one of them")
        if not given:
            raise NoTable()
        if bool(self.path) == bool(self.endpoint):
            problem = "give either the path of a store (load(path)) or an endpoint"
            raise BadOption("endpoint" if self.endpoint else "path", self.endpoint or self.path, problem)
        if self.endpoint and (self.has_physical_bounds or self.read_mode == "scan"):
            name = "readMode" if self.read_mode == "scan" else "startingPhysicalOffset"
            raise BadOption(name, "", "a broker is read by its queues; the log's own offsets need the store's path")
        if self.include_halves and (ways or self.endpoint):
            what = ways[0] if ways else "endpoint"
            problem = f"no queue of {what} leads to a half message: read the whole log of a store's path"
            raise BadOption("includeHalves", "true", problem)
        least, most = self.min_messages_per_trigger, self.max_messages_per_trigger
        if least is not None and most is not None and least > most:
            raise BadOption("minMessagesPerTrigger", str(least), f"it is more than maxMessagesPerTrigger ({most})")
        if self.read_mode == "queue" and self.has_physical_bounds:
            raise BadOption("readMode", "queue", "physical offsets are of the log: use readMode=scan or auto")


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise BadOption(name, text, "it is empty")
    return text.strip()


def _path(name: str, text: str) -> str:
    """Also as Spark's users write it: file:/data/store."""
    found = urlsplit(_text(name, text))
    if found.scheme not in ("", "file") or found.netloc not in ("", "localhost"):
        raise BadOption(name, text, "a store is a directory that every task can map: a path, or file:/path")
    return unquote(found.path) if found.scheme else text.strip()


def _texts(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(found):
        raise BadOption(name, text, "names are separated by commas, and none is empty")
    return found


def _text_set(name: str, text: str) -> frozenset[str]:
    return frozenset(_texts(name, text))


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(name, text, f"it is no regular expression: {error}") from None
    return text


def _tags(name: str, text: str) -> str:
    if "&&" in text:
        raise BadOption(name, text, "a message has one tag, so tags are joined by || alone")
    try:
        parse_tags(text)
    except BadExpression as error:
        raise BadOption(name, text, error.describe()) from None
    return text


def _columns(name: str, text: str) -> tuple[str, ...]:
    found = _texts(name, text)
    schema_of(found)
    return found


def truth(name: str, text: str) -> bool:
    """The value of an option that is true or false. Raises BadOption, as all of these."""
    if text.strip().lower() not in ("true", "false"):
        raise BadOption(name, text, "it is true or false")
    return text.strip().lower() == "true"


def whole(name: str, text: str) -> int:
    """The value of an option that is a whole number. Raises BadOption."""
    if not text.strip().isascii() or not text.strip().isdigit():
        raise BadOption(name, text, "it is a whole number, 0 or more")
    return int(text)


def _time(name: str, text: str) -> int:
    """Ms since 1970, of such a number or of ISO 8601."""
    if text.strip().isascii() and text.strip().isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadOption(name, text, "it is a number of ms since 1970, or a time as 2026-11-27T09:30:00+01:00") from None
    if found.tzinfo is None:
        raise BadOption(name, text, f"it has no zone: {found.isoformat()}Z is that time in UTC")
    if found < _EPOCH:
        raise BadOption(name, text, "it is before 1970")
    return (found - _EPOCH) // timedelta(milliseconds=1)


def _positive(name: str, text: str) -> int:
    if (found := whole(name, text)) == 0:
        raise BadOption(name, text, "it is 1 or more")
    return found


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise BadOption(name, text, "it is a number of bytes, also as 64k, 64m, 1g")
    return int(found[1]) * _UNITS[found[2].lower()]


def _duration(name: str, text: str) -> int:
    """Ms."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise BadOption(name, text, "it is a time as 500ms, 30s, 15m, 1h, 1d")
    return int(found[1]) * _MS_OF[found[2]]


def _split_size(name: str, text: str) -> int:
    if (found := _size(name, text)) < SPLIT_BYTES_MIN:
        raise BadOption(name, text, f"it is {SPLIT_BYTES_MIN // MIB}m or more: smaller splits cost more than they read")
    return found


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        found = text.strip().lower()
        if found not in words:
            raise BadOption(name, text, f"it is one of {', '.join(words)}; did you mean {nearest(text, words)}?")
        return found

    return read


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadOption(name, text, f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadOption(name, text, "it is a JSON object by topic")
    return found


def _assign(name: str, text: str) -> dict[str, tuple[int, ...]]:
    found = _json_object(name, text)
    for queues in found.values():
        if not isinstance(queues, list) or not all(type(queue) is int and queue >= 0 for queue in queues):
            raise BadOption(name, text, 'write {"TopicA": [0, 1], "TopicB": [2]}')
    return {topic: tuple(queues) for topic, queues in found.items()}


def _offsets(name: str, text: str) -> Offsets:
    word = text.strip().lower()
    starts = name.startswith("starting")
    if word in (EARLIEST, LATEST):
        if word == EARLIEST and not starts:
            raise BadOption(name, text, "reading cannot end where the queues begin")
        return Offsets(word)
    return Offsets("", {key: _offset(name, text, value) for key, value in _table(name, text).items()})


def _times(name: str, text: str) -> Offsets:
    """Offsets by the time when messages were stored."""
    table = {key: AtTime(_time(name, str(value))) for key, value in _table(name, text).items()}
    return Offsets("", table)


def _table(name: str, text: str) -> dict[tuple[str, str, int], Any]:
    """What a JSON object says of each queue, by (topic, broker name or "", queue id)."""
    table: dict[tuple[str, str, int], Any] = {}
    for topic, queues in _json_object(name, text).items():
        for first, value in _rows(name, text, queues):
            if isinstance(value, dict):  # by broker name, as rocketmq-spark has it
                table |= {(topic, first, _queue_id(name, text, second)): one for second, one in value.items()}
            else:
                table[topic, "", _queue_id(name, text, first)] = value
    return table


def _rows(name: str, text: str, queues: Any) -> list[tuple[str, Any]]:
    if not isinstance(queues, dict):
        raise BadOption(name, text, 'write {"TopicA": {"0": 23, "1": -2}}, -2 for earliest and -1 for latest')
    return list(queues.items())


def _queue_id(name: str, text: str, queue_id: str) -> int:
    if not queue_id.isascii() or not queue_id.isdigit():
        raise BadOption(name, text, f"{queue_id!r} is no number of a queue")
    return int(queue_id)


def _offset(name: str, text: str, value: Any) -> int | str:
    if type(value) is not int or value < _EARLIEST_NUMBER:
        raise BadOption(name, text, f"{value!r} is no offset of a queue: a number, -2 for earliest or -1 for latest")
    return {_EARLIEST_NUMBER: EARLIEST, _LATEST_NUMBER: LATEST}.get(value, value)


# The option's name -> the field that it fills, and how its text is read.
_READERS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "path": ("path", _path),
    "endpoint": ("endpoint", _text),
    "subscribe": ("subscribe", _texts),
    "subscribePattern": ("subscribe_pattern", _pattern),
    "assign": ("assign", _assign),
    "startingOffsets": ("starting_offsets", _offsets),
    "endingOffsets": ("ending_offsets", _offsets),
    "startingOffsetsByTimestamp": ("starting_offsets", _times),
    "endingOffsetsByTimestamp": ("ending_offsets", _times),
    "startingTimestamp": ("starting_timestamp", _time),
    "endingTimestamp": ("ending_timestamp", _time),
    "startingPhysicalOffset": ("starting_physical_offset", whole),
    "endingPhysicalOffset": ("ending_physical_offset", whole),
    "subExpression": ("sub_expression", _tags),
    "keys": ("keys", _text_set),
    "uniqKeys": ("uniq_keys", _text_set),
    "includeSystemTopics": ("include_system_topics", truth),
    "includeHalves": ("include_halves", truth),
    "readMode": ("read_mode", _one_of("auto", "scan", "queue")),
    "columns": ("columns", _columns),
    "minPartitions": ("min_partitions", _positive),
    "splitBytes": ("split_bytes", _split_size),
    "minMessagesPerTrigger": ("min_messages_per_trigger", _positive),
    "minOffsetsPerTrigger": ("min_messages_per_trigger", _positive),
    "maxTriggerDelay": ("max_trigger_delay_ms", _duration),
    "maxMessagesPerTrigger": ("max_messages_per_trigger", _positive),
    "maxOffsetsPerTrigger": ("max_messages_per_trigger", _positive),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _size),
    "failOnDataLoss": ("fail_on_data_loss", truth),
    "checkCrcs": ("check_crcs", truth),
    "onCorruption": ("on_corruption", _one_of("fail", "stop", "skip")),
    "decompress": ("decompress", truth),
    "batchRows": ("batch_rows", _positive),
    "batchBytes": ("batch_bytes", _size),
    "segmentSize": ("segment_size", _size),
    "timeoutMs": ("timeout_ms", _positive),
}
SINK_NAMES: Final = (
    "path",
    "endpoint",
    "serve",
    "cluster",
    "topic",
    "txnAppId",
    "txnVersion",
    "idempotent",
    "compression",
    "dropReserved",
    "timeoutMs",
    "replayWaitMs",
)
OF_TABLES: Final = frozenset({"owner", "provider"})  # what Spark adds for CREATE TABLE
_SINK_CASE: Final = frozenset(name.lower() for name in SINK_NAMES)
_BY_CASE: Final = {name.lower(): name for name in _READERS}
NAMES: Final = tuple(_READERS)
