"""The transaction producer against a node that answers from memory."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.processes.waiting import await_
from towline.client import transaction
from towline.client.errors import (
    REMEDIES,
    ClientClosed,
    IllegalDelay,
    IllegalOutcome,
    IllegalTransaction,
    PutRefused,
    TransactionRefused,
)
from towline.client.message import Message, ReceivedMessage
from towline.client.transaction import State, Transaction, TransactionProducer
from towline.errors import IllegalTopic
from towline.format.record.properties import UNIQ_KEY
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import decode
from towline.format.record.transactions import as_sent
from towline.format.wire.frames import ANSWER, ASK, Kind, expect, json_part, kind_of, read_json
from towline.format.wire.status import PutStatus
from towline.link.server import Request, Server
from towline.master.schedule.transactions.ledger import EndRefusal

from .standin import Refuse, Silence, Standin, Store, sizes_of

HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"
DEADLINE_S = 60.0


class Ending(Standin):
    """A node whose transactions end as it is told: `says` are refusals for the next ends."""

    says: deque[str]
    ends: list[dict[str, Any]]
    checks: deque[int]  # offsets of halves that the next watch is asked about
    early: deque[str]  # refusals of the next watches, or "" for an answer at once without checks
    watched: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.says, self.ends, self.checks, self.early, self.watched = deque(), [], deque(), deque(), 0

    def _handle(self, server: Server, request: Request) -> None:
        question = read_json(request.parts[1]) if kind_of(request.parts[0]) == Kind.ASK else {}
        if not str(question.get("op", "")).startswith("transaction_"):
            super()._handle(server, request)
            return
        _, request_id = expect(ASK, request.parts[0])
        if question["op"] == "transaction_end":
            self.ends.append(question)
            facts = {"error": self.says.popleft(), "sentence": "told so"} if self.says else {"status": "PUT_OK"}
            head = ANSWER.pack(Kind.ANSWER, int("error" in facts), request_id, 0)
            server.send(request.peer, [head, json_part(facts)])
            return
        self.watched += 1
        if self.early:
            error = self.early.popleft()
            facts = {"error": error, "sentence": "told so"} if error else {"checks": []}
            server.send(request.peer, [ANSWER.pack(Kind.ANSWER, int(error != ""), request_id, 0), json_part(facts)])
        elif self.checks:
            first = self.checks.popleft()
            records = [as_sent(decode(self.queues[HALVES, 0][first]))]
            head = ANSWER.pack(Kind.ANSWER, 0, request_id, 1)
            asked = {"checks": [{"first": first, "checks": 1}]}
            server.send(request.peer, [head, json_part(asked), sizes_of(records), records[0]])


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Ending]:
    made = Ending(tmp_path, {"t": 4})
    made.start()
    yield made
    made.stop()


def producer_of(ending: Ending, check: Any = None, **settings: Any) -> TransactionProducer:
    return TransactionProducer(ending.endpoint, "g", check, schedule=ending.endpoint, **settings)


def test_a_half_is_stored_then_the_work_is_done_then_the_end_is_told(ending: Ending) -> None:
    def execute(message: Message) -> State:
        assert len(ending.stored(HALVES)) == 1
        assert ending.ends == []
        executed.append(message)
        return State.COMMIT

    executed: list[Message] = []
    sent = Message("t", b"x", queue_id=3, tags="a", properties={"own": "1"})
    with producer_of(ending) as producer:
        result = producer.send(sent, execute)
    key = result.transaction.unique_key
    assert executed == [replace(sent, properties={"own": "1", UNIQ_KEY: key})]
    assert (executed[0].unique_key, sent.unique_key) == (key, None)
    (half,) = ending.stored(HALVES)
    found = decode_properties(half.properties)
    expected = {"REAL_TOPIC": "t", "REAL_QID": "3", "TRAN_MSG": "true", "PGROUP": "g", "TAGS": "a", "own": "1"}
    assert found == expected | {UNIQ_KEY: result.transaction.unique_key}
    (told,) = ending.ends
    assert (told["first"], told["group"], told["key"], told["outcome"]) == (0, "g", found[UNIQ_KEY], "commit")
    assert (result.state, result.ended) == (State.COMMIT, PutStatus.PUT_OK)
    assert ending.stored("t") == []


def test_who_is_not_kept_waiting_pauses_before_it_asks_again(ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []

    def pause_s(in_vain: int) -> float:
        pauses.append(in_vain)
        return 0.0

    monkeypatch.setattr(transaction, "_pause_s", pause_s)
    ending.early.extend(["", "TOO_MANY", ""])
    with producer_of(ending, lambda _: State.COMMIT):
        await_(lambda: ending.watched == 4, DEADLINE_S, "it asks again")
    assert pauses[:3] == [0, 1, 2]


def test_pauses_grow_up_to_a_bound_and_are_not_the_same_for_all() -> None:
    drawn = [[transaction._pause_s(in_vain) for _ in range(20)] for in_vain in (0, 3, 60)]
    for found, longest in zip(drawn, (0.2, 1.6, 5.0), strict=True):
        assert longest / 2 <= min(found) < max(found) <= longest


def test_each_refusal_says_what_to_do() -> None:
    for verdict in EndRefusal:
        assert verdict.name in REMEDIES
        assert REMEDIES[verdict.name] in str(TransactionRefused(verdict.name, verdict.value, "1-k-g"))
    assert "open still" in str(TransactionRefused("DISK_FULL", "no room", "1-k-g"))


def test_unknown_tells_nothing(ending: Ending) -> None:
    with producer_of(ending) as producer:
        result = producer.send(Message("t", b"x"), lambda _: State.UNKNOWN)
    assert (result.state, result.ended, ending.ends) == (State.UNKNOWN, None, [])


def test_work_that_fails_leaves_the_transaction_to_a_check(ending: Ending) -> None:
    def execute(message: Message) -> State:
        raise RuntimeError("no money")

    with producer_of(ending) as producer, pytest.raises(RuntimeError, match="no money"):
        producer.send(Message("t", b"x"), execute)
    assert ending.ends == []
    assert len(ending.stored(HALVES)) == 1


@pytest.mark.parametrize("given", [True, False, None, "commit", PutStatus.PUT_OK])
def test_what_is_no_state_commits_nothing(ending: Ending, given: Any, caplog: pytest.LogCaptureFixture) -> None:
    with producer_of(ending, lambda _: given) as producer:
        with pytest.raises(IllegalOutcome, match=r"execute of a transaction gave .*; return State\.COMMIT"):
            producer.send(Message("t", b"x"), lambda _: given)
        producer.answer_check(Transaction(0, "k", "g"), cast(ReceivedMessage, None))
    assert ending.ends == []
    assert "check of a transaction gave" in caplog.text


def test_a_half_that_is_not_promised_is_rolled_back_without_any_work(ending: Ending) -> None:
    ending.orders.append(Store(PutStatus.FLUSH_DISK_TIMEOUT))
    with producer_of(ending) as producer:
        result = producer.send(Message("t", b"x"), lambda _: pytest.fail("nothing is promised"))
    assert (result.state, ending.ends[0]["outcome"]) == (State.ROLLBACK, "rollback")
    assert result.half.status is PutStatus.FLUSH_DISK_TIMEOUT


def test_a_half_that_is_refused_begins_nothing(ending: Ending) -> None:
    ending.orders.append(Refuse(PutStatus.NO_PERMISSION))
    with producer_of(ending) as producer, pytest.raises(PutRefused):
        producer.send(Message("t", b"x"), lambda _: pytest.fail("there is no half"))
    assert ending.ends == []


@pytest.mark.parametrize("later", [{"delay_level": 3}, {"deliver_at": 1}])
def test_a_transaction_is_not_delayed(ending: Ending, later: dict[str, Any]) -> None:
    with producer_of(ending) as producer, pytest.raises(IllegalDelay, match="committed"):
        producer.begin(Message("t", b"x", **later))
    assert ending.puts == []


def test_a_transaction_takes_a_value_and_a_key_as_other_messages_do(ending: Ending) -> None:
    seen: list[Message] = []

    def execute(message: Message) -> State:
        seen.append(message)
        return State.COMMIT

    with TransactionProducer(ending.endpoint, "g", value_serializer="json") as producer:
        producer.send(Message("t", {"id": 1}, key=7), execute)
    [half] = ending.stored(HALVES)
    assert half.body == b'{"id":1}'
    assert (seen[0].body, seen[0].key) == ({"id": 1}, 7)


def test_halves_without_a_queue_take_turns_and_equal_sharding_keys_stay_together(ending: Ending) -> None:
    with producer_of(ending) as producer:
        for _ in range(4):
            producer.begin(Message("t", b"x"))
        for _ in range(3):
            producer.begin(Message("t", b"x", sharding_key="k"))
    queues = [decode_properties(half.properties)["REAL_QID"] for half in ending.stored(HALVES)]
    assert sorted(queues[:4]) == ["0", "1", "2", "3"]
    assert len(set(queues[4:])) == 1


def test_an_end_that_was_told_before_is_no_failure_of_a_send(ending: Ending) -> None:
    ending.says.append("ALREADY_COMMITTED")
    with producer_of(ending) as producer:
        assert producer.send(Message("t", b"x"), lambda _: State.COMMIT).ended is PutStatus.PUT_OK
        ending.says.append("ALREADY_COMMITTED")
        with pytest.raises(TransactionRefused, match="ALREADY_COMMITTED"):
            producer.send(Message("t", b"x"), lambda _: State.ROLLBACK)
        ending.says.append("ALREADY_ROLLED_BACK")
        with pytest.raises(TransactionRefused) as caught:
            producer.commit(Transaction(0, "k", "g"))
    assert (caught.value.name, caught.value.transaction) == ("ALREADY_ROLLED_BACK", "0-k-g")


def test_checks_are_answered_and_a_check_that_fails_is_asked_again(ending: Ending) -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> State:
        asked.append(message)
        if len(asked) == 1:
            raise RuntimeError("the database is away")
        return (State.COMMIT, State.UNKNOWN, State.ROLLBACK)[len(asked) - 2]

    with producer_of(ending) as sender:
        transaction, _ = sender.begin(Message("t", b"body", queue_id=2))
    ending.checks.extend([0, 0, 0, 0])
    with producer_of(ending, check):
        await_(lambda: len(ending.ends) == 2, DEADLINE_S, "two checks end something")
    assert [end["outcome"] for end in ending.ends] == ["commit", "rollback"]
    assert {(end["first"], end["key"]) for end in ending.ends} == {(0, transaction.unique_key)}
    assert [(message.topic, message.queue_id, message.body) for message in asked] == [("t", 2, b"body")] * 4


def test_a_refused_end_after_a_check_does_not_end_the_checks(ending: Ending) -> None:
    with producer_of(ending) as sender:
        sender.begin(Message("t", b"body"))
    ending.says.append("ALREADY_COMMITTED")
    ending.checks.extend([0, 0])
    with producer_of(ending, lambda _: State.COMMIT):
        await_(lambda: len(ending.ends) == 2, DEADLINE_S, "the second check is answered, too")


def test_closing_does_not_wait_for_a_held_question(ending: Ending) -> None:
    producer = producer_of(ending, lambda _: State.UNKNOWN)
    await_(lambda: ending.watched, DEADLINE_S, "the node holds the question")
    threads = threading.active_count()
    began = time.monotonic()
    producer.close()
    assert time.monotonic() - began < 8, "the question is held for 10 s"
    assert threading.active_count() < threads
    with pytest.raises(ClientClosed):
        producer.commit(Transaction(0, "k", "g"))


def test_a_node_that_does_not_answer_leaves_the_transaction_to_a_check(
    ending: Ending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.client.transaction.END_MS", 200)
    nobody = f"ipc://{tmp_path}/nobody.sock"
    with TransactionProducer(ending.endpoint, "g", schedule=nobody) as producer:
        result = producer.send(Message("t", b"x"), lambda _: State.COMMIT)
    assert (result.state, result.ended) == (State.COMMIT, None)


def test_a_half_whose_first_answer_is_lost_is_sent_again_with_the_same_key(ending: Ending) -> None:
    ending.orders.append(Silence())
    with producer_of(ending, send_timeout_ms=300) as producer:
        transaction, stored = producer.begin(Message("t", b"x"))
    assert stored.acknowledged
    assert {decode_properties(decode(put.records).properties)[UNIQ_KEY] for put in ending.puts} == {
        transaction.unique_key
    }


def test_a_transaction_is_a_text_too() -> None:
    transaction = Transaction(12, "7F00", "a-group-with-dashes")
    assert Transaction.read(str(transaction)) == transaction
    for text in ("", "12", "12-key", "x-key-group", "-1-key-group", "12-key-"):
        with pytest.raises(IllegalTransaction):
            Transaction.read(text)


def test_a_group_has_a_legal_name(ending: Ending) -> None:
    with pytest.raises(IllegalTopic):
        TransactionProducer(ending.endpoint, "no spaces please")
