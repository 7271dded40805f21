"""What the holder of a key may do with which topic and group: the roles of a key, and the limits that they have.

A role without topics is for all of them. Else it is for the names that one of its patterns fits: a whole name, or the
beginning of one with `*` behind it. Groups limit where its holder consumes; none means every group.

    %RETRY%group, %DLQ%group   belong to their group: whoever consumes in it reads and writes them. Of others' patterns
                               only those fit that begin with `%` themselves
    the broker's own topics    (SCHEDULE_TOPIC_XXXX, RMQ_SYS_...) hold what is for any topic, so only a whole name fits
    forms                      a delayed, timed or half message counts for the topic that it is for: see `seen_topics`

An admin without topics is limited in nothing; one with topics is an admin, a producer and a consumer of these, and does
nothing that concerns the node, or a group that no `groups` name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeGuard

from towline.errors import MalformedRecord, Remedy, TowlineError
from towline.format.files.topics import GROUP_PREFIXES, is_system_topic
from towline.format.record.forms import FORM_TOPICS
from towline.format.record.properties import NAME_END, PAIR_END, REAL_TOPIC
from towline.format.record.record import Record, decode
from towline.format.record.rules import Rule
from towline.format.wire.frames import Buffer
from towline.limits import RETRY_TOPIC_SIZE_MAX

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin"
KINDS: Final = (PRODUCER, CONSUMER, ADMIN)
PATTERNS_MAX: Final = 64  # of one key: they stand in questions to other processes of a node
HOLDER: Final = "holder"  # in a question to another process of the node: `Permit.facts` of who asks
HOLDER_MAX: Final = 20 * 1_024  # bytes of these
KNOWN_MAX: Final = 4_096  # names that are remembered, before all are decided anew: a client may ask for any
SEEN_MAX: Final = 64  # names that one look at records of a form may find
REAL_TOPICS_MAX: Final = 4_096  # topics that records of one put may be for: each is decided
EVERYTHING: Final = "*"
_PATTERN: Final = re.compile(r"[%|a-zA-Z0-9_.-]*\*?")
_REAL_TOPIC: Final = re.compile(  # with one byte more than a name has
    b"%s([^%s]{0,%d})" % (re.escape((REAL_TOPIC + NAME_END).encode()), PAIR_END.encode(), RETRY_TOPIC_SIZE_MAX + 1)
)
_NAME: Final = re.compile(rb"[%%|a-zA-Z0-9_.-]{1,%d}" % RETRY_TOPIC_SIZE_MAX)
_FORM_TOPICS: Final = frozenset(topic.encode() for topic in FORM_TOPICS)
assert PATTERNS_MAX * (RETRY_TOPIC_SIZE_MAX + 4) + 1_024 <= HOLDER_MAX


class NotPermitted(TowlineError, remedy=Remedy.FIX_CALL):
    """A request for a topic or a group that the key's roles do not reach."""

    key: str
    what: str
    rule: str
    template = "the key {key!r} may not {what}: {rule}"
    advice = "use another key, or `towline keys change NAME --dir DIR --role ROLE`, which gives this one other roles"


class BadPattern(ValueError):
    """A role or a pattern that means nothing."""

    def __init__(self, said: str, why: str) -> None:
        super().__init__(f"{said!r}: {why}")


class Act(StrEnum):
    """What is done with a topic, or with a group; the value is how a sentence says it."""

    PRODUCE = "produce to topic"
    CONSUME = "consume topic"
    ADMINISTER = "administer topic"
    LOOK = "ask about topic"  # for whoever may do one of these
    JOIN = "consume in group"
    MANAGE = "administer group"


_ROLES_OF: Final = {Act.PRODUCE: (PRODUCER, ADMIN), Act.CONSUME: (CONSUMER, ADMIN), Act.ADMINISTER: (ADMIN,)}


@dataclass(frozen=True, slots=True)
class Limits:
    """`topics`: the patterns of each role that has any. `groups`: those of groups, empty for every group."""

    topics: tuple[tuple[str, tuple[str, ...]], ...] = ()
    groups: tuple[str, ...] = ()

    def of(self, role: str) -> tuple[str, ...]:
        """The patterns of a role, empty where it is for every topic."""
        return dict(self.topics).get(role, ())

    @property
    def facts(self) -> dict[str, Any]:
        """As they stand in a key's file; empty where there are none."""
        facts: dict[str, Any] = {"topics": {role: list(found) for role, found in self.topics}} if self.topics else {}
        return facts | ({"groups": list(self.groups)} if self.groups else {})

    def check(self, roles: Sequence[str]) -> "Limits":
        """The same. Raises BadPattern for what means nothing for a key of these roles."""
        for role, patterns in self.topics:
            if role not in roles:
                raise BadPattern(role, "it has topics, and the key has not this role")
            if not patterns:
                raise BadPattern(role, "it has an empty list of topics: leave them out for every topic")
        limited = CONSUMER in roles or (ADMIN in roles and self.of(ADMIN))
        if self.groups and not limited:
            raise BadPattern(", ".join(self.groups), "groups are for a consumer, or an admin of some topics")
        everything = [*self.groups, *(pattern for _, patterns in self.topics for pattern in patterns)]
        if len(everything) > PATTERNS_MAX:
            raise BadPattern(everything[-1], f"it is one of {len(everything)} patterns; {PATTERNS_MAX} are allowed")
        for pattern in everything:
            check_pattern(pattern)
        return self


