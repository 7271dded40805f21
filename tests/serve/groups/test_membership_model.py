"""Membership against a model: who is in is who was heard of, and a generation names one state of its group."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from towline.serve.groups.errors import GroupRefused, Refusal
from towline.serve.groups.locks import QueueLocks
from towline.serve.groups.members import JoinRequest, Membership, Subscription

EXPIRES_MS = 100
MEMBERS_MAX = 3
State = tuple[object, ...]


class MembersAreThoseHeardOf(RuleBasedStateMachine):
    groups = st.sampled_from(["g", "h"])
    names = st.sampled_from("abcd")
    instances = st.sampled_from("12")
    topics = st.sets(st.sampled_from("tuv"), min_size=1)

    @initialize()
    def begin_empty(self) -> None:
        self.now = 0
        self.queues = {"t": 4, "u": 2}
        self.membership = Membership(
            lambda topic: self.queues.get(topic, 0),
            expires_ms=EXPIRES_MS,
            first_generation=lambda _: 1,
            locks_of=lambda _: QueueLocks(1_000),
            members_max=MEMBERS_MAX,
        )
        self.model: dict[tuple[str, str], tuple[str, int]] = {}  # (group, member) -> instance, when heard of
        self.states: dict[str, tuple[int, State]] = {}

    @rule(group=groups, name=names, instance=instances, topics=topics, strategy=st.sampled_from(["average", "circle"]))
    def join(self, group: str, name: str, instance: str, topics: set[str], strategy: str) -> None:
        said = JoinRequest(
            name, instance, "clustering", strategy, {topic: Subscription("*", "TAG") for topic in topics}
        )
        there = [member for of, member in self.model if of == group]
        taken = self.model.get((group, name), (instance, 0))[0] != instance
        full = name not in there and len(there) >= MEMBERS_MAX
        if taken or full:
            with pytest.raises(GroupRefused) as error:
                self.membership.join(group, said, self.now)
            assert error.value.refusal is (Refusal.MEMBER_TAKEN if taken else Refusal.TOO_MANY_MEMBERS)
        else:
            self.membership.join(group, said, self.now)
            self.model[group, name] = (instance, self.now)

    @rule(group=groups, name=names)
    def heard(self, group: str, name: str) -> None:
        self.membership.heard(group, name, self.now)
        if (group, name) in self.model:
            self.model[group, name] = (self.model[group, name][0], self.now)

    @rule(group=groups, name=names, in_order=st.booleans())
    def leave(self, group: str, name: str, in_order: bool) -> None:
        (self.membership.leave if in_order else self.membership.gone)(group, name)
        self.model.pop((group, name), None)

    @rule(ms=st.integers(0, EXPIRES_MS))
    def time_goes(self, ms: int) -> None:
        due = self.membership.next_expiry_ms()
        self.now += ms
        expired = self.membership.expire(self.now)
        silent = {place for place, (_, heard) in self.model.items() if self.now - heard >= EXPIRES_MS}
        assert set(expired) == silent
        assert not expired or (due is not None and due <= self.now)
        for place in expired:
            del self.model[place]

    @rule(topic=st.sampled_from("tuv"), count=st.integers(0, 8))
    def a_topic_changes(self, topic: str, count: int) -> None:
        self.queues[topic] = count
        self.membership.recount()

    @rule()
    def forget(self) -> None:
        self.membership.evict_empty(self.now)
        self.states = {name: seen for name, seen in self.states.items() if self.membership.get(name) is not None}

    @invariant()
    def who_is_in_is_who_was_heard_of(self) -> None:
        found = {(group.name, name) for group in self.membership.groups() for name in group.members}
        assert found == set(self.model)

    @invariant()
    def a_generation_is_one_state(self) -> None:
        changed = self.membership.take_changed()
        for group in self.membership.groups():
            topics = {name: sorted(member.topics) for name, member in group.members.items()}
            queues = dict(group.queues) if group.members else {}
            state = (sorted(topics.items()), sorted(queues.items()), group.strategy if group.members else "")
            generation, before = self.states.get(group.name, (0, None))
            assert group.generation >= generation
            if state != before:
                assert group.generation > generation
                assert group.name in changed
            self.states[group.name] = (group.generation, state)


TestMembershipAsAModel = MembersAreThoseHeardOf.TestCase
TestMembershipAsAModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
