"""Endings and checks against a put that answers, refuses, stays away, or loses its answer, with an injected clock."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from towline.errors import MalformedFrame
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import Host, Record, decode
from towline.format.record.transactions import Outcome, op_record, read_half, read_op
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.link.permissions import Limits, Permit
from towline.master.schedule.transactions import checks
from towline.master.schedule.transactions.checks import (
    MOVE_RETRY_MS,
    PEER_WATCHES_MAX,
    Checks,
    ProducerWatch,
    ProducerWatches,
)
from towline.master.schedule.transactions.endings import HELD_MS, Endings, LostPuts, RecordOptions, read_ending
from towline.master.schedule.transactions.ledger import CheckRules, Ledger, OpenTransaction
from towline.node.peers.local_links import DEADLINE_MS, Batch

BROKER = Host(bytes(4), 0)
TIME_OUT, CHECK_MAX, INTERVAL = 6_000, 2, 30_000


@dataclass
class FakeReader:
    """The half queue."""

    halves: dict[int, Record] = field(default_factory=dict)

    def record(self, topic: bytes, offset: int) -> Record | None:
        return self.halves.get(offset)


@dataclass
class FakeOutbox:
    """Keeps what was sent until the test answers it."""

    sent: list[tuple[Batch, Any]] = field(default_factory=list)
    has_room: bool = True

    def send(self, batch: Batch, now_ms: int, done: Any) -> bool:
        if not self.has_room:
            return False
        self.sent.append((batch, done))
        return True

    def answer(self, status: PutStatus | None, retry_after: int = 0) -> Batch:
        batch, done = self.sent.pop(0)
        done(None if status is None else PutAnswer(1, status, 0, -1, retry_after, [(0, 0)], "a sentence"))
        return batch


class World:
    """One process' parts, and a log of numbers: what is appended, and what was dispatched and read."""

    def __init__(self) -> None:
        self.now = 0
        self.appended = self.read_to = 0
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.refusals: list[tuple[int, str]] = []
        self.asked: list[tuple[bytes, list[Record]]] = []
        self.there = True
        self.ledger = Ledger(CheckRules(TIME_OUT, CHECK_MAX), 0, 0)
        self.reader, self.outbox = FakeReader(), FakeOutbox()
        self.lost_puts = LostPuts(self.ledger, lambda: self.appended, lambda: self.read_to)
        record_options = RecordOptions(BROKER, lambda: self.now, append_property_crc=False)
        reader: Any = self.reader
        outbox: Any = self.outbox
        self.endings = Endings(
            self.ledger,
            reader,
            outbox,
            self.lost_puts,
            record_options,
            lambda: self.read_to,
            lambda ending, facts: self.answers.append((ending.request_id, facts)),
            lambda ending, name, _: self.refusals.append((ending.request_id, name)),
        )
        self.watches = ProducerWatches(self.ledger, reader, self._tell)
        self.checks = Checks(
            self.ledger,
            reader,
            outbox,
            self.lost_puts,
            record_options,
            self.watches,
            INTERVAL,
            0,
            logging.getLogger("test"),
        )

    def _tell(self, watch: ProducerWatch, facts: dict[str, Any], records: list[bytes]) -> bool:
        if self.there:
            self.asked.append((watch.peer, [decode(record) for record in records]))
        return self.there

    def store(
        self, offset: int, *, group: str = "g", key: str = "", stored_ms: int = 0, more: bytes = b"", topic: str = "t"
    ) -> None:
        key = key or f"key{offset}"
        pairs = [("REAL_TOPIC", topic), ("REAL_QID", "1"), ("PGROUP", group), ("UNIQ_KEY", key)]
        record = Record(
            topic=b"RMQ_SYS_TRANS_HALF_TOPIC",
            body=b"%d" % offset,
            properties=encode_properties(pairs) + more,
            queue_offset=offset,
            physical_offset=1000 * offset,
            store_timestamp=stored_ms,
        )
        self.reader.halves[offset] = record
        self.ledger.add_half(read_half(record))

    def see_copy(self, offset: int, batch: Batch) -> None:
        """The half that `batch` stores again appears in its queue."""
        (topic, queue_id, (stored,)) = batch[0]
        assert (topic, queue_id) == (b"RMQ_SYS_TRANS_HALF_TOPIC", 0)
        record = decode(stored)
        fields = {name: getattr(record, name) for name in Record.__slots__}
        self.reader.halves[offset] = Record(**fields | {"queue_offset": offset, "store_timestamp": self.now})
        self.ledger.add_half(read_half(self.reader.halves[offset]))

    def end(
        self, request_id: int, first: int, outcome: str = "commit", group: str = "g", key: str = "", **more: Any
    ) -> None:
        question = {"first": first, "group": group, "key": key or f"key{first}", "outcome": outcome, **more}
        self.endings.add(read_ending(b"p", request_id, question, self.now + HELD_MS, self.appended))

    def cycle(self, later: int = 0) -> None:
        self.now += later
        self.lost_puts.cycle(self.now)
        self.endings.cycle(self.now)
        self.checks.cycle(self.now)
        self.watches.cycle(self.now)


