"""Queue locks: one member at a time, for as long as it renews them."""

import pytest

from towline.log.files.config_file import ConfigFile
from towline.serve.groups.errors import GroupRefused, Refusal
from towline.serve.groups.locks import QueueLocks

from .faces import Room

LIVE_MS = 60_000
ONE, TWO = ("t", 0), ("t", 1)
A, B = ("a", "of a"), ("b", "of b")


def test_a_lock_is_one_members_until_its_time_is_over():
    locks = QueueLocks(LIVE_MS)
    assert locks.lock(A, [ONE, TWO], 0) == [ONE, TWO]
    assert locks.lock(B, [ONE], LIVE_MS - 1) == []
    assert locks.lock(B, [ONE], LIVE_MS) == [ONE]
    assert locks.lock(A, [ONE, TWO], LIVE_MS) == [TWO]


def test_asking_again_renews():
    locks = QueueLocks(LIVE_MS)
    locks.lock(A, [ONE], 0)
    locks.lock(A, [ONE], LIVE_MS - 1)
    assert locks.lock(B, [ONE], 2 * LIVE_MS - 2) == []
    assert locks.holder(ONE, 2 * LIVE_MS - 2) == "a"
    assert locks.holder(ONE, 2 * LIVE_MS - 1) is None


def test_only_its_member_gives_it_up():
    locks = QueueLocks(LIVE_MS)
    locks.lock(A, [ONE], 0)
    locks.unlock(B, [ONE, TWO])
    assert locks.holder(ONE, 1) == "a"
    locks.unlock(A, [ONE])
    assert locks.lock(B, [ONE], 1) == [ONE]


def test_leaving_frees_and_what_is_over_is_forgotten():
    locks = QueueLocks(LIVE_MS)
    locks.lock(A, [ONE], 0)
    locks.lock(B, [TWO], 0)
    locks.leave(A)
    locks.evict_expired(1)
    assert len(locks) == 1
    locks.evict_expired(LIVE_MS)
    assert len(locks) == 0


