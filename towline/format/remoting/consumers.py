"""What consumers say of themselves in a heartbeat: groups, models, subscriptions (spec 11.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import MalformedFrame

TAG: Final = "TAG"
SQL92: Final = "SQL92"
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
GROUPS_MAX: Final = 1_024  # of one client
TOPICS_MAX: Final = 1_024  # of one group of it
NAME_MAX: Final = 255
EXPRESSION_MAX: Final = 64 * 1_024


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A subscription to one topic. `version` grows when it changes; the hashes that clients send are not believed."""

    expression: str
    kind: str
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """A consumer of one group. `facts` are its own words for who it is: type, model, where it begins."""

    group: str
    model: str
    facts: Mapping[str, str]
    subscriptions: Mapping[str, SubscriptionData]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The body of HEART_BEAT."""

    client_id: str
    producer_groups: frozenset[str]
    consumers: Mapping[str, ConsumerData]


def read_heartbeat(said: Any) -> Heartbeat:
    """Raises MalformedFrame."""
    match said:
        case {"clientID": str(client_id)} if 0 < len(client_id) <= NAME_MAX:
            producers = frozenset(_name(item) for item in _items(said, "producerDataSet", GROUPS_MAX))
            consumers = [_consumer(item) for item in _items(said, "consumerDataSet", GROUPS_MAX)]
            return Heartbeat(client_id, producers, {each.group: each for each in consumers})
    raise MalformedFrame(f"a heartbeat has a clientID of 1 to {NAME_MAX} characters")


def subscription_of(said: Any) -> tuple[str, SubscriptionData]:
    """The topic and the subscription of one object. Raises MalformedFrame."""
    match said:
        case {"topic": str(topic), "subString": str(expression)} if 0 < len(topic) <= NAME_MAX:
            kind = said.get("expressionType") or TAG
            version = said.get("subVersion", 0)
            if kind not in (TAG, SQL92) or not isinstance(version, int) or len(expression) > EXPRESSION_MAX:
                raise MalformedFrame(f"the subscription to {topic!r} has the expressionType {_shown(kind)}")
            return topic, SubscriptionData(expression, kind, version)
    raise MalformedFrame("a subscription has a topic and a subString")


def _consumer(item: Any) -> ConsumerData:
    group = _name(item)
    model = item.get("messageModel", CLUSTERING)
    if model not in (CLUSTERING, BROADCASTING):
        raise MalformedFrame(f"the group {group!r} has the messageModel {_shown(model)}")
    names = ("consumeType", "messageModel", "consumeFromWhere")
    facts = {name: str(item[name])[:NAME_MAX] for name in names if isinstance(item.get(name), str | int | float)}
    subscriptions = dict(subscription_of(each) for each in _items(item, "subscriptionDataSet", TOPICS_MAX))
    return ConsumerData(group, model, facts, subscriptions)


def _shown(value: Any) -> str:
    """As it stands in a refusal: what is no text may be nested deeper than `repr` goes."""
    return repr(value[:20]) if isinstance(value, str) else type(value).__name__


def _items(said: Mapping[str, Any], name: str, most: int) -> list[Any]:
    found = said.get(name) or []
    if not isinstance(found, list) or len(found) > most:
        raise MalformedFrame(f"{name} of a heartbeat is a list of at most {most} objects")
    return found


def _name(item: Any) -> str:
    match item:
        case {"groupName": str(name)} if 0 < len(name) <= NAME_MAX:
            return name
    raise MalformedFrame(f"a heartbeat names each group by a groupName of 1 to {NAME_MAX} characters")