def _op(offset: int) -> bytes:
    return op_record(offset, offset, Outcome.COMMITTED, BROKER, 0, append_property_crc=False)


@pytest.fixture
def world() -> World:
    return World()


def test_a_commit_is_one_request_of_message_and_op_record(world: World) -> None:
    world.store(0)
    world.end(1, 0)
    world.cycle()
    assert world.answers == []
    (topic, queue_id, (message,)), (_, _, (op,)) = world.outbox.answer(PutStatus.PUT_OK)
    assert (topic, queue_id, decode(message).body) == (b"t", 1, b"0")
    assert read_op(decode(op)).offsets == (0,)
    assert world.answers == [(1, {"outcome": "COMMITTED", "status": "PUT_OK"})]
    world.end(2, 0, "rollback")
    world.cycle()
    assert world.refusals == [(2, "ALREADY_COMMITTED")]


HOLDER = Permit("app", ("producer",), Limits((("producer", ("t",)),))).facts


def test_who_is_limited_to_topics_ends_what_is_for_these_alone(world: World) -> None:
    world.store(0, topic="other")
    world.store(1)
    for request_id, first in ((1, 0), (2, 1)):
        world.end(request_id, first, holder=HOLDER)
    world.cycle()
    assert world.refusals == [(1, "NotPermitted")]
    assert len(world.outbox.sent) == 1
    world.outbox.answer(PutStatus.PUT_OK)
    assert [request_id for request_id, _ in world.answers] == [2]


def test_what_ends_together_has_to_be_permitted_together(world: World) -> None:
    """Else a half of one's own with another's unique key would end that one."""
    world.store(0, key="same", topic="other")
    world.store(1, key="same")
    world.end(1, 1, "rollback", key="same", holder=HOLDER)
    world.cycle()
    assert world.refusals == [(1, "NotPermitted")]
    assert not world.outbox.sent


@pytest.mark.parametrize("holder", [{}, {"name": "app", "roles": ["producer"], "limits": {"topics": 1}}, "app", []])
def test_limits_that_cannot_be_read_are_no_request(world: World, holder: Any) -> None:
    with pytest.raises(MalformedFrame):
        world.end(1, 0, holder=holder)


def test_who_is_limited_to_topics_is_asked_about_these_and_another_about_the_rest(world: World) -> None:
    for offset, topic in enumerate(("other", "t", "other", "t")):
        world.store(offset, topic=topic)
    for offset in range(4):
        world.ledger.ask(read_half(world.reader.halves[offset]))
    world.watches.add("g", ProducerWatch(b"limited", 1, 10_000, Permit.read(HOLDER)))
    world.watches.cycle(0)
    assert world.asked == [(b"limited", world.asked[0][1])]
    assert [record.topic for record in world.asked[0][1]] == [b"t", b"t"]
    world.watches.add("g", ProducerWatch(b"limited", 2, 10_000, Permit.read(HOLDER)))
    world.watches.add("g", ProducerWatch(b"all", 3, 10_000))
    world.watches.cycle(0)
    (_, (peer, records)) = world.asked
    assert (peer, [record.topic for record in records]) == (b"all", [b"other", b"other"])
    assert len(world.watches) == 1, "the limited one waits on"


def test_a_rollback_is_an_op_record_alone(world: World) -> None:
    world.store(0)
    world.end(1, 0, "rollback")
    world.cycle()
    ((topic, _, _),) = world.outbox.answer(PutStatus.FLUSH_DISK_TIMEOUT)
    assert topic == b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert world.answers == [(1, {"outcome": "ROLLED_BACK", "status": "FLUSH_DISK_TIMEOUT"})]


