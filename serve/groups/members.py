"""The members of groups: generations, subscriptions, time-outs. Time is an argument; nothing is sent here.

A generation is one state of a group. It grows by one with each change of the members, of their topics, of a topic's
queues, of the strategy, of its settings, and with each reset of offsets, so two members that know the same generation
divide alike.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from towline.format.wire.allocation import AVERAGE
from towline.limits import RETRY_TOPIC_PREFIX

from .errors import GroupRefused, Refusal
from .locks import Queue, QueueLocks

MEMBERS_MAX: Final = 1_024  # of one group
MEMBERS_OF_ALL_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription to a topic: an expression of type TAG or SQL92."""

    expression: str
    kind: str


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member's own description. `instance` distinguishes a returning member from another one with the same id.

    `generation` is the newest it knows, from this process or an earlier one; 0 for none.
    """

    member: str
    instance: str
    model: str
    strategy: str
    topics: Mapping[str, Subscription]
    generation: int = 0


@dataclass(slots=True)
class Member:
    instance: str
    model: str
    topics: Mapping[str, Subscription]
    heard_ms: int


@dataclass(slots=True)
class Group:
    """A group's members. The newest member decides model and strategy."""

    name: str
    generation: int
    model: str
    strategy: str
    locks: QueueLocks
    members: dict[str, Member] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)
    _summary: "Summary | None" = None

    def topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in member.topics}

    def summary(self) -> "Summary":
        """The summary of this generation; made once for all members."""
        if self._summary is None or self._summary.generation != self.generation:
            self._summary = Summary.of(self)
        return self._summary


@dataclass(frozen=True, slots=True)
class Summary:
    """A generation for answers: `names` are sorted ids. By topic: the sorted ids of its readers, and the first with a
    filter."""

    generation: int
    names: list[str]
    subscribers: dict[str, list[str]]
    filters: dict[str, dict[Subscription, str]]
    models: set[str]

    @classmethod
    def of(cls, group: Group) -> "Summary":
        names = sorted(group.members)
        subscribers: dict[str, list[str]] = {}
        filters: dict[str, dict[Subscription, str]] = {}
        for name in names:
            for topic, subscription in group.members[name].topics.items():
                subscribers.setdefault(topic, []).append(name)
                filters.setdefault(topic, {}).setdefault(subscription, name)
        models = {member.model for member in group.members.values()}
        return cls(group.generation, names, subscribers, filters, models)


