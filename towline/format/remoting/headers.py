"""The header fields of requests: by name and type, out of the text that is on the wire (spec 11.2).

A class names the fields of a request in snake_case; on the wire they are camelCase, but for SEND_MESSAGE_V2, whose
fields are letters. A field without a default has to be there.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar, get_type_hints

from towline.errors import MalformedFrame

TEXT_MAX: Final = 65_535  # bytes of a field: properties are the longest there are
_TRUE: Final = "true"
I32: TypeAlias = Annotated[int, 32]
Shape: TypeAlias = tuple[tuple[str, str, Any, bool], ...]  # attribute, name on the wire, type, may be missing


class FieldTooLong(MalformedFrame):
    """A header has a field of more than TEXT_MAX bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and the two of a reply. `queue_id` below 0: any queue."""

    producer_group: str
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: I32 = 0
    queue_id: I32
    sys_flag: I32
    born_timestamp: int
    flag: I32
    properties: str = ""
    reconsume_times: I32 = 0
    unit_mode: bool = False
    max_reconsume_times: I32 = -1
    batch: bool = False
    broker_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReply:
    """PUSH_REPLY_MESSAGE_TO_CLIENT. `born_host` and `store_host`: host:port; some brokers put a slash before it."""

    topic: str
    queue_id: I32 = 0
    sys_flag: I32
    born_timestamp: int
    flag: I32
    properties: str = ""
    reconsume_times: I32 = 0
    born_host: str = ""
    store_host: str = ""
    store_timestamp: int = 0


LETTERS: Final = {name: chr(ord("a") + place) for place, name in enumerate(SendMessage.__dataclass_fields__)}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClient:
    """UNREGISTER_CLIENT: of one group, or of both."""

    client_id: str
    producer_group: str = ""
    consumer_group: str = ""

    WIRE: ClassVar = {"client_id": "clientID"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """END_TRANSACTION. `tran_state_table_offset`: of the half in its queue; `commit_or_rollback`: 8, 12, or 0: not
    known."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str = ""
    transaction_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessage:
    """PULL_MESSAGE and LITE_PULL_MESSAGE. `sys_flag`: bit 0 commits `commit_offset`, bit 1 lets the broker hold the
    pull for `suspend_timeout_millis`, bit 2: the subscription is the one in here."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: int
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    subscription: str = ""
    sub_version: int = 0
    expression_type: str = "TAG"
    max_msg_bytes: I32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOfTopic:
    """GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffset:
    """SEARCH_OFFSET_BY_TIMESTAMP. `boundary_type`: lower or upper."""

    topic: str
    queue_id: I32
    timestamp: int
    boundary_type: str = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffset:
    """QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET, which has a `commit_offset`."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: int = 0
    set_zero_if_not_found: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessage:
    """QUERY_MESSAGE. `unique`: the key is a unique one."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: int
    end_timestamp: int
    index_type: str = ""
    unique: bool = False

    WIRE: ClassVar = {"unique": "_UNIQUE_KEY_QUERY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessage:
    """VIEW_MESSAGE_BY_ID: only the log offset of the id is sent."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack:
    """CONSUMER_SEND_MSG_BACK. `delay_level` below 0: a dead letter; 0: the level of the message's next time."""

    offset: int
    group: str
    delay_level: I32
    origin_msg_id: str = ""
    origin_topic: str = ""
    unit_mode: bool = False
    max_reconsume_times: I32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessage:
    """RECALL_MESSAGE."""

    topic: str
    recall_handle: str
    producer_group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTopic:
    """UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str = ""
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str = ""
    topic_sys_flag: I32 = 0
    order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTopic:
    """Requests about one topic: its route, its statistics, its settings, its groups, its end."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    """GET_ALL_TOPIC_CONFIG: `max_topic_num` topics from number `topic_seq` on; 0: all of them."""

    topic_seq: I32 = 0
    max_topic_num: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: `max_group_num` groups from number `group_seq` on; 0: all of them."""

    group_seq: I32 = 0
    max_group_num: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """GET_KV_CONFIG and DELETE_KV_CONFIG."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNamespace:
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCluster:
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroup:
    """GET_SUBSCRIPTIONGROUP_CONFIG, QUERY_TOPICS_BY_CONSUMER."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOfGroup:
    """QUERY_CONSUME_TIME_SPAN, QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneOffsets:
    """CLONE_GROUP_OFFSET. `topic`: that one alone; "": each of which `src_group` has an offset. `offline`: also what
    its clients do not subscribe to."""

    src_group: str
    dest_group: str
    topic: str = ""
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionOffset:
    """QUERY_CORRECTION_OFFSET: of all groups but `filter_groups`, names with commas."""

    topic: str
    compare_group: str
    filter_groups: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerGroup:
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInfo:
    """GET_CONSUMER_RUNNING_INFO: of one client; `jstack_enable`: with what its threads do."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeDirectly:
    """CONSUME_MESSAGE_DIRECTLY: `msg_id` is the one with an offset of the log."""

    consumer_group: str
    client_id: str
    msg_id: str
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBroker:
    """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOneBroker:
    """REGISTER_BROKER, UNREGISTER_BROKER, QUERY_DATA_VERSION, BROKER_HEARTBEAT. `broker_addr`: its `host:port`."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroupOfBrokers:
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConsumeStats:
    """GET_BROKER_CONSUME_STATS. `is_order`: of ordered topics alone."""

    is_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryQueue:
    """QUERY_CONSUME_QUEUE: `count` entries from number `index` on."""

    topic: str
    queue_id: I32
    index: int
    count: I32
    consumer_group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsOf:
    """VIEW_BROKER_STATS_DATA: `stats_key` is a topic, or topic@group."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStats:
    """GET_CONSUME_STATS. `topic`: that one alone; "": each of which the group has an offset."""

    consumer_group: str
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """INVOKE_BROKER_TO_RESET_OFFSET: to store time `timestamp` in ms, below 0: to the end. With a `queue_id`: of that
    queue alone, and to `offset` if that is 0 or more."""

    group: str
    topic: str
    timestamp: int
    is_force: bool = False
    queue_id: I32 = -1
    offset: int = -1


Header = TypeVar("Header")
_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_SHORT: Final = 10  # digits that 32 bits may not hold


def read_header(kind: type[Header], given: Mapping[str, str], *, letters: bool = False) -> Header:
    """The fields of a request. Raises MalformedFrame, which names the field that is missing or of another type."""
    values: dict[str, Any] = {}
    shape: Shape = _shape(kind, letters)  # type: ignore[arg-type]  # a class of a type variable is hashable as any
    for name, wire, wanted, optional in shape:
        text = given.get(wire)
        if text is None:
            if not optional:
                raise MalformedFrame(f"the header field {wire} ({name}) is missing")
        else:
            values[name] = _value(name, wire, text, wanted)
    return kind(**values)


def write_header(header: Any, *, letters: bool = False) -> dict[str, str]:
    """The fields of a request as they are on the wire."""
    shape: Shape = _shape(type(header), letters)  # type: ignore[arg-type]  # as above
    return {wire: _text(getattr(header, name)) for name, wire, _, _ in shape}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return _TRUE if value else "false"
    return str(value)


@cache
def _shape(kind: type[Any], letters: bool) -> Shape:
    hints, named = get_type_hints(kind, include_extras=True), getattr(kind, "WIRE", {})
    return tuple(
        (
            each.name,
            LETTERS[each.name] if letters else named.get(each.name, _camel(each.name)),
            hints[each.name],
            each.default is not MISSING,
        )
        for each in fields(kind)
    )


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _value(name: str, wire: str, text: str, wanted: Any) -> Any:
    size = len(text) if text.isascii() else len(text.encode())
    if size > TEXT_MAX:
        raise FieldTooLong(f"the header field {wire} ({name}) has {size} bytes; {TEXT_MAX} are allowed")
    if wanted is bool:
        return text.lower() == _TRUE  # as Java reads it: everything else is false
    if wanted in (int, I32):
        if size < _SHORT and text.isdecimal() and text.isascii():
            return int(text)
        if _NUMBER.fullmatch(text) is None:
            raise MalformedFrame(f"the header field {wire} ({name}) is {text[:40]!r}; a number is wanted")
        number, bits = int(text), 64 if wanted is int else 32
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise MalformedFrame(f"the header field {wire} ({name}) is {number}; {bits} bits hold no such number")
        return number
    return text
