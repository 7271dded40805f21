"""What a group of RocketMQ's members may consume twice, and what it may not."""

import pytest

from .group_history import History


def told(*lines: str) -> History:
    history = History()
    for line in lines:
        history.hear(line)
    return history


def calm() -> History:
    """Of two members each has read a queue: three messages of queue 0, one of queue 1. All but one are committed."""
    history = told("joined a", "joined b", "began a 0 0", "began b 1 0")
    for place, body in (("a 0 0", "m0"), ("b 1 0", "m1"), ("a 0 1", "m2"), ("a 0 2", "m3")):
        for line in (f"tried {body}", f"acknowledged {body}", f"consumed {place} {body}"):
            history.hear(line)
    assert history.is_divided()
    history.calm({0: 2, 1: 1})
    return history


def hear(history: History, *lines: str) -> list[str]:
    for line in lines:
        history.hear(line)
    return history.breaches


def test_what_came_once_is_no_double() -> None:
    history = calm()
    assert not history.breaches
    assert not history.lost()
    assert not history.stored_again()
    assert [change.again for change in history.changes] == [0]


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    history = calm()
    hear(history, "tried m4", "acknowledged m4")
    assert history.lost() == {"m4"}


def test_after_a_change_what_was_not_committed_may_come_again() -> None:
    history = calm()
    history.change("a leaves")
    assert not hear(history, "ended a 0", "left a", "began b 0 2", "consumed b 0 2 m3")
    assert [(change.what, change.again) for change in history.changes] == [("the members come", 0), ("a leaves", 1)]


def test_a_queue_is_not_begun_before_what_was_committed() -> None:
    history = calm()
    history.change("a leaves")
    (breach,) = hear(history, "left a", "began b 0 1")
    assert breach == "b began queue 0 at 1, though 2 was committed"


def test_what_was_committed_does_not_come_again() -> None:
    history = calm()
    history.change("a leaves")
    assert "m2, at 1 of queue 0, came to b again, though 2 was committed" in hear(
        history, "left a", "began b 0 1", "consumed b 0 1 m2"
    )


@pytest.mark.parametrize("changes", [True, False])
def test_in_one_turn_each_message_comes_once(changes: bool) -> None:
    history = calm()
    if changes:
        history.change("a failover")
    assert "m3, at 2 of queue 0, came to a twice in one turn" in hear(history, "consumed a 0 2 m3")


def test_while_nothing_changes_nothing_comes_again() -> None:
    assert "m3, at 2 of queue 0, came to b again, and nothing had changed" in hear(
        calm(), "began b 0 2", "consumed b 0 2 m3"
    )


def test_a_member_reads_what_it_has_begun() -> None:
    assert hear(calm(), "consumed b 0 3 m4") == ["m4, at 3 of queue 0, came to b, who had not begun there"]


def test_a_place_in_a_queue_holds_one_message() -> None:
    history = calm()
    history.change("a failover")
    assert hear(history, "began b 0 2", "consumed b 0 2 m4") == [
        "m4, at 2 of queue 0, came to b, and m3 was there before"
    ]


def test_a_message_is_stored_as_often_as_it_was_sent_at_most() -> None:
    history = calm()
    hear(history, "tried m4", "tried m4", "consumed a 0 3 m4", "consumed b 1 1 m4", "consumed a 0 4 m0")
    assert history.stored_again() == {"m4": 1, "m0": 1}
    assert history.breaches == ["m0 was sent 1 times, and stored 2 times"]


def test_queues_are_divided_when_each_has_one_reader_and_each_member_a_queue() -> None:
    history = calm()
    hear(history, "ended a 0")
    assert not history.is_divided(), "nobody reads queue 0"
    hear(history, "began b 0 3")
    assert not history.is_divided(), "a reads nothing"
    hear(history, "left a")
    assert history.is_divided()
    hear(history, "joined a", "began a 0 3")
    assert not history.is_divided(), "two read queue 0"


def test_queues_are_divided_when_who_began_anew_has_come_to_where_the_group_was() -> None:
    history = calm()
    history.change("a leaves")
    hear(history, "left a", "began b 0 2")
    assert not history.is_divided()
    hear(history, "consumed b 0 2 m3")
    assert history.is_divided()
