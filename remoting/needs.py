"""What each request of RocketMQ's clients and tools takes of a key: a role, and what is done with which topics, groups.

Every request that is answered has a row, and so a key whose roles are limited is judged by it. The rest takes an admin
without topics.

Where a row is `later`, its topic stands in what the request leads to, in a record or with a transaction: its handler
looks there. Routes are for every key, as RocketMQ's clients say by name why a send is refused, and not why a route is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFrame
from towline.format.remoting.admin_bodies import read_group_config, read_group_configs, read_topic_configs
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import Heartbeat, read_heartbeat, subscription_of
from towline.format.remoting.headers import LETTERS
from towline.format.remoting.pops import read_acks, retry_topic
from towline.link.permissions import ADMIN, CONSUMER, PRODUCER, Act, Permit

from .own_needs import check_named

Names: TypeAlias = Callable[[Command], Iterable[str]]

_PRODUCERS: Final = frozenset({PRODUCER, ADMIN})
_CONSUMERS: Final = frozenset({CONSUMER, ADMIN})
_EVERYBODY: Final = frozenset({PRODUCER, CONSUMER, ADMIN})
_ADMINS: Final = frozenset({ADMIN})
ASKED_OF_CLIENTS: Final = frozenset(  # by a broker: no client asks for them
    {
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    }
)


@dataclass(frozen=True, slots=True)
class Need:
    """One of `roles`; to do `act` with each of `topics`, and `group_act` with each of `groups`. `whole`: it concerns
    the node or every topic. `gives_back`: consumers have a use for it too, so the topics alone decide; those of their
    groups are theirs to write."""

    roles: frozenset[str]
    act: Act = Act.LOOK
    topics: Names | None = None
    group_act: Act = Act.JOIN
    groups: Names | None = None
    whole: bool = False
    later: bool = False
    gives_back: bool = False

    def check(self, permit: Permit, request: Command) -> None:
        """Of a key that is limited. Raises NotPermitted, MalformedFrame."""
        check_named(self, permit, request, f"ask for request {request.code}")


# --- the names in a request


def _field(name: str) -> Names:
    return lambda request: (request.fields.get(name, ""),)


def _given(name: str) -> Names:
    """Of a field that may be left out."""
    return lambda request: filter(None, (request.fields.get(name, ""),))


def _named(request: Command, name: str) -> str:
    found = _object(request).get(name)
    if not isinstance(found, str):
        raise MalformedFrame(f"the body has no {name}")
    return found


def _object(request: Command) -> dict[str, Any]:
    said = request.json()
    if not isinstance(said, dict):
        raise MalformedFrame("the body is no object")
    return said


def _member(name: str) -> Names:
    return lambda request: (_named(request, name),)


def _popped(request: Command) -> Iterable[str]:
    """What was popped may stand in the retry topic of group and topic."""
    topic = request.fields.get("topic", "")
    return (topic.removeprefix(retry_topic(request.fields.get("consumerGroup", ""), "")),)


def _acked_topics(request: Command) -> Iterable[str]:
    return {acks.topic.removeprefix(retry_topic(acks.group, "")) for acks in read_acks(request.json())}


def _acked_groups(request: Command) -> Iterable[str]:
    return {acks.group for acks in read_acks(request.json())}


def _heartbeat(request: Command) -> Heartbeat:
    return read_heartbeat(request.json())


def _subscribed(request: Command) -> Iterable[str]:
    return {topic for data in _heartbeat(request).consumers.values() for topic in data.subscriptions}


def _locked(request: Command) -> Iterable[str]:
    rows = _object(request).get("mqSet")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise MalformedFrame("the body has no mqSet of queues")
    return {str(row.get("topic", "")) for row in rows}


def _counted(place: int) -> Names:
    """Of statistics by topic, or by topic@group: the one or the other."""

    def names(request: Command) -> Iterable[str]:
        return filter(None, request.fields.get("statsKey", "").split("@", 1)[place : place + 1])

    return names


def _left_out(request: Command) -> Iterable[str]:
    """The groups of a comparison: `compareGroup` is the one that is told of."""
    return filter(None, (request.fields.get("compareGroup", ""),))


_TOPIC: Final = _field("topic")
_GROUP: Final = _field("consumerGroup")

# --- rows of one kind


def _sends(topics: Names, *, gives_back: bool = False) -> Need:
    return Need(_PRODUCERS, Act.PRODUCE, topics, gives_back=gives_back)


def _reads(topics: Names | None = _TOPIC, groups: Names | None = _GROUP, *, later: bool = False) -> Need:
    return Need(_CONSUMERS, Act.CONSUME, topics, groups=groups, later=later)


def _looks(topics: Names | None = _TOPIC) -> Need:
    return Need(_EVERYBODY, Act.LOOK, topics)


def _administers(topics: Names | None = _TOPIC, groups: Names | None = None, *, later: bool = False) -> Need:
    return Need(_ADMINS, Act.ADMINISTER, topics, Act.MANAGE, groups, later=later)


_WHOLE: Final = Need(_ADMINS, whole=True)

NEEDS: Final[dict[int, Need]] = {
    # --- producers
    RequestCode.SEND_MESSAGE: _sends(_TOPIC, gives_back=True),
    RequestCode.SEND_MESSAGE_V2: _sends(_field(LETTERS["topic"]), gives_back=True),
    RequestCode.SEND_BATCH_MESSAGE: _sends(_field(LETTERS["topic"]), gives_back=True),
    RequestCode.SEND_REPLY_MESSAGE: _sends(_TOPIC),
    RequestCode.SEND_REPLY_MESSAGE_V2: _sends(_field(LETTERS["topic"])),
    RequestCode.RECALL_MESSAGE: _sends(_TOPIC),
    RequestCode.END_TRANSACTION: Need(_PRODUCERS, Act.PRODUCE, later=True),  # the half's own topic: schedule knows it
    # --- consumers
    RequestCode.PULL_MESSAGE: _reads(),
    RequestCode.LITE_PULL_MESSAGE: _reads(),
    RequestCode.QUERY_MESSAGE: _reads(groups=None),
    RequestCode.VIEW_MESSAGE_BY_ID: _reads(None, None, later=True),  # the record's
    RequestCode.QUERY_CONSUMER_OFFSET: _reads(),
    RequestCode.UPDATE_CONSUMER_OFFSET: _reads(),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _reads(None),
    RequestCode.CHECK_CLIENT_CONFIG: _reads(
        lambda request: (subscription_of(_object(request).get("subscriptionData"))[0],), None
    ),
    RequestCode.LOCK_BATCH_MQ: _reads(_locked, _member("consumerGroup")),
    RequestCode.UNLOCK_BATCH_MQ: _reads(_locked, _member("consumerGroup")),
    RequestCode.CONSUMER_SEND_MSG_BACK: _reads(None, _field("group"), later=True),  # the record's
    RequestCode.QUERY_ASSIGNMENT: _reads(_member("topic"), _member("consumerGroup")),
    RequestCode.POP_MESSAGE: _reads(),
    RequestCode.ACK_MESSAGE: _reads(_popped),
    RequestCode.BATCH_ACK_MESSAGE: _reads(_acked_topics, _acked_groups),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _reads(_popped),
    RequestCode.NOTIFICATION: _reads(),
    RequestCode.POLLING_INFO: _reads(),
    # --- everybody
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _looks(None),
    RequestCode.GET_BROKER_CLUSTER_INFO: _looks(None),
    RequestCode.HEART_BEAT: Need(
        _EVERYBODY, Act.CONSUME, _subscribed, groups=lambda request: _heartbeat(request).consumers
    ),
    RequestCode.UNREGISTER_CLIENT: Need(_EVERYBODY, groups=_given("consumerGroup")),
    RequestCode.GET_MAX_OFFSET: _looks(),
    RequestCode.GET_MIN_OFFSET: _looks(),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _looks(),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _looks(),
    RequestCode.TOWLINE: Need(_EVERYBODY),  # each message is judged by itself: `own_needs`
    # --- admins, of a topic
    RequestCode.UPDATE_AND_CREATE_TOPIC: _administers(),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _administers(
        lambda request: (each.topic for each in read_topic_configs(request.json()))
    ),
    RequestCode.GET_TOPIC_CONFIG: _administers(),
    RequestCode.GET_TOPIC_STATS_INFO: _administers(),
    RequestCode.DELETE_TOPIC_IN_BROKER: _administers(),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _administers(),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _administers(),
    RequestCode.QUERY_CONSUME_QUEUE: _administers(),
    RequestCode.VIEW_BROKER_STATS_DATA: _administers(_counted(0), _counted(1)),
    # --- of a topic and a group, or of a group
    RequestCode.GET_CONSUME_STATS: _administers(_given("topic"), _GROUP),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _administers(groups=_field("group")),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _administers(groups=_field("group")),
    RequestCode.QUERY_CORRECTION_OFFSET: _administers(groups=_left_out),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _administers(groups=_field("group")),
    RequestCode.SET_MESSAGE_REQUEST_MODE: _administers(_member("topic"), _member("consumerGroup")),
    RequestCode.CLONE_GROUP_OFFSET: _administers(
        _given("topic"), lambda request: (request.fields.get(name, "") for name in ("srcGroup", "destGroup"))
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _administers(None, _GROUP, later=True),  # the record's topic
    RequestCode.GET_CONSUMER_RUNNING_INFO: _administers(None, _GROUP),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _administers(None, _GROUP),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _administers(
        None, lambda request: (read_group_config(request.json())[0],)
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _administers(
        None, lambda request: (name for name, _ in read_group_configs(request.json()))
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _administers(None, _field("groupName")),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _administers(None, _field("group")),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _administers(None, _field("group")),
    # --- of the node, or of every topic and group
    **dict.fromkeys(
        (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_KV_CONFIG,
            RequestCode.DELETE_KV_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,  # groups of producers are nobody's
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            RequestCode.GET_TOPICS_BY_CLUSTER,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.UPDATE_NAMESRV_CONFIG,
            RequestCode.GET_NAMESRV_CONFIG,
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_BROKER_HA_STATUS,
            # of brokers of RocketMQ that follow the node
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.BROKER_HEARTBEAT,
            RequestCode.GET_BROKER_MEMBER_GROUP,
            RequestCode.EXCHANGE_BROKER_HA_INFO,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
            RequestCode.GET_TIMER_CHECK_POINT,
            RequestCode.GET_TIMER_METRICS,
        ),
        _WHOLE,
    ),
}


def need_of(code: int) -> Need:
    """What a request of this code takes."""
    return NEEDS.get(code, _WHOLE)


def roles_for(code: int) -> frozenset[str]:
    """Who may ask for it: one of these."""
    return need_of(code).roles
