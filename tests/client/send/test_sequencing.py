"""An idempotent producer against a node in a thread that judges its batches by put's own table."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.standin import Put, Refuse, Silence, Standin, Store, StoreAndCut, encode_facts
from towline.aio.producer import AsyncProducer
from towline.client.errors import AskRefused, DeliveryTimeout, NotIdempotent, PutRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send import sequencing
from towline.client.send.futures import SendResult
from towline.client.send.sequencing import OLDER
from towline.errors import MalformedFrame, MalformedRecord, OutOfOrderSequence, ProducerFenced, UnknownProducer
from towline.format.record import sequence
from towline.format.wire.status import PutStatus
from towline.master.put.producers import producer_of
from towline.master.put.sequences import Claim, Repeat, Sequences, Verdict

NOW = 1_700_000_000_000
WAIT_S = 20.0
STATUSES = {
    Verdict.FENCED: PutStatus.PRODUCER_FENCED,
    Verdict.UNKNOWN: PutStatus.UNKNOWN_PRODUCER,
    Verdict.OUT_OF_ORDER: PutStatus.OUT_OF_ORDER_SEQUENCE,
}


def place_of(record: bytes) -> sequence.Place:
    found = sequence.decode(record[-sequence.SIZE :])
    assert found is not None
    return found


def claim_of(put: Put) -> Claim:
    ((topic, queue_id, count),) = put.groups
    first = place_of(put.records[: int.from_bytes(put.records[:4])])
    assert place_of(put.records) == first._replace(number=first.number + count - 1)
    return Claim(*first, count, len(put.records), (topic.encode(), queue_id))


class Judging(Standin):
    """Stores what is new and answers repeats by their first place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table = Sequences(100, 86_400_000)
        self.judge = self._refusal
        self.welcome["idempotent"] = 1

    def step_back(self) -> None:
        """To the version before, which stores whatever comes, and does not say that it looks at places."""
        self.welcome.pop("idempotent", None)

    def step_back_at_the_next_put(self) -> None:
        """What comes in it is stored, and not answered."""

        def stepping(_: Put) -> StoreAndCut:
            self.step_back()
            self.judge = self._refusal
            return StoreAndCut()

        self.judge = stepping

    def upgrade(self) -> None:
        self.stop()
        self.welcome["idempotent"] = 1
        self.start()

    def places(self, topic: str = "t") -> dict[int, list[sequence.Place]]:
        """By queue."""
        return {queue_id: [place_of(each) for each in self.queues[topic, queue_id]] for queue_id in range(4)}

    def _refusal(self, put: Put) -> Refuse | None:
        if "idempotent" not in self.welcome:
            return None
        verdict = self.table.judge(claim_of(put), NOW, NOW)
        return Refuse(STATUSES[verdict], f"judged {verdict.name}") if verdict in STATUSES else None

    def _store(self, put: Put) -> list[tuple[int, int]]:
        claim = claim_of(put)
        verdict = self.table.judge(claim, NOW, NOW)
        if isinstance(verdict, Repeat) and "idempotent" in self.welcome:
            return [(verdict.queue_offset, verdict.physical_offset)]
        places = super()._store(put)
        self.table.stored(claim, places[0][0], self.physical, NOW)
        return places

    def _answer(self, request_id: int, question: dict[str, Any]) -> list[bytes]:
        if question["op"] != "begin_producer" or "idempotent" not in self.welcome:
            return super()._answer(request_id, question)
        producer = question.get("producer", producer_of(question.get("name") or str(len(self.asked))))
        return encode_facts(request_id, {"producer": producer, "epoch": self.table.begin(producer, NOW, 0, 1)})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Judging]:
    made = Judging(tmp_path, {"t": 4, "one": 1})
    made.start()
    yield made
    made.stop()


def producer_to(node: Standin, **settings: Any) -> Producer:
    defaults = {"endpoint": node.endpoint, "cluster": "c1", "delivery_timeout_ms": 10_000, "idempotent": True}
    return Producer(**defaults | settings)


def sent_async(producer: Producer, message: Message) -> SendResult:
    return producer.send_async(message).result(WAIT_S)


def begun(node: Standin) -> list[dict[str, Any]]:
    return [{**asked} for asked in node.asked if asked["op"] == "begin_producer"]