class TestThroughQuestions:
    def test_who_leaves_in_order_frees_at_once_and_who_dies_after_its_time(self, room: Room):
        for name in "abc":
            room.join(name)
        assert room.lock("a", [["t", 0]]) == [["t", 0]]
        assert room.lock("b", [["t", 1]]) == [["t", 1]]
        room.told("group_leave", group="g", member="a", instance="a")
        room.service.gone(b"b")
        assert room.lock("c", [["t", 0], ["t", 1]]) == [["t", 0]]
        for _ in range(LIVE_MS // 5_000):
            room.join("c")
            room.advance(5_000)
        assert room.lock("c", [["t", 1]]) == [["t", 1]]

    def test_another_process_with_the_name_of_a_dead_one_waits_for_its_locks(self, room: Room):
        def lock(instance: str) -> list[list[object]]:
            return room.lock("a", [["t", 0]], instance=instance)

        room.join("a", instance="first")
        assert lock("first") == [["t", 0]]
        room.service.gone(b"a")
        room.join("a", instance="second")
        room.told("group_unlock", group="g", member="a", instance="second", queues=[["t", 0]])
        assert lock("second") == []
        room.service.gone(b"a")
        room.join("a", instance="first")
        assert lock("first") == [["t", 0]]
        room.told("group_leave", group="g", member="a", instance="first")
        room.join("a", instance="second")
        assert lock("second") == [["t", 0]]

    def test_bad_ones_are_refused(self, room: Room):
        room.join("a")
        for queues, refusal in (
            ([["t", 4]], Refusal.UNKNOWN_QUEUE),
            ([["nowhere", 0]], Refusal.UNKNOWN_QUEUE),
            ([["t"]], Refusal.ILLEGAL_QUESTION),
            ("t", Refusal.ILLEGAL_QUESTION),
        ):
            with pytest.raises(GroupRefused) as error:
                room.lock("a", queues)
            assert error.value.refusal is refusal
        with pytest.raises(GroupRefused) as error:
            room.lock("stranger", [["t", 0]])
        assert error.value.refusal is Refusal.UNKNOWN_MEMBER

    def test_bad_claims_are_refused(self, room: Room):
        room.join("a")
        with pytest.raises(GroupRefused) as error:
            room.lock("a", [["t", 0]], claims=["t"])
        assert error.value.refusal is Refusal.ILLEGAL_QUESTION

    def test_what_is_still_in_hand_stays_locked_when_its_member_leaves(self, room: Room):
        for name in "ab":
            room.join(name)
        room.lock("a", [["t", 0], ["t", 1]])
        room.told("group_leave", group="g", member="a", instance="a", busy=[["t", 1]])
        assert room.lock("b", [["t", 0], ["t", 1]]) == [["t", 0]]


class TestAfterARestart:
    """Locks are in memory; who held one goes on until its time is over, whether it is heard of or not."""

    def _restarted(self, room: Room) -> None:
        room.join("a")
        room.lock("a", [["t", 0], ["t", 1]])
        room.begin()
        room.join("a")
        room.join("b")

    def _heard(self, room: Room, ms: int) -> None:
        end = room.clock.ms + ms
        while room.clock.ms < end:
            room.advance(min(5_000, end - room.clock.ms))
            room.join("a")
            room.join("b")

    def test_only_who_held_a_queue_gets_it_until_every_lock_from_before_is_over(self, room: Room):
        self._restarted(room)
        assert room.lock("b", [["t", 0], ["t", 1], ["t", 2]]) == []
        assert room.lock("a", [["t", 0], ["t", 2]], claims=[["t", 0]]) == [["t", 0]]
        self._heard(room, LIVE_MS - 1)
        assert room.lock("b", [["t", 1]]) == []
        self._heard(room, 1)
        assert room.lock("b", [["t", 1], ["t", 2]]) == [["t", 1], ["t", 2]]

    def test_a_claim_is_worth_nothing_against_a_lock_that_is_known(self, room: Room):
        self._restarted(room)
        assert room.lock("a", [["t", 0]], claims=[["t", 0]]) == [["t", 0]]
        assert room.lock("b", [["t", 0]], claims=[["t", 0]]) == []

    def test_what_its_holder_gives_back_is_known_to_be_free(self, room: Room):
        self._restarted(room)
        own = {"group": "g", "member": "a", "instance": "a", "queues": [["t", 0], ["t", 1]]}
        room.told("group_unlock", **own, claims=[["t", 0]])
        room.advance(5_000)
        room.join("b")
        assert room.lock("b", [["t", 0], ["t", 1]]) == [["t", 0]]
        assert room.lock("a", [["t", 1]], claims=[["t", 1]]) == [["t", 1]]
        room.told("group_leave", group="g", member="a", instance="a")
        assert room.lock("b", [["t", 1]]) == [["t", 1]]

    def test_a_group_that_nobody_was_in_before_does_not_wait(self, room: Room):
        room.begin()
        room.join("a")
        assert room.lock("a", [["t", 0]]) == [["t", 0]]

    def test_where_another_node_was_master_before_every_group_may_have_locks(self, room: Room):
        room.succeeds = True
        room.begin()
        room.join("a")
        assert room.lock("a", [["t", 0], ["t", 1]], claims=[["t", 1]]) == [["t", 1]]
        self._heard(room, LIVE_MS)
        assert room.lock("a", [["t", 0]]) == [["t", 0]]

    def test_a_master_that_was_deposed_locks_nothing(self, room: Room):
        room.join("a")
        assert room.lock("a", [["t", 0]]) == [["t", 0]]
        room.leads = False
        with pytest.raises(GroupRefused) as error:
            room.lock("a", [["t", 0]])
        assert error.value.refusal is Refusal.NOT_MASTER

    def test_only_a_member_unlocks_and_only_queues_that_are_there(self, room: Room):
        room.join("a")
        queues = [["t", 0], ["t", 1_000], ["nowhere", 0]]
        room.lock("a", [["t", 0]])
        for strange in ({"member": "b", "instance": "b"}, {"member": "a", "instance": "b"}):
            with pytest.raises(GroupRefused):
                room.told("group_unlock", group="g", queues=queues, **strange)
        group = room.service._members.get("g")
        room.told("group_unlock", group="g", member="a", instance="a", queues=queues, claims=queues)
        assert group is not None
        assert len(group.locks) == 1

    def test_a_first_lock_is_granted_when_the_start_after_this_one_would_know_of_it(self, room: Room):
        room.join("a")
        number = room.ask("group_lock", group="g", member="a", instance="a", queues=[["t", 0]])
        room.until_answered(number)
        assert "g" in (ConfigFile(room.store.config / "subscriptionGroup.json").load() or {})["subscriptionGroupTable"]
