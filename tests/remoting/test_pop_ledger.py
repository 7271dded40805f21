"""The ledger of popped messages: what is out, what is done, what comes again."""

import random

from towline.remoting.pop_ledger import PopLedger

ALWAYS = 1 << 40


def popped(
    ledger: PopLedger, count: int, *, pop_time: int = 1, until_ms: int = 100, ordered: bool = False
) -> list[int]:
    """The offsets of the next messages, now out; the record of each stands at ten times its offset."""
    offsets = list(range(ledger.next, ledger.next + count))
    places = [10 * offset for offset in offsets]
    ledger.add(offsets, places, ledger.next + count, pop_time, until_ms, ordered=ordered)
    return offsets


def test_what_is_done_ends_at_the_first_message_that_is_out() -> None:
    ledger = PopLedger(5)
    assert ledger.done == 5
    popped(ledger, 3)
    assert ledger.done == 5
    assert ledger.ack(6, 1)
    assert ledger.done == 5
    assert ledger.ack(5, 1)
    assert ledger.done == 7
    assert ledger.ack(7, 1)
    assert ledger.done == ledger.next == 8


def test_messages_that_are_not_for_the_group_are_done_when_all_before_them_are() -> None:
    ledger = PopLedger(0)
    popped(ledger, 1)
    ledger.skip(50)
    assert ledger.done == 0
    assert ledger.ack(0, 1)
    assert ledger.done == 50


def test_an_ack_counts_once_and_for_its_own_pop_alone() -> None:
    ledger = PopLedger(0)
    popped(ledger, 1, pop_time=7)
    assert not ledger.ack(0, 6)
    assert not ledger.ack(1, 7)
    assert ledger.ack(0, 7)
    assert not ledger.ack(0, 7)


def test_what_is_overdue_is_told_once_and_is_done_when_it_stands_in_the_retry_topic() -> None:
    ledger = PopLedger(0)
    popped(ledger, 2, until_ms=100)
    assert ledger.take_overdue(99, 10) == []
    found = ledger.take_overdue(100, 10)
    assert [(offset, each.place) for offset, each in found] == [(0, 0), (1, 10)]
    assert ledger.take_overdue(ALWAYS, 10) == []
    assert ledger.done == 0
    assert ledger.returned(*found[0])
    assert ledger.done == 1
    ledger.not_returned(*found[1], 300)
    assert ledger.take_overdue(299, 10) == []
    assert [offset for offset, _ in ledger.take_overdue(300, 10)] == [1]


def test_no_more_is_told_at_once_than_is_asked_for() -> None:
    ledger = PopLedger(0)
    popped(ledger, 5)
    assert [offset for offset, _ in ledger.take_overdue(100, 2)] == [0, 1]
    assert [offset for offset, _ in ledger.take_overdue(100, 10)] == [2, 3, 4]


def test_a_message_that_was_extended_is_overdue_at_its_new_time_and_has_a_new_handle() -> None:
    ledger = PopLedger(0)
    popped(ledger, 1, pop_time=1, until_ms=100)
    assert ledger.extend(0, 1, 2, 200)
    assert ledger.take_overdue(199, 10) == []
    assert not ledger.ack(0, 1)
    assert not ledger.extend(0, 1, 3, 400)
    assert [offset for offset, _ in ledger.take_overdue(200, 10)] == [0]


def test_an_ack_that_comes_while_a_message_returns_makes_it_done() -> None:
    ledger = PopLedger(0)
    popped(ledger, 1)
    (found,) = ledger.take_overdue(100, 10)
    assert ledger.ack(0, 1)
    assert not ledger.returned(*found)
    assert ledger.done == 1


def test_an_ordered_pop_waits_for_the_one_before_it_or_the_end_of_its_time() -> None:
    ledger = PopLedger(0)
    ledger.rewind("a")
    popped(ledger, 2, until_ms=100, ordered=True)
    assert ledger.is_blocked("b", 50)
    assert not ledger.is_blocked("a", 50), "the same attempt gets the same messages"
    assert not ledger.is_blocked("b", 100)
    assert ledger.ack(0, 1)
    assert ledger.is_blocked("b", 50)
    assert ledger.ack(1, 1)
    assert not ledger.is_blocked("b", 50)


def test_an_ordered_pop_begins_at_the_first_message_that_is_out_and_counts() -> None:
    ledger = PopLedger(0)
    ledger.rewind("a")
    popped(ledger, 3, ordered=True)
    assert ledger.ack(0, 1)
    ledger.rewind("b")
    assert ledger.next == ledger.done == 1
    assert popped(ledger, 3, pop_time=2, ordered=True) == [1, 2, 3]
    assert ledger.times([1, 2, 3]) == {1: 1, 2: 1}
    ledger.rewind("b")
    popped(ledger, 3, pop_time=3, ordered=True)
    assert ledger.times([1, 2, 3]) == {1: 1, 2: 1}, "the same attempt is not counted twice"


def test_messages_of_an_ordered_pop_never_go_to_the_retry_topic() -> None:
    ledger = PopLedger(0)
    ledger.rewind("")
    popped(ledger, 2, ordered=True)
    assert ledger.take_overdue(ALWAYS, 10) == []


def test_whatever_happens_nothing_that_is_out_is_passed() -> None:
    chance = random.Random(61)
    ledger = PopLedger(0)
    out: dict[int, int] = {}
    for now in range(20_000):
        match chance.randrange(5):
            case 0 | 1 if len(out) < 500:
                count = chance.randrange(1, 5)
                out |= dict.fromkeys(popped(ledger, count, pop_time=now, until_ms=now + chance.randrange(300)), now)
            case 2 if out:
                offset = chance.choice(list(out))
                assert ledger.ack(offset, out.pop(offset))
            case 3 if out:
                offset = chance.choice(list(out))
                assert ledger.extend(offset, out[offset], now, now + chance.randrange(300))
                out[offset] = now
            case _:
                for offset, each in ledger.take_overdue(now, 10):
                    if chance.random() < 0.5:
                        assert ledger.returned(offset, each)
                        del out[offset]
                    else:
                        ledger.not_returned(offset, each, now + 10)
        assert len(ledger) == len(out)
        assert ledger.done == min(out, default=ledger.next)
