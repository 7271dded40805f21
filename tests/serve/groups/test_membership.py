"""Members join, watch, leave and fall silent; everybody is told at once."""

import pytest

from towline.errors import UnknownTopic
from towline.format.files.groups import GROUP_SIZE_MAX
from towline.limits import REST_MAX_MS
from towline.serve.groups.errors import GroupRefused, Refusal
from towline.serve.groups.locks import QueueLocks
from towline.serve.groups.members import JoinRequest, Membership
from towline.serve.groups.service import CHECK_EVERY_MS
from towline.serve.groups.table import Groups

from .faces import EXPIRES_MS, Room

ASKED = {"group": "g", "instance": "i", "topics": {"t": {"expression": "*", "type": "TAG"}}}


def refusal(error: pytest.ExceptionInfo[GroupRefused]) -> Refusal:
    return error.value.refusal


class TestJoining:
    def test_the_first_member_is_told_everything_it_divides_by(self, room: Room):
        told = room.join("a")
        assert told["members"] == ["a"]
        assert told["queues"] == {"t": 4}
        assert (told["model"], told["strategy"], told["warnings"]) == ("clustering", "average", [])
        assert told["heartbeat_ms"] * 3 <= told["expires_ms"] == EXPIRES_MS
        assert told["settings"]["retryMaxTimes"] == 16
        assert "subscribers" not in told

    def test_each_change_is_one_generation_and_a_heartbeat_none(self, room: Room):
        first = room.join("a")["generation"]
        assert room.join("a")["generation"] == first
        assert room.join("b")["generation"] == first + 1
        assert room.join("a", topics={"t": {"expression": "x", "type": "TAG"}})["generation"] == first + 2
        assert room.join("a", topics={"t": {"expression": "x", "type": "TAG"}})["generation"] == first + 2

    def test_a_topic_that_gets_queues_is_a_change(self, room: Room):
        before = room.join("a")
        room.queues = {**room.queues, "t": 6}
        room.advance(1_000)
        after = room.join("a")
        assert (after["queues"], after["generation"]) == ({"t": 6}, before["generation"] + 1)

    def test_an_unknown_topic_is_refused_but_for_the_groups_retry_topic(self, room: Room):
        with pytest.raises(UnknownTopic):
            room.join("a", topics={"nowhere": {"expression": "*", "type": "TAG"}})
        assert room.told("group_list")["groups"] == []
        own = {"expression": "*", "type": "TAG"}
        before = room.join("a", topics={"t": own, "%RETRY%g": own})
        assert before["queues"] == {"t": 4, "%RETRY%g": 0}
        room.queues = {**room.queues, "%RETRY%g": 1}
        room.advance(1_000)
        assert room.join("a", topics={"t": own, "%RETRY%g": own})["queues"]["%RETRY%g"] == 1

    def test_a_topic_that_is_deleted_is_a_warning(self, room: Room):
        room.join("a")
        room.queues = {"u": 2}
        room.advance(1_000)
        told = room.join("a")
        assert told["queues"] == {"t": 0}
        assert any("UNKNOWN_TOPIC" in warning for warning in told["warnings"])

    def test_members_that_read_different_topics_are_told_who_reads_what(self, room: Room):
        room.join("a")
        told = room.join("b", topics={name: {"expression": "*", "type": "TAG"} for name in ("t", "u")})
        assert told["subscribers"] == {"u": ["b"]}
        assert any("SUBSCRIPTION_DIFFERS" in warning for warning in told["warnings"])

    def test_another_expression_is_a_warning_and_the_newest_strategy_counts(self, room: Room):
        room.join("a")
        told = room.join("b", topics={"t": {"expression": "x", "type": "TAG"}}, strategy="circle")
        assert any("SUBSCRIPTION_DIFFERS" in warning for warning in told["warnings"])
        assert room.join("a")["strategy"] == "circle"

    def test_two_live_members_of_one_id(self, room: Room):
        room.join("a")
        room.advance(1_000)
        with pytest.raises(GroupRefused) as error:
            room.join("a", instance="another", peer=b"elsewhere")
        assert refusal(error) is Refusal.MEMBER_TAKEN
        assert 0 < error.value.retry_after_ms <= EXPIRES_MS - 1_000

    def test_a_member_that_comes_back_over_a_new_link_is_the_same(self, room: Room):
        before = room.join("a")["generation"]
        assert room.join("a", peer=b"a new link")["generation"] == before

    def test_the_id_of_a_member_that_has_gone_is_free_at_once_if_it_waited(self, room: Room):
        told = room.join("a")
        room.watch("a", told["generation"])
        room.gone.add(b"a")
        assert room.join("a", instance="another", peer=b"elsewhere")["members"] == ["a"]

    @pytest.mark.parametrize(
        ("facts", "expected"),
        [
            ({"group": "a group"}, Refusal.ILLEGAL_GROUP),
            ({"group": "g" * (GROUP_SIZE_MAX + 1)}, Refusal.ILLEGAL_GROUP),
            ({"group": 7}, Refusal.ILLEGAL_QUESTION),
            ({"member": ""}, Refusal.ILLEGAL_MEMBER),
            ({"member": "m" * 256}, Refusal.ILLEGAL_MEMBER),
            ({"topics": {}}, Refusal.ILLEGAL_QUESTION),
            ({"topics": {"t": "*"}}, Refusal.ILLEGAL_QUESTION),
            ({"topics": {"t": {"expression": "*", "type": "XPATH"}}}, Refusal.ILLEGAL_QUESTION),
            ({"topics": {"t": {"expression": "x" * 70_000, "type": "TAG"}}}, Refusal.ILLEGAL_QUESTION),
            ({"model": "both"}, Refusal.ILLEGAL_QUESTION),
            ({"strategy": "random"}, Refusal.ILLEGAL_QUESTION),
            ({"from": "middle"}, Refusal.ILLEGAL_QUESTION),
            ({"from": -1}, Refusal.ILLEGAL_QUESTION),
            ({"generation": "x"}, Refusal.ILLEGAL_QUESTION),
        ],
    )
    def test_bad_questions_are_refused_by_name(self, room: Room, facts: dict[str, object], expected: Refusal):
        good = {"group": "g", "member": "a", "topics": {"t": {"expression": "*", "type": "TAG"}}}
        with pytest.raises(GroupRefused) as error:
            room.told("group_join", **(good | facts))
        assert refusal(error) is expected
        assert room.told("group_list")["groups"] == []

    def test_groups_are_not_made_when_the_settings_forbid_it(self, room: Room):
        room.more = {"auto_create_subscription_group": False}
        room.begin()
        with pytest.raises(GroupRefused) as error:
            room.join("a")
        assert refusal(error) is Refusal.UNKNOWN_GROUP

    def test_a_group_that_may_not_consume(self, room: Room):
        room.configure(consumeEnable=False)
        with pytest.raises(GroupRefused) as error:
            room.join("a")
        assert refusal(error) is Refusal.CONSUME_DISABLED
        room.configure(consumeEnable=True, consumeBroadcastEnable=False)
        assert room.join("a")["members"] == ["a"]
        with pytest.raises(GroupRefused) as error:
            room.join("b", model="broadcasting")
        assert refusal(error) is Refusal.CONSUME_DISABLED

    def test_a_member_of_a_group_that_is_switched_off_is_told_so_wherever_it_asks(self, room: Room):
        generation = room.join("a")["generation"]
        held = room.watch("a", generation)
        assert held not in room.answers
        room.configure(consumeEnable=False)
        assert isinstance(room.refused[held], GroupRefused)
        assert room.refused[held].refusal is Refusal.CONSUME_DISABLED
        us = {"group": "g", "member": "a", "instance": "a"}
        for op, facts in (("group_watch", {"generation": generation}), ("group_lock", {"queues": [["t", 0]]})):
            with pytest.raises(GroupRefused) as error:
                room.told(op, b"a", **us, **facts)
            assert refusal(error) is Refusal.CONSUME_DISABLED
        assert room.commit({"0": 50}, "a") == {}  # what it has done is done
        room.configure(consumeEnable=True)
        assert room.join("a")["generation"] == generation + 2

    def test_members_are_told_of_new_settings_at_once(self, room: Room):
        held = room.watch("a", room.join("a")["generation"])
        room.configure(retryMaxTimes=3)
        assert room.answers[held]["settings"]["retryMaxTimes"] == 3

    def test_after_a_restart_a_generation_is_newer_than_what_any_member_knows(self, room: Room):
        known = room.join("a")["generation"]
        room.clock.ms = 0  # the clock went back by more than the restart took
        room.begin()
        first = room.ask("group_join", b"a", **ASKED, member="a", generation=known - 1)
        second = room.ask("group_join", b"b", **ASKED, member="b", generation=known)
        room.advance(1_000)
        told = room.answers[first]
        assert told == room.answers[second]
        assert told["generation"] > known

    def test_a_generation_that_no_group_can_reach_is_refused(self, room: Room):
        with pytest.raises(GroupRefused) as error:
            room.join("a", generation=1 << 62)
        assert refusal(error) is Refusal.ILLEGAL_QUESTION

    def test_there_are_not_more_members_over_all_groups_than_allowed(self):
        membership = Membership(
            lambda _: 1,
            expires_ms=EXPIRES_MS,
            first_generation=lambda _: 1,
            locks_of=lambda _: QueueLocks(1_000),
            of_all_max=2,
        )

        def join(group: str, member: str) -> None:
            membership.join(group, JoinRequest(member, member, "clustering", "average", {}), 0)

        join("g", "a")
        join("h", "a")
        with pytest.raises(GroupRefused) as error:
            join("i", "a")
        assert refusal(error) is Refusal.TOO_MANY_MEMBERS
        assert membership.get("i") is None
        join("h", "a")
        membership.leave("g", "a")
        join("i", "a")

    def test_there_are_not_more_groups_than_allowed(self):
        groups = Groups(auto_create=True, groups_max=2)
        groups.joined("a")
        groups.configure("b", {})
        groups.joined("a")
        with pytest.raises(GroupRefused) as error:
            groups.joined("c")
        assert refusal(error) is Refusal.TOO_MANY_GROUPS


