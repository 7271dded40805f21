"""The ledger against plain lists: whatever is stored, ended, checked and started again, its answers are those of the
whole history, and its floors let a new ledger know as much, also when the log lost what was not dispatched yet."""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from towline.format.record.transactions import Half, Op, Outcome
from towline.master.schedule.transactions.ledger import CheckRules, EndRefusal, Ledger, OpenTransaction

TIME_OUT = 100
CHECK_MAX = 3
ALREADY = {
    Outcome.COMMITTED: EndRefusal.ALREADY_COMMITTED,
    Outcome.ROLLED_BACK: EndRefusal.ALREADY_ROLLED_BACK,
    Outcome.PUT_ASIDE: EndRefusal.ALREADY_PUT_ASIDE,
}


@dataclass
class Known:
    """A transaction as the test remembers it."""

    newest: Half
    outcome: Outcome | None = None
    restarted_since: bool = field(default=False)  # it ended, and its op record was through, before a start


class ALedgerKnowsWhatTheLogHolds(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.halves: list[Half] = []
        self.ops: list[Op] = []
        self.known: dict[int, Known] = {}
        self.now = 1000
        self.floors = (0, 0)
        self.dispatched = 0  # op records that can be read
        self.ledger = Ledger(CheckRules(TIME_OUT, CHECK_MAX), 0, 0)

    def read(self) -> None:
        """Everything that was dispatched, halves first."""
        for half in self.halves[self.ledger.half_next :]:
            self.ledger.add_half(half)
        for offset in range(self.ledger.op_next, self.dispatched):
            self.ledger.add_op(offset, self.ops[offset])

    def store(self, group: str, key: str, first: int | None = None, checks: int = 0) -> Half:
        offset = len(self.halves)
        half = Half(offset if first is None else first, offset, 100 * offset, group, key, "t", 0, self.now, checks, -1)
        self.halves.append(half)
        return half

    @property
    def unended(self) -> list[int]:
        return [first for first, known in self.known.items() if known.outcome is None]

    @rule()
    def what_is_stored_is_dispatched(self) -> None:
        self.dispatched = len(self.ops)

    @rule(group=st.sampled_from(["a", "b"]))
    def a_half_is_stored(self, group: str) -> None:
        half = self.store(group, f"key{len(self.halves)}")
        self.known[half.first] = Known(half)

    @rule(data=st.data(), outcome=st.sampled_from([Outcome.COMMITTED, Outcome.ROLLED_BACK]), message=st.booleans())
    @precondition(lambda self: self.unended)
    def one_ends(self, data: st.DataObject, outcome: Outcome, message: bool) -> None:
        """`message`: the answer came; otherwise the op record is found by reading."""
        self.read()
        first = data.draw(st.sampled_from(self.unended))
        known = self.known[first]
        found = self.ledger.find(first, known.newest.group, known.newest.unique_key)
        assert isinstance(found, OpenTransaction)
        assert not found.busy
        found.busy = True
        self.ops.append(Op((known.newest.offset,), first, outcome))
        known.outcome = outcome
        if message:
            self.ledger.ended(first, outcome)
        else:
            self.dispatched = len(self.ops)

    @rule(later=st.integers(0, 150))
    def a_round_of_checks(self, later: int) -> None:
        self.read()
        self.now += later
        for found in list(self.ledger.due(self.now)):
            known = self.known[found.half.first]
            assert known.newest == found.half
            found.busy = True
            if self.ledger.is_check_limit_reached(found.half):
                assert found.half.checks == CHECK_MAX
                self.ops.append(Op((found.half.offset,), found.half.first, Outcome.PUT_ASIDE))
                known.outcome = Outcome.PUT_ASIDE
                self.dispatched = len(self.ops)
            else:
                half = found.half
                known.newest = self.store(half.group, half.unique_key, half.first, half.checks + 1)

    @rule()
    def offsets_are_saved(self) -> None:
        self.read()
        floors = self.ledger.floors
        assert floors[0] >= self.floors[0]
        assert floors[1] >= self.floors[1]
        self.floors = floors

    @rule()
    def a_half_that_many_op_records_lie_behind_is_moved(self) -> None:
        self.read()
        found = self.ledger.oldest
        if found is not None and found.outcome is None:
            half = found.half
            kept = self.store(half.group, half.unique_key, half.first, half.checks)
            self.halves[-1] = self.known[half.first].newest = replace(kept, stored_ms=half.stored_ms)

    @rule(saved=st.booleans())
    def a_start_without_what_was_not_dispatched(self, saved: bool) -> None:
        """Whoever was told of an end that is lost tells it again when asked: the transaction is open."""
        if saved:
            self.offsets_are_saved()
        for op in self.ops[self.dispatched :]:
            self.known[op.first].outcome = None
        del self.ops[self.dispatched :]
        self.a_new_start()

    @rule()
    def a_new_start(self) -> None:
        self.dispatched = len(self.ops)
        self.ledger = Ledger(CheckRules(TIME_OUT, CHECK_MAX), *self.floors)
        for known in self.known.values():
            known.restarted_since = known.outcome is not None

    @invariant()
    def the_ledger_is_right(self) -> None:
        self.read()
        assert len(self.ledger) == len(self.unended)
        for first, known in self.known.items():
            group, key = known.newest.group, known.newest.unique_key
            found = self.ledger.find(first, group, key)
            if known.outcome is None:
                assert isinstance(found, OpenTransaction)
                assert found.half == known.newest
                assert self.ledger.find(first, "stranger", key) is EndRefusal.ANOTHER_GROUP
                assert self.ledger.find(first, group, "no key") is EndRefusal.NO_SUCH_TRANSACTION
            else:
                assert found is ALREADY[known.outcome] or (found is None and known.restarted_since)
                for stranger in (("stranger", key), (group, "no key")):
                    assert self.ledger.find(first, *stranger) in (
                        None,
                        EndRefusal.ANOTHER_GROUP,
                        EndRefusal.NO_SUCH_TRANSACTION,
                    )
                assert self.ledger.get(first) is None


ALedgerKnowsWhatTheLogHolds.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = ALedgerKnowsWhatTheLogHolds.TestCase