NO_LIMITS: Final = Limits()


def check_pattern(pattern: str) -> None:
    """Raises BadPattern for what is neither a name nor the beginning of one with `*` behind it."""
    if not pattern or len(pattern) > RETRY_TOPIC_SIZE_MAX + 1 or not _PATTERN.fullmatch(pattern):
        why = "a pattern is a whole name, or the beginning of one with * behind it; names are letters, digits, %|_-."
        raise BadPattern(pattern, why)


def fits(pattern: str, name: str) -> bool:
    """Whether a name is the pattern, or begins as one that ends with `*` does."""
    return name.startswith(pattern[:-1]) if pattern.endswith(EVERYTHING) else name == pattern


def read_roles(said: Iterable[str], groups: Iterable[str] = ()) -> tuple[tuple[str, ...], Limits]:
    """The roles in texts like `consumer` and `producer:orders,orders-*`, and their limits with these groups. Raises
    BadPattern."""
    topics: dict[str, tuple[str, ...]] = {}
    for text in said:
        role, has_topics, patterns = text.partition(":")
        if role not in KINDS:
            raise BadPattern(text, f"roles are {', '.join(KINDS)}")
        found = tuple(patterns.split(",")) if has_topics else ()
        if role in topics and bool(topics[role]) != bool(found):
            raise BadPattern(role, "it is said once with topics and once without, which means every topic")
        topics[role] = tuple(dict.fromkeys((*topics.get(role, ()), *found)))
    if not topics:
        raise BadPattern("no role", f"roles are {', '.join(KINDS)}")
    limits = Limits(tuple((role, found) for role, found in topics.items() if found), tuple(dict.fromkeys(groups)))
    return tuple(topics), limits.check(tuple(topics))


def read_limits(facts: Any, roles: Sequence[str]) -> Limits:
    """The limits in a key's file, where None stands for none. Raises BadPattern."""
    match facts:
        case None:
            return NO_LIMITS
        case {**more} if more.keys() <= {"topics", "groups"}:
            topics, groups = more.get("topics", {}), more.get("groups", [])
            if isinstance(topics, dict) and all(map(_are_names, topics.values())) and _are_names(groups):
                rows: dict[str, list[str]] = topics
                return Limits(tuple((role, tuple(found)) for role, found in rows.items()), tuple(groups)).check(roles)
    raise BadPattern("limits", "it has topics, a list of patterns for each role, and groups, a list of patterns")


def _are_names(said: object) -> TypeGuard[list[str]]:
    return isinstance(said, list) and all(isinstance(each, str) for each in said)