class TestWatching:
    def test_a_watch_is_held_until_the_group_changes(self, room: Room):
        told = room.join("a")
        number = room.watch("a", told["generation"])
        assert number not in room.answers
        room.join("b")
        assert room.answers[number]["members"] == ["a", "b"]

    def test_a_watch_of_an_old_generation_is_answered_at_once(self, room: Room):
        told = room.join("a")
        room.join("b")
        assert room.answers[room.watch("a", told["generation"])]["members"] == ["a", "b"]

    def test_a_watch_ends_by_itself_and_keeps_its_member_alive(self, room: Room):
        generation = room.join("a")["generation"]
        for _ in range(5):
            number = room.watch("a", generation)
            room.advance(EXPIRES_MS // 2 - 1)
            assert number not in room.answers
            room.advance(1)
            assert room.answers[number]["generation"] == generation

    def test_while_members_wait_nothing_is_due_but_the_look_at_topics(self, room: Room):
        for number in range(50):
            generation = room.join(f"m{number}")["generation"]
        for number in range(50):
            room.watch(f"m{number}", generation)
        room.advance(10)
        assert room.service.due_ms - room.clock.ms > 100

    def test_without_members_nothing_is_due_for_longer_than_a_rest(self, room: Room):
        """Else an idle serve never sleeps without the interpreter."""
        for _ in range(8):
            room.clock.ms = room.service.due_ms
            room.cycle()
            assert room.service.due_ms - room.clock.ms >= REST_MAX_MS

    def test_the_first_member_brings_the_look_at_topics_nearer(self, room: Room):
        room.clock.ms = room.service.due_ms
        room.cycle()
        room.join("a")
        assert room.service.due_ms - room.clock.ms <= CHECK_EVERY_MS

    def test_a_second_watch_of_a_member_answers_the_first(self, room: Room):
        generation = room.join("a")["generation"]
        first, second = room.watch("a", generation), room.watch("a", generation)
        assert first in room.answers
        assert second not in room.answers

    def test_a_stranger_is_told_to_join(self, room: Room):
        for number in (room.watch("a", 1), room.watch("a", 1, group="nobodys")):
            error = room.refused[number]
            assert isinstance(error, GroupRefused)
            assert error.refusal is Refusal.UNKNOWN_MEMBER


class TestLeaving:
    def test_the_others_are_told(self, room: Room):
        room.join("a")
        number = room.watch("a", room.join("b")["generation"])
        room.told("group_leave", group="g", member="b", instance="b")
        assert room.answers[number]["members"] == ["a"]

    def test_somebody_else_cannot_say_it(self, room: Room):
        room.join("a")
        with pytest.raises(GroupRefused) as error:
            room.told("group_leave", group="g", member="a", instance="another")
        assert refusal(error) is Refusal.MEMBER_TAKEN

    def test_silence_is_leaving(self, room: Room):
        room.join("a")
        generation = room.join("b")["generation"]
        room.advance(EXPIRES_MS - 1_000)
        number = room.watch("a", generation)
        room.advance(1_000)
        assert room.answers[number]["members"] == ["a"]
        assert room.answers[number]["generation"] == generation + 1

    def test_who_is_gone_when_told_has_left_and_the_others_hear_of_it(self, room: Room):
        room.join("a")
        generation = room.join("b")["generation"]
        first, _ = room.watch("a", generation), room.watch("b", generation)
        room.gone.add(b"b")
        room.join("c")  # both are told; b cannot be
        assert room.answers[first]["members"] == ["a", "b", "c"]
        again = room.watch("a", room.answers[first]["generation"])
        assert room.answers[again]["members"] == ["a", "c"]

    def test_a_link_that_ended_is_leaving(self, room: Room):
        room.join("a")
        number = room.watch("a", room.join("b")["generation"])
        room.service.gone(b"b")
        room.cycle()
        assert room.answers[number]["members"] == ["a"]


class TestStarting:
    def test_questions_wait_until_the_queues_are_as_long_as_they_were(self, room: Room):
        room.settled = False
        room.begin()
        number = room.ask("group_join", group="g", member="a", topics={"t": {"expression": "*", "type": "TAG"}})
        room.advance(1_000)
        assert number not in room.answers
        room.settled = True
        room.advance(10)
        assert room.answers[number]["members"] == ["a"]

    def test_but_not_for_ever(self, room: Room):
        room.settled = False
        room.begin()
        number = room.ask("group_list")
        room.advance(5_000)
        assert room.answers[number]["groups"] == []

    def test_members_that_come_back_are_told_when_all_are_there(self, room: Room):
        room.join("a")
        generation = room.join("b")["generation"]
        room.begin()
        facts = {"group": "g", "topics": {"t": {"expression": "*", "type": "TAG"}}, "generation": generation}
        numbers = [room.ask("group_join", name.encode(), member=name, **facts) for name in "ab"]
        assert not room.answers.keys() & set(numbers)
        room.advance(1_000)
        assert [room.answers[number]["members"] for number in numbers] == [["a", "b"], ["a", "b"]]

    def test_a_stop_answers_whoever_waits(self, room: Room):
        number = room.watch("a", room.join("a")["generation"])
        room.service.close()
        assert room.answers[number]["members"] == ["a"]
