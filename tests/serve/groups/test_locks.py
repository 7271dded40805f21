"""Queue locks: one member at a time, for as long as it renews them."""

import pytest

from serve.groups.errors import GroupRefused, Refusal
from serve.groups.locks import QueueLocks
from tests.serve.groups.faces import Room

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
    assert len(locks) == 1
    locks.forget(LIVE_MS)
    assert len(locks) == 0


class TestThroughQuestions:
    def _lock(self, room: Room, member: str, queues: list[list[object]]) -> list[list[object]]:
        told = room.told("group_lock", group="g", member=member, instance=member, queues=queues)
        return list(told["locked"])

    def test_who_leaves_in_order_frees_at_once_and_who_dies_after_its_time(self, room: Room):
        for name in "abc":
            room.join(name)
        assert self._lock(room, "a", [["t", 0]]) == [["t", 0]]
        assert self._lock(room, "b", [["t", 1]]) == [["t", 1]]
        room.told("group_leave", group="g", member="a", instance="a")
        room.service.gone(b"b")
        assert self._lock(room, "c", [["t", 0], ["t", 1]]) == [["t", 0]]
        for _ in range(LIVE_MS // 5_000):
            room.join("c")
            room.advance(5_000)
        assert self._lock(room, "c", [["t", 1]]) == [["t", 1]]

    def test_another_process_with_the_name_of_a_dead_one_waits_for_its_locks(self, room: Room):
        def lock(instance: str) -> list[list[object]]:
            told = room.told("group_lock", group="g", member="a", instance=instance, queues=[["t", 0]])
            return list(told["locked"])

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
                room.told("group_lock", group="g", member="a", instance="a", queues=queues)
            assert error.value.refusal is refusal
        with pytest.raises(GroupRefused) as error:
            self._lock(room, "stranger", [["t", 0]])
        assert error.value.refusal is Refusal.UNKNOWN_MEMBER
