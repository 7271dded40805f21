"""What op records of other brokers mean, and when a check is due."""

import pytest

from towline.format.record.transactions import Half, Op, Outcome
from towline.master.schedule.transactions.ledger import CheckRules, EndRefusal, Ledger, OpenTransaction


def half(offset: int, *, first: int = -1, checks: int = 0, stored_ms: int = 1000, immunity_ms: int = -1) -> Half:
    first = offset if first < 0 else first
    return Half(first, offset, 100 * offset, "g", f"key{first}", "t", 0, stored_ms, checks, immunity_ms)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(CheckRules(time_out=6000, check_max=15), 0, 0)


def test_several_offsets_of_one_op_record_end_as_many_transactions(ledger: Ledger) -> None:
    for offset in range(3):
        ledger.add_half(half(offset))
    ledger.add_op(0, Op((0, 2), -1, Outcome.ENDED))
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_ENDED
    assert isinstance(ledger.find(1, "g", "key1"), OpenTransaction)
    assert ledger.find(2, "g", "key2") is EndRefusal.ALREADY_ENDED
    assert ledger.floors == (1, 0), "the op record names a half that is not before the floor yet"
    ledger.add_op(1, Op((1,), -1, Outcome.ENDED))
    assert ledger.floors == (3, 2)


def test_an_op_record_that_names_a_copy_ends_the_transaction(ledger: Ledger) -> None:
    ledger.add_half(half(0))
    ledger.add_half(half(1, first=0, checks=1))
    assert ledger.floors == (1, 0)
    ledger.add_op(0, Op((1,), -1, Outcome.ENDED))
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_ENDED
    assert len(ledger) == 0


def test_how_a_transaction_ended_is_not_forgotten_for_a_record_that_does_not_say(ledger: Ledger) -> None:
    ledger.add_half(half(0))
    ledger.ended(0, Outcome.COMMITTED)
    ledger.add_op(0, Op((0,), -1, Outcome.ENDED))
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_COMMITTED


def test_an_end_that_put_has_answered_moves_no_floor_until_its_op_record_is_read(ledger: Ledger) -> None:
    for offset in range(2):
        ledger.add_half(half(offset))
    ledger.ended(0, Outcome.COMMITTED)
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_COMMITTED
    assert (len(ledger), ledger.get(0), list(ledger.before(1 << 40))) == (1, None, [ledger.get(1)])
    assert not [found for found in ledger.due(1 << 40) if found.half.first == 0]
    assert ledger.floors == (0, 0)
    ledger.add_op(0, Op((0,), 0, Outcome.COMMITTED))
    assert ledger.floors == (1, 1)
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_COMMITTED


def test_who_ended_a_transaction_is_told_so_and_a_stranger_is_not(ledger: Ledger) -> None:
    ledger.add_half(half(0))
    ledger.add_op(0, Op((0,), 0, Outcome.COMMITTED))
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_COMMITTED
    assert ledger.find(0, "other", "key0") is None, "its record says whose it is"
    assert ledger.find(0, "g", "another key") is None


def test_whom_nobody_has_asked_about_is_forgotten_when_it_ends(ledger: Ledger) -> None:
    for offset in range(3):
        ledger.add_half(half(offset))
        ledger.ask(half(offset))
    ledger.ended(0, Outcome.COMMITTED)
    ledger.add_op(0, Op((1,), 1, Outcome.ROLLED_BACK))
    asked = ledger.next_asked("g")
    assert asked is not None
    assert (asked.half.first, ledger.next_asked("g")) == (2, None)
    ledger.ask(half(1))
    assert ledger.next_asked("g") is None


def test_a_half_that_comes_after_its_op_record_stays_ended(ledger: Ledger) -> None:
    ledger.add_op(0, Op((0,), 0, Outcome.ROLLED_BACK))
    ledger.add_half(half(0))
    assert ledger.find(0, "g", "key0") is EndRefusal.ALREADY_ROLLED_BACK
    assert ledger.floors == (1, 1)


@pytest.mark.parametrize(
    ("made", "now_ms", "due"),
    [
        (half(0), 6999, False),
        (half(0), 7000, True),
        (half(0), 999, True),  # the clock was set back
        (half(0, immunity_ms=20_000), 20_999, False),
        (half(0, immunity_ms=20_000), 21_000, True),
        (half(0, immunity_ms=0), 1000, True),
        (half(0, checks=1), 1001, True),  # it was old enough for the first check
    ],
)
def test_when_a_check_is_due(ledger: Ledger, made: Half, now_ms: int, due: bool) -> None:
    ledger.add_half(made)
    assert bool(list(ledger.due(now_ms))) is due


def test_what_is_being_stored_is_not_checked_and_is_again_when_it_was_not_stored(ledger: Ledger) -> None:
    ledger.add_half(half(0))
    found = ledger.get(0)
    assert found is not None
    found.busy = True
    assert not list(ledger.due(10_000))
    ledger.released(0)
    assert list(ledger.due(10_000)) == [found]


def test_a_copy_of_nobodys_half_takes_no_place_of_another(ledger: Ledger) -> None:
    """What it says it copies has left the log, so its word cannot be checked."""
    for offset, key in ((1000, "a"), (1001, "b"), (1002, "a")):
        first = 1002 if offset == 1002 else 5
        ledger.add_half(Half(first, offset, offset, "g", key, "t", 0, 1000, 0, -1))
    copy, forged, twin = (ledger.find(first, "g", key) for first, key in ((5, "a"), (1001, "b"), (1002, "a")))
    assert isinstance(copy, OpenTransaction)
    assert isinstance(forged, OpenTransaction)
    assert isinstance(twin, OpenTransaction)
    ledger.ended(1001, Outcome.COMMITTED)
    assert ledger.twins(twin) == [copy, twin]