def test_a_half_that_its_producer_stored_twice_is_committed_once(world: World) -> None:
    world.store(0, key="same")
    world.store(1, group="other", key="same")
    world.store(2, key="same")
    world.end(1, 2, key="same")
    world.cycle()
    (_, _, messages), (_, _, ops) = world.outbox.answer(PutStatus.PUT_OK)
    assert len(messages) == 1
    assert [read_op(decode(op)).first for op in ops] == [0, 2]
    world.cycle(INTERVAL)
    ((topic, _, (checked,)),) = world.outbox.answer(PutStatus.PUT_OK)
    assert (topic, read_half(decode(checked)).group) == (b"RMQ_SYS_TRANS_HALF_TOPIC", "other")
    assert not world.outbox.sent


def test_of_two_who_end_at_once_the_first_wins(world: World) -> None:
    world.store(0)
    world.end(1, 0)
    world.end(2, 0, "rollback")
    world.cycle()
    assert len(world.outbox.sent) == 1
    world.outbox.answer(PutStatus.PUT_OK)
    world.cycle()
    assert world.answers[0][0] == 1
    assert world.refusals == [(2, "ALREADY_COMMITTED")]


def test_what_put_cannot_take_is_tried_again_and_at_last_refused_by_its_name(world: World) -> None:
    world.store(0)
    world.end(1, 0)
    world.cycle()
    world.outbox.answer(PutStatus.SYSTEM_BUSY, retry_after=500)
    world.cycle(499)
    assert not world.outbox.sent
    world.cycle(1)
    world.outbox.answer(PutStatus.EXPIRED)
    world.cycle(HELD_MS)
    world.outbox.answer(PutStatus.SYSTEM_BUSY)
    assert world.refusals == [(1, "SYSTEM_BUSY")]
    world.end(2, 0)
    world.cycle()
    world.outbox.answer(PutStatus.TOPIC_NOT_EXIST)
    assert world.refusals[1:] == [(2, "TOPIC_NOT_EXIST")]
    assert isinstance(world.ledger.find(0, "g", "key0"), OpenTransaction), (
        "it can be ended when the topic is there again"
    )


def test_after_a_lost_answer_nothing_is_sent_until_put_can_store_it_no_more(world: World) -> None:
    world.store(0)
    world.end(1, 0)
    world.cycle()
    world.outbox.answer(None)
    world.end(2, 0, "rollback")
    world.appended = 500
    world.cycle(DEADLINE_MS - 1)
    world.read_to = 500
    world.cycle()
    assert not world.outbox.sent, "put could store it still"
    world.appended = 700
    world.cycle(1)
    assert not world.outbox.sent, "it may stand between 500 and 700"
    world.read_to = 700
    world.cycle()
    world.cycle()
    (batch, _) = world.outbox.sent[0]
    assert batch[0][0] == b"t", "it was not stored: the commit is first"
    world.outbox.answer(PutStatus.PUT_OK)
    world.cycle()
    assert (world.answers[0][0], world.refusals) == (1, [(2, "ALREADY_COMMITTED")])


def test_a_lost_answer_is_found_in_the_log(world: World) -> None:
    world.store(0)
    world.end(1, 0)
    world.cycle()
    _, (_, _, (op,)) = world.outbox.answer(None)
    world.ledger.add_op(0, read_op(decode(op)))
    world.cycle()
    assert world.answers == [(1, {"outcome": "COMMITTED", "status": "PUT_OK"})]
    assert not world.outbox.sent


def test_a_half_that_is_not_there_yet_is_waited_for_as_long_as_it_may_come(world: World) -> None:
    world.appended = 100
    world.end(1, 0)
    world.cycle()
    assert (world.answers, world.refusals) == ([], [])
    world.store(0)
    world.cycle()
    world.outbox.answer(PutStatus.PUT_OK)
    assert world.answers[0][0] == 1
    world.end(2, 7)
    world.cycle()
    assert world.refusals == []
    world.read_to = 100
    world.cycle()
    assert world.refusals == [(2, "NO_SUCH_TRANSACTION")]
    world.appended = 200
    world.end(3, 8)
    world.cycle(HELD_MS)
    assert world.refusals[1:] == [(3, "NOT_READABLE_YET")]


def test_transactions_that_ended_long_ago_are_told_from_their_records(world: World) -> None:
    world.store(0)
    world.ledger = Ledger(CheckRules(TIME_OUT, CHECK_MAX), 1, 0)
    world.endings._ledger = world.ledger
    for request_id, group, key in ((1, "g", ""), (2, "other", ""), (3, "g", "key9")):
        world.end(request_id, 0, group=group, key=key)
    world.cycle()
    assert world.refusals == [(1, "ALREADY_ENDED"), (2, "ANOTHER_GROUP"), (3, "NO_SUCH_TRANSACTION")]