class Permit:
    """What the holder of a key may do, decided once for each topic and group. A changed key has another one."""

    def __init__(self, key: str, roles: Sequence[str], limits: Limits = NO_LIMITS) -> None:
        self.key, self._roles, self._limits = key, tuple(roles), limits
        self._known: dict[tuple[Act, str], bool] = {}
        self.is_limited = limits != NO_LIMITS
        self.administers_all = ADMIN in roles and not limits.of(ADMIN)
        self._producers = {role: limits.of(role) for role in _ROLES_OF[Act.PRODUCE] if role in roles}
        self._consumers = {role: limits.of(role) for role in _ROLES_OF[Act.CONSUME] if role in roles}
        self._admins = {role: limits.of(role) for role in _ROLES_OF[Act.ADMINISTER] if role in roles}
        self.produces_all = any(not patterns for patterns in self._producers.values())

    @property
    def facts(self) -> dict[str, Any]:
        """For another process of the node, which makes the same of them (`read`)."""
        return {"name": self.key, "roles": list(self._roles), "limits": self._limits.facts}

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "Permit":
        """What `facts` say. Raises KeyError, TypeError, BadPattern."""
        roles = tuple(map(str, facts["roles"]))
        return cls(str(facts["name"]), roles, read_limits(facts["limits"], roles))

    def may(self, act: Act, name: str) -> bool:
        """Whether its holder may do this with a topic or a group of this name. What is too long for one is refused to
        who is limited, and not remembered."""
        if len(name) > RETRY_TOPIC_SIZE_MAX:
            return (self.administers_all or not self.is_limited) and self._decide(act, name)
        known = self._known.get((act, name))
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[act, name] = self._decide(act, name)
        return known

    def refusal(self, act: Act, name: str) -> NotPermitted | None:
        """Why `may` says no; None where it does not."""
        if self.may(act, name):
            return None
        return NotPermitted(self.key, f"{act.value} {name[:RETRY_TOPIC_SIZE_MAX]!r}", self._rule(act))

    def check(self, act: Act, name: str) -> None:
        """Raises the `refusal`."""
        refused = self.refusal(act, name)
        if refused is not None:
            raise refused

    def check_sends(self, what: str) -> None:
        """Raises NotPermitted for who may send to no topic at all."""
        if not (self.administers_all or self._producers):
            raise NotPermitted(self.key, what, f"that is for who may send, and {self._rule(Act.PRODUCE)}")

    def check_whole(self, what: str) -> None:
        """Raises NotPermitted for what concerns the node, or every topic, unless its holder is an admin of all."""
        if not self.administers_all:
            why = f"that is for an admin without topics, and {self._rule(Act.ADMINISTER)}"
            raise NotPermitted(self.key, what, why)

    def _decide(self, act: Act, name: str) -> bool:
        if self.administers_all:
            return True
        match act:
            case Act.JOIN:
                return bool(self._consumers) and self._is_in_groups(name)
            case Act.MANAGE:
                return bool(self._admins and self._limits.groups) and self._is_in_groups(name)
            case Act.LOOK:
                return any(self.may(each, name) for each in (Act.PRODUCE, Act.CONSUME, Act.ADMINISTER))
        roles = {Act.PRODUCE: self._producers, Act.CONSUME: self._consumers, Act.ADMINISTER: self._admins}[act]
        group = group_of(name)
        if group is None:
            return any(not patterns or _reach(patterns, name) for patterns in roles.values())
        if any(_reach(patterns, name) for patterns in roles.values()):
            return True
        if act is Act.ADMINISTER:
            return self.may(Act.MANAGE, group)
        return self.may(Act.JOIN, group) or (act is Act.PRODUCE and self.produces_all)

    def _is_in_groups(self, name: str) -> bool:
        return not self._limits.groups or any(fits(pattern, name) for pattern in self._limits.groups)

    def _rule(self, act: Act) -> str:
        """Which of its roles or patterns decide that."""
        if act is Act.JOIN and self._consumers and self._limits.groups:
            return f"its groups are {', '.join(self._limits.groups)}"
        if act is Act.MANAGE and self._admins:
            return f"it takes groups that are named, and its groups are {', '.join(self._limits.groups) or 'not'}"
        wanted = {Act.JOIN: (CONSUMER, ADMIN), Act.MANAGE: (ADMIN,), Act.LOOK: KINDS}.get(act) or _ROLES_OF[act]
        found = [role for role in wanted if role in self._roles]
        if not found:
            return f"its roles are {', '.join(self._roles)}"
        told = [f"its role {role} is for {', '.join(self._limits.of(role)) or 'every topic'}" for role in found]
        if self._limits.groups and act is not Act.PRODUCE:
            told.append(f"its groups are {', '.join(self._limits.groups)}")
        return "; ".join(told)


def group_of(topic: str) -> str | None:
    """The group that a retry or dead-letter topic belongs to; None of others."""
    return next((topic.removeprefix(prefix) for prefix in GROUP_PREFIXES if topic.startswith(prefix)), None)


def _reach(patterns: Sequence[str], topic: str) -> bool:
    """Whether a pattern fits that is meant for topics of this kind."""
    if is_system_topic(topic):
        return topic in patterns
    if group_of(topic) is not None:
        return any(pattern.startswith("%") and fits(pattern, topic) for pattern in patterns)
    return any(fits(pattern, topic) for pattern in patterns)


def is_form_topic(topic: bytes) -> bool:
    """Whether records of this topic are for others, which their properties name."""
    return topic in _FORM_TOPICS


def seen_topics(records: Buffer) -> set[str] | None:
    """The topics that records of a form topic are for, and whatever looks like one in their bodies: one search over all
    bytes, as there may be many records.

    None where that does not tell, and `real_topics_of_each` has to: a body may hold any number of names, and it, or a
    property without its last separator, may end inside one, which then goes on over the next one. It is no name by
    that, as what stands between the two is none of the bytes of names.
    """
    names = set(_REAL_TOPIC.findall(records))
    if len(names) > SEEN_MAX or not all(map(_NAME.fullmatch, names)):
        return None
    return {name.decode() for name in names}


def real_topics_of_each(records: Buffer) -> Iterator[str]:
    """The same of the properties alone, record by record, each once. Raises MalformedRecord, also for more than
    REAL_TOPICS_MAX."""
    known: set[str] = set()
    view, at = memoryview(records), 0
    while at < len(view):
        found = _real_topics(decode(view, at, check_crc=False).properties) - known
        known |= found
        if len(known) > REAL_TOPICS_MAX:
            raise MalformedRecord(Rule.REAL_TOPIC.name, f"a put is for at most {REAL_TOPICS_MAX} topics", at)
        yield from found
        at += int.from_bytes(view[at : at + 4], "big")


def _real_topics(properties: bytes) -> set[str]:
    """All that they name: no name goes on over the end of a property."""
    return {name.decode("utf-8", "replace") for name in _REAL_TOPIC.findall(properties)}


def topics_of(record: Record) -> set[str]:
    """The topic that a stored record counts for; more than one where its properties name more."""
    if is_form_topic(record.topic):
        return _real_topics(record.properties)
    return {record.topic.decode("utf-8", "replace")}
