"""Queue locks: one member at a time, for as long as it renews them."""

import pytest

from serve.groups.errors import GroupRefused, Refusal
from serve.groups.locks import QueueLocks
from tests.serve.groups.faces import Room

LIVE_MS = 60_000
ONE, TWO = ("t", 0), ("t", 1)


def test_a_lock_is_one_members_until_its_time_is_over():
    locks = QueueLocks(LIVE_MS)
    assert locks.lock("a", [ONE, TWO], 0) == [ONE, TWO]
    assert locks.lock("b", [ONE], LIVE_MS - 1) == []
    assert locks.lock("b", [ONE], LIVE_MS) == [ONE]
    assert locks.lock("a", [ONE, TWO], LIVE_MS) == [TWO]


def test_asking_again_renews():
    locks = QueueLocks(LIVE_MS)
    locks.lock("a", [ONE], 0)
    locks.lock("a", [ONE], LIVE_MS - 1)
    assert locks.lock("b", [ONE], 2 * LIVE_MS - 2) == []
    assert locks.holder(ONE, 2 * LIVE_MS - 2) == "a"
    assert locks.holder(ONE, 2 * LIVE_MS - 1) is None


def test_only_its_member_gives_it_up():
    locks = QueueLocks(LIVE_MS)
    locks.lock("a", [ONE], 0)
    locks.unlock("b", [ONE, TWO])
    assert locks.holder(ONE, 1) == "a"
    locks.unlock("a", [ONE])
    assert locks.lock("b", [ONE], 1) == [ONE]


def test_leaving_frees_and_what_is_over_is_forgotten():
    locks = QueueLocks(LIVE_MS)
    locks.lock("a", [ONE], 0)
    locks.lock("b", [TWO], 0)
    locks.leave("a")
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