@pytest.mark.parametrize(
    "question",
    [
        {"first": 0, "group": "g", "key": "k", "outcome": "unknown"},
        {"first": "0", "group": "g", "key": "k", "outcome": "commit"},
        {"first": 0, "group": "g", "outcome": "commit"},
    ],
)
def test_questions_that_are_none(question: dict[str, Any]) -> None:
    with pytest.raises(MalformedFrame):
        read_ending(b"p", 1, question, 0, 0)


def test_a_check_stores_the_half_again_then_asks_and_at_last_puts_it_aside(world: World) -> None:
    world.store(0)
    world.watches.add("g", ProducerWatch(b"one", 1, 10**9))
    world.watches.add("g", ProducerWatch(b"two", 2, 10**9))
    for number, peer in enumerate((b"one", b"two"), 1):
        world.cycle(INTERVAL)
        batch = world.outbox.answer(PutStatus.PUT_OK)
        world.see_copy(number, batch)
        world.cycle()
        (message, (record,)) = world.asked[-1]
        assert (message, record.topic, record.queue_id, record.body) == (peer, b"t", 1, b"0")
        assert read_half(record).checks == number
    world.cycle(INTERVAL)
    (topic, _, (aside,)), (_, _, ops) = world.outbox.answer(PutStatus.PUT_OK)
    assert (topic, decode(aside).body) == (b"TRANS_CHECK_MAX_TIME_TOPIC", b"0")
    assert [read_op(decode(op)).offsets for op in ops] == [(0,), (2,)]
    assert {read_op(decode(op)).outcome for op in ops} == {Outcome.PUT_ASIDE}
    world.end(5, 0)
    world.cycle()
    assert world.refusals == [(5, "ALREADY_PUT_ASIDE")]
    world.cycle(INTERVAL)
    assert not world.outbox.sent


def test_a_transaction_that_is_checked_is_ended_when_the_check_is_through(world: World) -> None:
    world.store(0)
    world.cycle(INTERVAL)
    world.end(1, 0)
    world.cycle()
    assert len(world.outbox.sent) == 1, "the check alone"
    world.see_copy(1, world.outbox.answer(PutStatus.PUT_OK))
    world.cycle()
    _, (_, _, ops) = world.outbox.answer(PutStatus.PUT_OK)
    assert [read_op(decode(op)).offsets for op in ops] == [(0,), (1,)]
    assert world.answers[0][0] == 1
    world.watches.add("g", ProducerWatch(b"late", 1, 0))
    world.cycle()
    assert world.asked == [(b"late", [])], "nobody is asked about what has ended"


def test_an_end_on_a_read_only_node_is_refused_at_once_and_made_when_it_is_asked_for_again(world: World) -> None:
    world.store(0)
    world.end(1, 0)
    world.cycle()
    world.outbox.answer(PutStatus.NO_PERMISSION)
    world.cycle()
    assert (world.refusals, world.outbox.sent) == ([(1, "NO_PERMISSION")], [])
    world.end(2, 0)
    world.cycle()
    world.outbox.answer(PutStatus.PUT_OK)
    assert world.answers == [(2, {"outcome": "COMMITTED", "status": "PUT_OK"})]


def test_a_check_that_cannot_be_stored_waits_for_the_next_round(world: World) -> None:
    world.store(0)
    for status in (PutStatus.DISK_FULL, None):
        world.cycle(INTERVAL)
        world.outbox.answer(status)
        world.cycle()
        assert not world.outbox.sent
    world.cycle(DEADLINE_MS)
    world.cycle(INTERVAL)
    assert len(world.outbox.sent) == 1


def test_a_round_waits_until_put_takes_something(world: World) -> None:
    world.store(0)
    world.outbox.has_room = False
    world.cycle(INTERVAL)
    assert 0 < world.checks.due_ms(world.now) < INTERVAL
    world.cycle(INTERVAL)
    world.outbox.has_room = True
    world.cycle()
    assert len(world.outbox.sent) == 1


def test_a_half_without_room_for_the_count_is_put_aside_at_once(world: World) -> None:
    world.store(0, more=encode_properties([("x", "y" * 32_690)]))
    world.cycle(INTERVAL)
    (topic, _, _), _ = world.outbox.answer(PutStatus.PUT_OK)
    assert topic == b"TRANS_CHECK_MAX_TIME_TOPIC"