class TestARetry:
    def test_without_an_answer_stores_nothing_twice_and_is_told_the_first_place(self, node: Judging) -> None:
        node.orders += [Store(), StoreAndCut()]
        with producer_to(node) as producer:
            producer.send(Message("one", b"before"))
            result = producer.send(Message("one", b"once"))
        first, second = [put for put in node.puts if b"once" in put.records]
        assert first.records == second.records
        assert [record.body for record in node.stored("one")] == [b"before", b"once"]
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 1)
        assert result.physical_offset == len(node.queues["one", 0][0])

    def test_of_any_other_producer_stores_the_message_twice(self, tmp_path: Path) -> None:
        node = Standin(tmp_path, {"one": 1})
        node.orders += [StoreAndCut()]
        node.start()
        with producer_to(node, idempotent=False) as producer:
            producer.send(Message("one", b"twice"))
        node.stop()
        assert [record.body for record in node.stored("one")] == [b"twice", b"twice"]

    def test_of_what_was_stored_and_not_promised_goes_on_until_it_is(self, node: Judging) -> None:
        node.orders += [Store(PutStatus.FLUSH_SLAVE_TIMEOUT), Store(PutStatus.FLUSH_DISK_TIMEOUT)]
        with producer_to(node) as producer:
            assert producer.send(Message("one", b"once")).status is PutStatus.PUT_OK
        assert len(node.puts) == 3
        assert len(node.stored("one")) == 1

    @pytest.mark.parametrize("seed", range(3))
    def test_keeps_number_and_order_whatever_happens(self, node: Judging, seed: int) -> None:
        chance = random.Random(seed)
        busy, cut, silent = Refuse(PutStatus.SYSTEM_BUSY, retry_after=2), StoreAndCut(), Silence()
        node.orders += [chance.choice([Store(), Store(), busy, cut, silent]) for _ in range(60)]
        with producer_to(node, send_timeout_ms=50, delivery_timeout_ms=60_000, retries=1000, linger_ms=0) as producer:
            sent = [
                producer.send_async(Message("t", b"%d" % number, queue_id=number % 4), max_block_ms=10_000)
                for number in range(400)
            ]
            results = [future.result(WAIT_S) for future in sent]
        assert {result.status for result in results} == {PutStatus.PUT_OK}
        assert [record.body for record in node.stored("t")] == [
            b"%d" % number for queue_id in range(4) for number in range(queue_id, 400, 4)
        ]
        for number, result in enumerate(results):
            assert (result.queue_id, result.queue_offset) == (number % 4, number // 4)
        assert {place.epoch for places in node.places().values() for place in places} == {node.places()[0][0].epoch}
        for places in node.places().values():
            assert [place.number for place in places] == list(range(100))


class TestABatch:
    @pytest.mark.parametrize(
        "bodies", [[b"even"] * 50, [b"x" * number for number in range(50)]], ids=["even", "uneven"]
    )
    def test_of_bodies_has_places_in_a_row(self, node: Judging, bodies: list[bytes]) -> None:
        with producer_to(node) as producer:
            producer.send_bodies("one", bodies)
            producer.send_bodies("one", bodies)
        assert [record.body for record in node.stored("one")] == bodies + bodies
        assert [place_of(record).number for record in node.queues["one", 0]] == list(range(100))

    def test_waits_for_the_one_before_it_in_its_queue(self, node: Judging) -> None:
        node.orders += [Silence()]
        with producer_to(node, send_timeout_ms=200) as producer:
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(1)]
            node.wait_for(lambda: node.puts)
            futures.append(producer.send_async(Message("one", b"1")))
            assert [future.result(WAIT_S).queue_offset for future in futures] == [0, 1]
        assert [claim_of(put).first for put in node.puts] == [0, 0, 1]


