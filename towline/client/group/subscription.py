"""Subscriptions of a group consumer's topics, and the settings of its members."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from towline.client.message import ANY_TAG
from towline.client.read.reader import Start
from towline.format.java_hash import string_hash
from towline.limits import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

TAG: Final = "TAG"
SQL92: Final = "SQL92"
TAG_SEPARATOR: Final = "||"


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition on properties, in RocketMQ's SQL92 grammar: Sql("price > 10 AND region IS NOT NULL")."""

    condition: str


Wanted: TypeAlias = str | Sql
Topics: TypeAlias = str | Iterable[str] | Mapping[str, Wanted]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The filter of one topic. `tags` are empty for every tag; `codes` are their hashes, which the node compares."""

    expression: str
    kind: str
    tags: frozenset[bytes] = frozenset()
    codes: tuple[int, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        return {"expression": self.expression, "type": self.kind}


EVERYTHING: Final = Subscription(ANY_TAG, TAG)


def subscriptions_of(topics: Topics) -> dict[str, Subscription]:
    """Topic -> subscription. Raises ValueError for no topic at all, or a tag expression with an empty tag."""
    if isinstance(topics, str):
        topics = {topics: ANY_TAG}
    elif not isinstance(topics, Mapping):
        topics = dict.fromkeys(topics, ANY_TAG)
    if not topics:
        raise ValueError("a consumer needs a topic")
    return {topic: subscription_of(wanted) for topic, wanted in topics.items()}


def subscription_of(wanted: Wanted) -> Subscription:
    if isinstance(wanted, Sql):
        return Subscription(wanted.condition, SQL92)
    names = {tag.strip() for tag in wanted.split(TAG_SEPARATOR)}
    if ANY_TAG in names:
        return EVERYTHING
    if "" in names:
        raise ValueError(f"tags {wanted!r}: write *, a tag, or several as 'a || b'")
    ordered = sorted(names)
    codes = tuple(string_hash(tag) for tag in ordered)
    return Subscription(wanted, TAG, frozenset(tag.encode() for tag in ordered), codes)


def retry_topic(group: str) -> str:
    return RETRY_TOPIC_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_TOPIC_PREFIX + group


@dataclass(frozen=True, slots=True)
class MemberRules:
    """The settings of a member. Sizes are bytes, times ms.

    `optional` topics need not exist; `place` numbers the group of nodes.
    """

    group: str
    member: str
    instance: str
    cluster: str
    subscriptions: dict[str, Subscription]
    optional: frozenset[str]
    broadcasting: bool
    ordered: bool
    start: Start
    strategy: str
    auto_commit: bool
    commit_interval_ms: int
    max_count: int
    max_bytes: int
    buffer_bytes: int
    suspend_ms: int
    timeout_ms: int
    check_crcs: bool
    place: int = 0

    @property
    def identity(self) -> dict[str, str]:
        """Group, member and instance, in every question of the member."""
        return {"group": self.group, "member": self.member, "instance": self.instance}