def test_a_half_that_many_op_records_lie_behind_is_stored_again_unchecked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "OPS_MAX", 3)
    immunity = encode_properties([("CHECK_IMMUNITY_TIME_IN_SECONDS", "100")])
    world.now = 5_000
    world.store(0, stored_ms=5_000, more=immunity)
    for offset in range(1, 6):
        world.store(offset)
        world.ledger.add_op(offset, read_op(decode(_op(offset))))
    assert world.ledger.floors == (0, 1)
    world.cycle()
    batch = world.outbox.answer(PutStatus.DISK_FULL)
    world.cycle()
    assert not world.outbox.sent, "not at once"
    world.cycle(MOVE_RETRY_MS)
    batch = world.outbox.answer(PutStatus.PUT_OK)
    world.see_copy(6, batch)
    assert world.ledger.floors == (6, 6)
    copy = read_half(decode(batch[0][2][0]))
    assert (copy.first, copy.checks, copy.stored_ms) == (0, 0, 5_000)
    world.watches.add("g", ProducerWatch(b"one", 1, 10**9))
    world.cycle(INTERVAL)
    assert (world.asked, world.outbox.sent) == ([], []), "its immunity began with the first record"
    world.end(1, 0)
    world.cycle()
    _, (_, _, ops) = world.outbox.answer(PutStatus.PUT_OK)
    assert [read_op(decode(op)).offsets for op in ops] == [(0,), (6,)]
    assert world.answers[0][0] == 1


def test_a_peer_waits_for_checks_so_often_and_not_more(world: World) -> None:
    for number in range(PEER_WATCHES_MAX):
        assert world.watches.has_room(b"one")
        world.watches.add(f"g{number}", ProducerWatch(b"one", number, 50))
    assert not world.watches.has_room(b"one")
    assert world.watches.has_room(b"two")
    world.cycle(50)
    assert len(world.watches) == 0
    assert world.watches.has_room(b"one")


def test_producers_of_a_group_take_turns(world: World) -> None:
    for peer in (b"one", b"two"):
        world.watches.add("g", ProducerWatch(peer, 1, 10**9))
    for offset in range(2):
        world.store(offset, stored_ms=INTERVAL * offset)
        world.cycle(INTERVAL)
        while world.outbox.sent:
            world.see_copy(10 * (offset + 1) + len(world.outbox.sent), world.outbox.answer(PutStatus.PUT_OK))
        world.cycle()
    assert [peer for peer, _ in world.asked] == [b"one", b"two"]


def test_a_producer_that_has_gone_leaves_its_checks_to_the_next(world: World) -> None:
    world.store(0)
    world.cycle(INTERVAL)
    world.see_copy(1, world.outbox.answer(PutStatus.PUT_OK))
    world.there = False
    world.watches.add("g", ProducerWatch(b"gone", 1, 10**9))
    world.cycle()
    world.there = True
    world.watches.add("g", ProducerWatch(b"here", 2, 10**9))
    world.watches.add("another", ProducerWatch(b"other", 3, 0))
    world.cycle()
    assert [(peer, len(records)) for peer, records in world.asked] == [(b"here", 1), (b"other", 0)]


def test_open_halves_that_the_log_begins_behind_are_put_aside_or_counted_as_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in range(4):
        world.store(offset)
    world.end(1, 1)
    world.cycle()
    del world.reader.halves[2]
    world.checks.rescue(3000, world.now)
    assert world.checks.lost == 1
    assert "transaction key2 of g was cleaned away" in caplog.text
    batches = [world.outbox.answer(PutStatus.PUT_OK) for _ in range(2)]
    assert [topic for topic, _, _ in batches[1]] == [b"TRANS_CHECK_MAX_TIME_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    assert decode(batches[1][0][2][0]).body == b"0"
    assert [each.half.first for each in world.ledger.before(1 << 40)] == [3]
    for request_id, first in ((2, 0), (3, 1), (4, 2)):
        world.end(request_id, first)
    world.cycle()
    assert world.answers[0][0] == 1
    assert world.refusals == [(2, "ALREADY_PUT_ASIDE"), (3, "ALREADY_COMMITTED"), (4, "ALREADY_ENDED")]
    world.checks.rescue(3000, world.now)
    assert (world.checks.lost, len(world.outbox.sent)) == (1, 0)