class TestAnEpoch:
    def test_is_asked_for_once_and_before_the_first_batch(self, node: Judging) -> None:
        with producer_to(node, name="biller") as producer:
            for _ in range(3):
                producer.send(Message("t", b"x"))
        assert begun(node) == [{"op": "begin_producer", "name": "biller"}]

    def test_begins_anew_after_a_batch_of_which_nobody_knows_what_became(self, node: Judging) -> None:
        node.orders += [Store(), Silence()]
        with producer_to(node, send_timeout_ms=200, retries=0) as producer:
            producer.send(Message("one", b"a"))
            with pytest.raises(DeliveryTimeout):
                producer.send(Message("one", b"b"))
            producer.send(Message("one", b"c"))
        first, second = [place_of(record) for record in node.queues["one", 0]]
        assert second.epoch > first.epoch
        assert (second.producer, second.number) == (first.producer, 0)
        assert begun(node)[1] == {"op": "begin_producer", "producer": first.producer, "epoch": first.epoch}

    def test_goes_on_after_a_refusal_that_stored_nothing(self, node: Judging) -> None:
        node.orders += [Store(), Refuse(PutStatus.MESSAGE_ILLEGAL)]
        with producer_to(node) as producer:
            producer.send(Message("one", b"a"))
            with pytest.raises(PutRefused):
                producer.send(Message("one", b"b"))
            producer.send(Message("one", b"c"))
        assert [place_of(record).number for record in node.queues["one", 0]] == [0, 1]
        assert len(begun(node)) == 1

    def test_that_the_node_has_forgotten_is_followed_by_another_without_anybody_noticing(self, node: Judging) -> None:
        with producer_to(node) as producer:
            producer.send(Message("one", b"a"))
            node.table.forget(NOW)
            assert producer.send(Message("one", b"b")).status is PutStatus.PUT_OK
        assert [record.body for record in node.stored("one")] == [b"a", b"b"]
        assert len(begun(node)) == 2

    def test_that_is_forgotten_while_an_answer_is_missing_is_told_to_who_waits(self, node: Judging) -> None:
        node.orders += [StoreAndCut()]
        store = node._store

        def forgetting(put: Put) -> list[tuple[int, int]]:
            places = store(put)
            node.table.forget(NOW)
            node._store = store  # type: ignore[method-assign]
            return places

        node._store = forgetting  # type: ignore[method-assign]
        with producer_to(node) as producer:
            with pytest.raises(UnknownProducer):
                producer.send(Message("one", b"a"))
            producer.send(Message("one", b"b"))
        assert [record.body for record in node.stored("one")] == [b"a", b"b"]

    def test_whose_acknowledged_messages_are_gone_is_told_and_another_begins(self, node: Judging) -> None:
        with producer_to(node) as producer:
            producer.send(Message("one", b"a"))
            producer.send(Message("one", b"b"))
            (place, _) = (place_of(record) for record in node.queues["one", 0])
            node.table = Sequences(100, 86_400_000)
            node.table.stored(Claim(*place, 1, 100, (b"one", 0)), 0, 100, NOW)
            with pytest.raises(OutOfOrderSequence):
                producer.send(Message("one", b"c"))
            producer.send(Message("one", b"d"))
        assert [record.body for record in node.stored("one")] == [b"a", b"b", b"d"]


class TestAnotherOfItsName:
    def test_fences_the_one_before_which_sends_nothing_more(self, node: Judging) -> None:
        with producer_to(node, name="biller") as old, producer_to(node, name="biller") as new:
            old.send(Message("one", b"old"))
            new.send(Message("one", b"new"))
            for _ in range(2):
                with pytest.raises(ProducerFenced):
                    old.send(Message("one", b"late"))
            new.send(Message("one", b"newer"))
        assert [record.body for record in node.stored("one")] == [b"old", b"new", b"newer"]
        assert len({place_of(record).producer for record in node.queues["one", 0]}) == 1

    def test_is_another_producer_where_there_is_no_name(self, node: Judging) -> None:
        with producer_to(node) as one, producer_to(node) as other:
            one.send(Message("one", b"x"))
            other.send(Message("one", b"x"))
            one.send(Message("one", b"x"))
        assert len({place_of(record).producer for record in node.queues["one", 0]}) == 2


class TestWhatItDoesNotSend:
    def test_is_anything_that_is_delivered_later_or_was_encoded_elsewhere(self, node: Judging) -> None:
        with producer_to(node) as producer:
            for message in (Message("t", b"x", delay_level=3), Message("t", b"x", deliver_at=NOW)):
                with pytest.raises(NotIdempotent):
                    producer.send(message)
            with pytest.raises(NotIdempotent):
                producer.send_records("t", 0, b"", 1)

    def test_is_anything_to_a_broker_of_rocketmq(self) -> None:
        with pytest.raises(NotIdempotent):
            Producer("rocketmq://127.0.0.1:9876/broker-a", idempotent=True)

    def test_is_anything_to_a_node_that_knows_no_such_producers(self, tmp_path: Path) -> None:
        node = Standin(tmp_path, {"t": 4})
        node.start()
        with producer_to(node) as producer, pytest.raises(AskRefused, match=OLDER):
            producer.send(Message("t", b"x"))
        node.stop()
        assert not node.puts