class Membership:
    """All groups that have members. `changed` collects the groups whose generation grew, until they are taken.

    `queues_of` returns the read queues of a topic, 0 for an unknown one; `first_generation` the first generation of a
    group that was not in memory; `locks_of` the locks of such a group.
    """

    def __init__(
        self,
        queues_of: Callable[[str], int],
        *,
        expires_ms: int,
        first_generation: Callable[[str], int],
        locks_of: Callable[[str], QueueLocks],
        members_max: int = MEMBERS_MAX,
        of_all_max: int = MEMBERS_OF_ALL_MAX,
    ) -> None:
        self._queues_of = queues_of
        self._expires_ms = expires_ms
        self._first_generation, self._locks_of = first_generation, locks_of
        self._members_max, self._of_all_max = members_max, of_all_max
        self._groups: dict[str, Group] = {}
        self._silent: OrderedDict[tuple[str, str], None] = OrderedDict()  # (group, member), the longest silent first
        self._changed: set[str] = set()

    def get(self, group: str) -> Group | None:
        return self._groups.get(group)

    def groups(self) -> list[Group]:
        return [self._groups[name] for name in sorted(self._groups)]

    @property
    def changed(self) -> bool:
        """Whether some group has changed."""
        return bool(self._changed)

    def take_changed(self) -> set[str]:
        found, self._changed = self._changed, set()
        return found

    def member(self, group: str, member: str) -> tuple[Group, Member]:
        """The member. Raises GroupRefused UNKNOWN_MEMBER."""
        found = self._groups.get(group)
        if found is None or member not in found.members:
            raise GroupRefused(Refusal.UNKNOWN_MEMBER, f"{member!r} is no member of group {group!r}")
        return found, found.members[member]

    def own(self, group: str, member: str, instance: str) -> tuple[Group, Member]:
        """The member, if it is this instance of it. Raises GroupRefused UNKNOWN_MEMBER, MEMBER_TAKEN."""
        of, found = self.member(group, member)
        if found.instance != instance:
            raise GroupRefused(Refusal.MEMBER_TAKEN, f"{member!r} of group {group!r} is somebody else")
        return of, found

    def join(self, name: str, joining: JoinRequest, now_ms: int) -> Group:
        """Adds a member, or renews one. Raises GroupRefused MEMBER_TAKEN, TOO_MANY_MEMBERS."""
        group = self._groups.get(name)
        member = group.members.get(joining.member) if group is not None else None
        if member is not None and member.instance != joining.instance:
            left = member.heard_ms + self._expires_ms - now_ms
            sentence = (
                f"another consumer is in group {name!r} as {joining.member!r}, heard of {self._ago(member, now_ms)}"
            )
            raise GroupRefused(Refusal.MEMBER_TAKEN, sentence, max(1, left))
        if group is None or member is None:
            self._check_room(name, group)
            group = group or self._make(name)
            group.generation = max(group.generation, joining.generation)  # a number that was used means another state
            group.members[joining.member] = Member(joining.instance, joining.model, dict(joining.topics), now_ms)
            group.model = joining.model
            changed = True
        else:
            changed = dict(member.topics) != dict(joining.topics)
            member.topics = dict(joining.topics)
        if member is None or changed:
            changed = changed or group.strategy != joining.strategy
            group.strategy = joining.strategy
        self._heard(name, joining.member, group.members[joining.member], now_ms)
        if changed:
            self._count_queues(group)
            self._grow(group)
        return group

    def heard(self, group: str, member: str, now_ms: int) -> None:
        """Renews a member's time-out; ignores an unknown one."""
        found = self._groups.get(group)
        if found is not None and member in found.members:
            self._heard(group, member, found.members[member], now_ms)

    def leave(self, name: str, member: str, busy: Collection[Queue] = ()) -> None:
        """Removes a member that left in order. Its locks are free at once, except for the `busy` queues. Ignores an
        unknown one."""
        group = self._groups.get(name)
        if group is not None and member in group.members:
            group.locks.leave((member, group.members[member].instance), busy)
            self._remove(group, member)

    def gone(self, name: str, member: str) -> None:
        """Removes a member whose link has ended. Its locks stay for their time: it may still be working."""
        group = self._groups.get(name)
        if group is not None and member in group.members:
            self._remove(group, member)

    def expire(self, now_ms: int) -> list[tuple[str, str]]:
        """Removes members that were silent for too long; returns (group, member)."""
        found = []
        while self._silent:
            name, member = next(iter(self._silent))
            if now_ms - self._groups[name].members[member].heard_ms < self._expires_ms:
                break
            self._remove(self._groups[name], member)
            found.append((name, member))
        return found

    def next_expiry_ms(self) -> int | None:
        """When the next member would expire; None without members."""
        if not self._silent:
            return None
        name, member = next(iter(self._silent))
        return self._groups[name].members[member].heard_ms + self._expires_ms

    def evict_empty(self, now_ms: int) -> None:
        """Drops groups without members and without locks that still count."""
        for name, group in list(self._groups.items()):
            group.locks.evict_expired(now_ms)
            if not group.members and not len(group.locks):
                del self._groups[name]

    def recount(self) -> None:
        """Counts queues again after topics may have changed."""
        for group in self._groups.values():
            if self._count_queues(group):
                self._grow(group)

    def reset(self, name: str) -> int:
        """Begins a generation, from which commits count again, after somebody else than a member set offsets."""
        group = self._groups.get(name) or self._make(name)
        self._grow(group)
        return group.generation

    def touch(self, name: str) -> None:
        """Begins a generation after a change of the group's settings, so that its members hear of it."""
        group = self._groups.get(name)
        if group is not None:
            self._grow(group)

    def warnings(self, group: Group, member: str) -> list[str]:
        """Warnings for a member about itself and the others."""
        found = []
        own, summary = group.members[member], group.summary()
        if len(summary.models) > 1:
            found.append(f"MODEL_DIFFERS: some members are clustering, some broadcasting; {group.model} counts")
        for topic in sorted(own.topics):
            others = [name for each, name in summary.filters[topic].items() if each != own.topics[topic]]
            if others:
                found.append(f"SUBSCRIPTION_DIFFERS: {others[0]!r} reads {topic!r} with another expression")
            missing = len(summary.names) - len(summary.subscribers[topic])
            if missing:
                found.append(f"SUBSCRIPTION_DIFFERS: {missing} of {len(summary.names)} members do not read {topic!r}")
            if not group.queues.get(topic) and topic != RETRY_TOPIC_PREFIX + group.name:
                found.append(f"UNKNOWN_TOPIC: {topic!r} is not there any more")
        return found

    def _check_room(self, name: str, group: Group | None) -> None:
        if group is not None and len(group.members) >= self._members_max:
            sentence = f"group {name!r} has {self._members_max} members, which is the limit"
            raise GroupRefused(Refusal.TOO_MANY_MEMBERS, sentence)
        if len(self._silent) >= self._of_all_max:
            sentence = f"the groups of this node have {self._of_all_max} members, which is the limit"
            raise GroupRefused(Refusal.TOO_MANY_MEMBERS, sentence)

    def _make(self, name: str) -> Group:
        made = Group(name, self._first_generation(name), "clustering", AVERAGE, self._locks_of(name))
        self._groups[name] = made
        return made

    def _ago(self, member: Member, now_ms: int) -> str:
        return f"{now_ms - member.heard_ms} ms ago"

    def _heard(self, group: str, name: str, member: Member, now_ms: int) -> None:
        member.heard_ms = now_ms
        self._silent[group, name] = None
        self._silent.move_to_end((group, name))

    def _remove(self, group: Group, member: str) -> None:
        del group.members[member]
        del self._silent[group.name, member]
        self._grow(group)
        if group.members:
            self._count_queues(group)

    def _count_queues(self, group: Group) -> bool:
        """Whether the number of queues has changed."""
        found = {topic: self._queues_of(topic) for topic in group.topics()}
        changed = found != group.queues
        group.queues = found
        return changed

    def _grow(self, group: Group) -> None:
        group.generation += 1
        self._changed.add(group.name)