class TestANodeOfTheVersionBefore:
    """A retry would stand there twice."""

    def test_is_sent_no_retry_and_nothing_new_and_the_sender_is_told_why(self, node: Judging) -> None:
        with producer_to(node, delivery_timeout_ms=1500) as producer:
            producer.send(Message("one", b"before"))
            node.step_back_at_the_next_put()
            for body in (b"once", b"never"):
                with pytest.raises(DeliveryTimeout, match=OLDER):
                    producer.send_async(Message("one", body)).result(WAIT_S)
        assert [record.body for record in node.stored("one")] == [b"before", b"once"]
        assert (len(node.puts), len(begun(node))) == (2, 1)

    def test_is_sent_what_waits_when_it_has_been_upgraded(self, node: Judging) -> None:
        with producer_to(node) as producer:
            producer.send(Message("one", b"before"))
            node.step_back_at_the_next_put()
            future = producer.send_async(Message("one", b"once"))
            node.wait_for(lambda: node.greeted == 2)
            node.upgrade()
            assert future.result(WAIT_S).queue_offset == 1
        assert [record.body for record in node.stored("one")] == [b"before", b"once"]

    def test_is_left_as_soon_as_another_is_master(self, node: Judging, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        other = Judging(tmp_path / "other", {"one": 1})
        other.step_back()
        node.welcome["epoch"], other.welcome["epoch"] = 256, 513
        with producer_to(node, endpoint=f"{node.endpoint},{other.endpoint}") as producer:
            producer.send(Message("one", b"before"))
            other.start()
            node.orders.append(StoreAndCut())
            node.welcome |= {"epoch": 256, "broker_role": "slave"}
            future = producer.send_async(Message("one", b"once"))
            other.wait_for(lambda: other.greeted)
            node.welcome |= {"epoch": 768, "broker_role": "master"}
            assert future.result(WAIT_S).queue_offset == 1
        other.stop()
        assert not other.puts
        assert [record.body for record in node.stored("one")] == [b"before", b"once"]

    def test_that_is_asked_for_an_epoch_ends_no_producer_that_has_one(self, node: Judging) -> None:
        """A batch of which nobody knows what became makes it ask for one; the node steps back meanwhile."""
        with producer_to(node, send_timeout_ms=200, retries=0) as producer:
            producer.send(Message("one", b"a"))
            node.orders.append(Silence())
            with pytest.raises(DeliveryTimeout):
                producer.send(Message("one", b"lost"))
            node.stop()
            node.step_back()
            before = node.greeted
            node.start()
            future = producer.send_async(Message("one", b"b"))
            node.wait_for(lambda: node.greeted > before)
            node.upgrade()
            assert future.result(WAIT_S).queue_offset == 1
        assert len(begun(node)) == 2


class TestWhatCannotBeNumbered:
    @pytest.mark.parametrize("epoch", [2**63, -1, "7", None])
    def test_is_ended_by_name_where_the_node_gives_an_epoch_that_fits_no_record(
        self, node: Judging, epoch: Any
    ) -> None:
        node.table.begin = lambda *_: epoch  # type: ignore[method-assign]
        with producer_to(node) as producer:
            for _ in range(2):
                with pytest.raises(MalformedFrame, match=f"epoch {epoch!r}"):
                    producer.send_async(Message("one", b"x")).result(WAIT_S)
        assert not node.puts

    @pytest.mark.parametrize("call", [Producer.send, sent_async], ids=["send", "send_async"])
    def test_fails_alone_and_what_comes_behind_it_is_sent(
        self, node: Judging, call: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> bytes:
            raise AssertionError("there is no room")

        with producer_to(node) as producer:
            call(producer, Message("one", b"a"))
            with monkeypatch.context() as patched:
                patched.setattr(sequencing, "numbered", broken)
                with pytest.raises(MalformedRecord, match="there is no room"):
                    call(producer, Message("one", b"b"))
            call(producer, Message("one", b"c"))
        assert [record.body for record in node.stored("one")] == [b"a", b"c"]
        assert [place_of(record).number for record in node.queues["one", 0]] == [0, 1]


def test_a_producer_of_asyncio_is_one_too(node: Judging) -> None:
    node.orders += [StoreAndCut()]

    async def main() -> None:
        async with AsyncProducer(node.endpoint, cluster="c1", idempotent=True) as producer:
            results = await producer.send_batch(Message("one", b"%d" % number) for number in range(20))
            assert [result.queue_offset for result in results] == list(range(20))

    asyncio.run(main())
    assert [record.body for record in node.stored("one")] == [b"%d" % number for number in range(20)]
