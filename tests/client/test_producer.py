"""The producer against a node in a thread (`standin`), over a real link."""

import asyncio
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import as_completed, wait
from pathlib import Path
from typing import Any

import pytest

from towline.client.errors import (
    ClientClosed,
    DeliveryTimeout,
    MessageTooLarge,
    ProducerFull,
    PutRefused,
    ResultPending,
    StoreBusy,
)
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture, SendResult
from towline.errors import (
    IllegalProperty,
    InvalidEndpoint,
    LinkRefused,
    MalformedRecord,
    NoAnswer,
    OutOfOrderSequence,
    ProducerFenced,
    Remedy,
    UnknownProducer,
    UnknownTopic,
)
from towline.format.java_hash import string_hash
from towline.format.record.properties import SHARDING_KEY, TAGS, UNIQ_KEY, decode
from towline.format.wire.refusals import Cause, sentence_of
from towline.format.wire.status import PutStatus

from .standin import Put, Refuse, Silence, Standin, Store, StoreAndCut, keys_of

WAIT_MS = 10_000
OF_SEQUENCES = {
    PutStatus.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    PutStatus.PRODUCER_FENCED: ProducerFenced,
    PutStatus.UNKNOWN_PRODUCER: UnknownProducer,
}


def producer_of(node: Standin, **settings: Any) -> Producer:
    defaults: dict[str, Any] = {"cluster": "c1", "delivery_timeout_ms": 10_000}
    return Producer(node.endpoint, **defaults | settings)


def unique_keys(node: Standin, topic: str = "t") -> list[str]:
    return [decode(record.properties)[UNIQ_KEY] for record in node.stored(topic)]


def sent(producer: Producer, message: Message) -> SendResult:
    return producer.send_async(message).result(WAIT_MS / 1000)


async def awaited(future: SendFuture) -> SendResult:
    return await asyncio.wait_for(asyncio.wrap_future(future), WAIT_MS / 1000)


class TestSending:
    def test_a_sent_message_is_stored_with_its_properties_and_its_place_is_told(self, node: Standin) -> None:
        with producer_of(node) as producer:
            before_ms = int(time.time() * 1000)
            result = producer.send(
                Message("t", b"hello", tags="a", keys=("k1", "k2"), flag=7, queue_id=2, properties={"x": "y"})
            )
        (record,) = node.stored("t")
        properties = decode(record.properties)
        assert properties == {"KEYS": "k1 k2", "TAGS": "a", "x": "y", "UNIQ_KEY": result.unique_key}
        assert (record.body, record.flag, record.queue_id) == (b"hello", 7, 2)
        assert before_ms <= record.born_timestamp <= int(time.time() * 1000)
        assert result == SendResult(PutStatus.PUT_OK, "t", 2, 0, 0, result.unique_key)
        assert result.acknowledged

    def test_many_messages_travel_in_few_requests_and_each_learns_its_place(self, node: Standin) -> None:
        with producer_of(node, linger_ms=1_000) as producer:
            futures = [producer.send_async(Message("t", b"%d" % number, queue_id=number % 2)) for number in range(100)]
            producer.flush(WAIT_MS)
            results = [future.result(0) for future in futures]
        assert len(node.puts) == 1
        for number, result in enumerate(results):
            record = next(r for r in node.stored("t") if r.body == b"%d" % number)
            assert (result.queue_id, result.queue_offset) == (record.queue_id, record.queue_offset)
            assert result.physical_offset == record.physical_offset
        assert len(set(unique_keys(node))) == 100

    def test_a_request_holds_one_group_for_each_queue(self, node: Standin) -> None:
        with producer_of(node, linger_ms=1_000, batch_bytes_max=1_000) as producer:
            for number in range(12):
                producer.send_async(Message("t", bytes(200), queue_id=number % 2))
            producer.flush(WAIT_MS)
        for put in node.puts:
            queues = [(topic, queue) for topic, queue, _ in put.groups]
            assert len(queues) == len(set(queues))
        assert len(node.stored("t")) == 12

    def test_messages_without_a_queue_fill_one_batch_after_another_in_turn(self, node: Standin) -> None:
        with producer_of(node) as producer:
            results = [producer.send(Message("t", b"x")) for _ in range(8)]
        assert [result.queue_id for result in results] == [0, 1, 2, 3, 0, 1, 2, 3]

    @pytest.mark.parametrize("key", ["alpha", "beta", "gamma", "polygenelubricants", "😀"])
    def test_equal_sharding_keys_go_to_the_queue_java_would_choose(self, node: Standin, key: str) -> None:
        with producer_of(node) as producer:
            results = [producer.send(Message("t", b"x", sharding_key=key)) for _ in range(3)]
        assert {result.queue_id for result in results} == {abs(string_hash(key)) % 4}
        assert decode(node.stored("t")[0].properties)[SHARDING_KEY] == key

    def test_a_batch_call_sends_everything_at_once_and_waits(self, node: Standin) -> None:
        with producer_of(node, linger_ms=60_000) as producer:
            results = producer.send_batch(Message("t", b"x", keys="one") for _ in range(10))
        assert len(results) == 10
        assert [keys_of(record) for record in node.stored("t")] == ["one"] * 10

    def test_lingering_messages_go_when_the_time_is_over(self, node: Standin) -> None:
        with producer_of(node, linger_ms=5) as producer:
            assert producer.send_async(Message("t", b"x")).result(WAIT_MS / 1000).acknowledged

    def test_a_unique_key_among_the_properties_is_kept(self, node: Standin) -> None:
        with producer_of(node) as producer:
            assert producer.send(Message("t", b"x", properties={"UNIQ_KEY": "mine"})).unique_key == "mine"
        assert unique_keys(node) == ["mine"]

    def test_many_threads_send_through_one_producer(self, node: Standin) -> None:
        with producer_of(node, batch_bytes_max=2_000) as producer:

            def work() -> None:
                for _ in range(50):
                    producer.send_async(Message("t", b"x"))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush(WAIT_MS)
            assert producer.statistics.acknowledged == 200
        assert len(set(unique_keys(node))) == 200


class TestBulk:
    def test_bodies_become_the_same_records_as_messages_would(self, node: Standin) -> None:
        bodies = [b"body %d" % number * (number % 7) for number in range(500)]
        with producer_of(node, batch_bytes_max=20_000) as producer:
            results = producer.send_bodies("one", bodies, tags="a", flag=3)
        assert sum(result.count for result in results) == 500
        assert len(results) > 1
        records = node.stored("one")
        assert [record.body for record in records] == bodies
        assert {(decode(record.properties)[TAGS], record.flag) for record in records} == {("a", 3)}
        assert len(set(unique_keys(node, "one"))) == 500
        assert results[1].unique_key == unique_keys(node, "one")[results[0].count]
        assert results[1].queue_offset == results[0].count

    def test_batches_of_bodies_take_turns_through_the_queues(self, node: Standin) -> None:
        with producer_of(node, batch_bytes_max=1_000) as producer:
            results = producer.send_bodies("t", [bytes(500)] * 8)
        assert [result.queue_id for result in results] == [0, 1, 2, 3, 0, 1, 2, 3]

    def test_large_bodies_are_compressed_among_small_ones(self, node: Standin) -> None:
        with producer_of(node) as producer:
            producer.send_bodies("one", [b"small", bytes(10_000), b"x"])
        assert [record.sys_flag & 1 for record in node.stored("one")] == [0, 1, 0]

    def test_no_bodies_are_no_results(self, node: Standin) -> None:
        with producer_of(node) as producer:
            assert producer.send_bodies("t", []) == []

    def test_records_that_are_encoded_already_go_as_they_are(self, node: Standin) -> None:
        with producer_of(node) as producer:
            producer.send_bodies("one", [b"a", b"b"])
            records = node.puts[0].records
            assert producer.send_records("one", 0, records, 2).result(WAIT_MS / 1000).queue_offset == 2
        assert node.puts[1].records == records


class TestRefusals:
    @pytest.mark.parametrize(
        ("message", "error"),
        [
            (Message("t", b"x", tags="a\x02b"), IllegalProperty),
            (Message("t", b"x", tags=""), IllegalProperty),
            (Message("t", b"x", keys=("a b",)), IllegalProperty),
            (Message("t", b"x", keys=("a", "")), IllegalProperty),
            (Message("t", b"x", properties={"TAGS": "a"}), IllegalProperty),
            (Message("t", b"x", keys=("\ud800",)), IllegalProperty),
            (Message("t", b"x", properties={"a": "x" * 40_000}), MalformedRecord),
            (Message("t", b"x" * 5_000_000), MessageTooLarge),
            (Message("unknown", b"x"), UnknownTopic),
        ],
        ids=[
            "mark in a tag", "empty tag", "space in a key", "empty key", "tags as property", "surrogate",
            "long properties", "long body", "unknown topic",
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("knows", [False, True], ids=["new topic", "known topic"])
    def test_what_the_node_would_refuse_is_refused_before_it_is_sent(
        self, node: Standin, message: Message, error: type[Exception], knows: bool
    ) -> None:
        with producer_of(node, compression=None) as producer:
            if knows:
                producer.route("t")
            with pytest.raises(error):
                producer.send_async(message) if knows and message.topic == "t" else sent(producer, message)
            assert producer.send(Message("t", b"fine")).acknowledged
        assert len(node.puts) == 1

    def test_a_refused_request_fails_its_messages_with_the_nodes_sentence(self, node: Standin) -> None:
        node.orders.append(Refuse(PutStatus.MESSAGE_ILLEGAL, "record 0: BODY_CRC"))
        with producer_of(node) as producer:
            with pytest.raises(PutRefused, match="MESSAGE_ILLEGAL: record 0: BODY_CRC"):
                producer.send(Message("t", b"x"))
            assert producer.send(Message("t", b"y")).acknowledged
            assert producer.statistics.failed == 1
        assert [record.body for record in node.stored("t")] == [b"y"]

    def test_a_bad_batch_does_not_take_its_company_down(self, node: Standin) -> None:
        def judge(put: Put) -> Refuse | None:
            bad = any(queue == 1 for _, queue, _ in put.groups)
            return Refuse(PutStatus.UNKNOWN_QUEUE, "no queue 1") if bad else None

        node.judge = judge
        with producer_of(node, linger_ms=60_000) as producer:
            futures = [producer.send_async(Message("t", b"x", queue_id=queue)) for queue in (0, 1, 2)]
            producer.flush(WAIT_MS)
            outcomes = [future.exception(0) for future in futures]
        assert [type(outcome) for outcome in outcomes] == [type(None), PutRefused, type(None)]
        assert [record.queue_id for record in node.stored("t")] == [0, 2]

    def test_after_a_refusal_the_producer_asks_for_the_route_again(self, node: Standin) -> None:
        node.orders.append(Refuse(PutStatus.UNKNOWN_QUEUE))
        with producer_of(node) as producer:
            with pytest.raises(PutRefused):
                producer.send(Message("t", b"x"))
            node.topics["t"] = 2
            assert [producer.send(Message("t", b"x")).queue_id for _ in range(3)] == [0, 1, 0]

    def test_a_topic_without_a_writable_queue_is_refused(self, node: Standin) -> None:
        node.topics["closed"] = 0
        with producer_of(node) as producer, pytest.raises(PutRefused, match="NO_PERMISSION"):
            producer.send(Message("closed", b"x"))

    def test_settings_that_cannot_be_are_refused(self) -> None:
        with pytest.raises(InvalidEndpoint):
            Producer("nowhere")
        with pytest.raises(ValueError, match="batch_bytes_max"):
            Producer("tcp://127.0.0.1:1", batch_bytes_max=0)
        with pytest.raises(ValueError, match="in_flight_max"):
            Producer("tcp://127.0.0.1:1", in_flight_max=0)
        with pytest.raises(ValueError, match="gzip"):
            Producer("tcp://127.0.0.1:1", compression="gzip")


class TestRetrying:
    def test_a_busy_node_gets_the_same_bytes_again(self, node: Standin) -> None:
        node.orders.extend([Refuse(PutStatus.SYSTEM_BUSY, retry_after=1), Refuse(PutStatus.EXPIRED)])
        with producer_of(node) as producer:
            assert producer.send(Message("t", b"x")).acknowledged
            assert producer.statistics.retried == 2
        assert len({put.records for put in node.puts}) == 1
        assert len(node.puts) == 3

    def test_a_refusal_with_a_hint_when_to_come_back_is_retried(self, node: Standin) -> None:
        node.orders.append(Refuse(PutStatus.DISK_FULL, retry_after=1))
        with producer_of(node) as producer:
            assert producer.send(Message("t", b"x")).acknowledged

    def test_a_lost_answer_is_asked_for_again_with_the_same_unique_keys(self, node: Standin) -> None:
        node.orders.append(StoreAndCut())
        with producer_of(node, linger_ms=1_000) as producer:
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(5)]
            producer.flush(WAIT_MS)
            assert all(future.result(0).acknowledged for future in futures)
            assert producer.statistics.links_lost == 1
        keys = unique_keys(node, "one")
        assert len(keys) == 10
        assert keys[:5] == keys[5:] == [future.unique_key for future in futures]
        assert node.greeted == 2

    def test_a_node_that_does_not_answer_loses_its_link(self, node: Standin) -> None:
        def judge(put: Put) -> None:
            node.welcome = {"answer_ms": 60_000}  # only the first link is impatient

        node.judge = judge
        node.orders.append(Silence())
        with producer_of(node, send_timeout_ms=300) as producer:
            assert producer.send(Message("t", b"x")).acknowledged
        assert node.greeted == 2
        assert len(node.puts) == 2

    def test_a_node_that_needs_longer_than_the_time_out_is_waited_for(self, node: Standin) -> None:
        node.welcome = {"answer_ms": 60_000, "now": 1_000_000}
        with producer_of(node, send_timeout_ms=1) as producer:
            assert producer.send(Message("t", b"x")).acknowledged
        assert 1_060_000 < node.puts[0].deadline < 1_070_000, "deadlines are in the node's clock"

    def test_a_restarted_node_is_greeted_again(self, node: Standin) -> None:
        with producer_of(node) as producer:
            producer.send(Message("t", b"x"))
            node.stop()
            future = producer.send_async(Message("t", b"y"))
            node.start()
            assert future.result(WAIT_MS / 1000).acknowledged
        assert node.greeted == 2

    def test_a_node_that_forgot_the_producer_is_greeted_again(self, node: Standin) -> None:
        with producer_of(node) as producer:
            producer.send(Message("t", b"x"))
            node.forget_everyone()
            assert producer.send(Message("t", b"y")).acknowledged
        assert [record.body for record in node.stored("t")] == [b"x", b"y"]

    def test_what_is_stored_and_not_promised_is_reported_and_not_sent_again(self, node: Standin) -> None:
        node.orders.append(Store(PutStatus.FLUSH_DISK_TIMEOUT))
        with producer_of(node) as producer:
            result = producer.send(Message("t", b"x"))
            assert (producer.statistics.unpromised, producer.statistics.acknowledged) == (1, 0)
        assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
        assert not result.acknowledged
        assert len(node.stored("t")) == 1

    @pytest.mark.parametrize(
        "status",
        [PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE],
        ids=lambda status: status.name,
    )
    def test_it_is_sent_again_when_told_to(self, node: Standin, status: PutStatus) -> None:
        node.orders.append(Store(status))
        with producer_of(node, retry_unpromised=True) as producer:
            assert producer.send(Message("one", b"x")).acknowledged
        assert len(set(unique_keys(node, "one"))) == 1
        assert len(node.stored("one")) == 2

    def test_attempts_come_to_an_end(self, node: Standin) -> None:
        node.judge = lambda put: Refuse(PutStatus.EXPIRED, "too late")
        with (
            producer_of(node, retries=2) as producer,
            pytest.raises(StoreBusy, match=r"EXPIRED: too late .sent 3 times"),
        ):
            producer.send(Message("t", b"x"))
        assert len(node.puts) == 3

    def test_time_comes_to_an_end(self, node: Standin) -> None:
        node.judge = lambda put: Refuse(PutStatus.SYSTEM_BUSY, "too much", 1)
        with producer_of(node, retries=10_000, delivery_timeout_ms=1_000) as producer:
            with pytest.raises(StoreBusy, match="too much"):
                producer.send(Message("t", b"x"))
            assert producer.statistics.failed == 1

    def test_it_also_ends_while_the_producer_waits_for_its_next_attempt(self, node: Standin) -> None:
        with producer_of(node, delivery_timeout_ms=1_000) as producer:
            producer.send(Message("t", b"first"))
            node.stop()
            producer._session.io_thread._pause(60.0)
            with pytest.raises((NoAnswer, DeliveryTimeout)):
                producer.send_async(Message("t", b"second")).result(WAIT_MS / 1000)

    def test_a_refusal_that_says_when_to_come_back_is_waited_for_and_costs_no_attempt(self, node: Standin) -> None:
        node.orders.extend([Refuse(PutStatus.OS_PAGE_CACHE_BUSY, retry_after=20) for _ in range(5)])
        with producer_of(node, retries=1) as producer:
            started = time.monotonic()
            assert producer.send(Message("t", b"x")).acknowledged
            assert time.monotonic() - started >= 5 * 0.02
        assert len(node.puts) == 6

    def test_without_retries_a_refusal_is_reported_at_once_with_cause_and_numbers(self, node: Standin) -> None:
        said = sentence_of(Cause.SEND_QUEUE, {"waited_ms": 212, "limit_ms": 200}, 40)
        node.orders.append(Refuse(PutStatus.SYSTEM_BUSY, said, retry_after=40))
        with producer_of(node, retries=0) as producer, pytest.raises(StoreBusy) as raised:
            producer.send(Message("t", b"x"))
        copied = pickle.loads(pickle.dumps(raised.value))
        for error in (raised.value, copied):
            assert (error.status, error.cause, error.attempts) == ("SYSTEM_BUSY", "send_queue", 1)
            assert error.numbers == {"waited_ms": 212, "limit_ms": 200, "retry_after_ms": 40}
            assert error.remedy is Remedy.RETRY
        assert not node.stored("t")

    @pytest.mark.parametrize("order", [Silence(), StoreAndCut()], ids=["no answer", "a lost link"])
    def test_after_an_attempt_of_unknown_outcome_nobody_says_that_nothing_was_stored(
        self, node: Standin, order: Silence | StoreAndCut
    ) -> None:
        node.orders.append(order)
        node.orders.extend([Refuse(PutStatus.SYSTEM_BUSY, "too much", 1) for _ in range(10_000)])
        with (
            producer_of(node, send_timeout_ms=300, delivery_timeout_ms=1500) as producer,
            pytest.raises(DeliveryTimeout, match=r"too much.*may have been stored"),
        ):
            producer.send(Message("t", b"x"))

    def test_a_final_refusal_of_what_may_be_stored_does_not_say_that_nothing_was(self, node: Standin) -> None:
        node.orders.extend([StoreAndCut(), Refuse(PutStatus.MESSAGE_ILLEGAL, "another setting")])
        with (
            producer_of(node) as producer,
            pytest.raises(DeliveryTimeout, match="sent 2 times: MESSAGE_ILLEGAL: another setting"),
        ):
            producer.send(Message("t", b"x"))
        assert len(node.stored("t")) == 1

    def test_each_status_is_stored_or_retried_or_ends_and_never_two_of_them(self, node: Standin) -> None:
        for status in PutStatus:
            before = len(node.puts)
            node.orders.append(Store(status) if status.stored else Refuse(status, status.name))
            with producer_of(node, retries=1) as producer:
                outcome = producer.send_async(Message("t", b"x"))
                error = outcome.exception(WAIT_MS / 1000)
            if status.stored:
                assert (error, outcome.result(0).status, len(node.puts) - before) == (None, status, 1)
            elif status.retryable:
                assert (error, len(node.puts) - before) == (None, 2), status
            elif status in OF_SEQUENCES:  # of an idempotent producer (`send/test_sequencing.py`)
                assert (type(error), len(node.puts) - before) == (OF_SEQUENCES[status], 1)
            else:
                assert type(error) is PutRefused, status
                assert (error.status, len(node.puts) - before) == (status.name, 1)


class TestGreeting:
    @pytest.mark.parametrize("call", [Producer.send, sent], ids=["send", "send_async"])
    def test_another_cluster_is_refused_naming_both(
        self, node: Standin, call: Callable[[Producer, Message], SendResult]
    ) -> None:
        with (
            producer_of(node, cluster="c2") as producer,
            pytest.raises(LinkRefused, match="cluster 'c2' and we to cluster 'c1'"),
        ):
            call(producer, Message("t", b"x"))

    def test_a_node_that_becomes_another_fails_what_waits(self, node: Standin) -> None:
        with producer_of(node) as producer:
            producer.send(Message("t", b"x"))
            node.stop()
            future = producer.send_async(Message("t", b"y"))
            node.own = {**node.own, "cluster": "c9"}
            node.start()
            with pytest.raises(LinkRefused, match="'c9'"):
                future.result(WAIT_MS / 1000)

    def test_nobody_there_is_no_answer(self, tmp_path: Path) -> None:
        with (
            Producer(f"ipc://{tmp_path}/nobody", delivery_timeout_ms=1_000) as producer,
            pytest.raises(NoAnswer, match="nobody listens there"),
        ):
            producer.send(Message("t", b"x"))


class TestBackPressure:
    def test_requests_without_an_answer_are_bounded(self, node: Standin) -> None:
        node.judge = lambda put: Silence()
        producer = producer_of(node, in_flight_max=2, send_timeout_ms=60_000)
        futures = [producer.send_async(Message("t", b"x", queue_id=number % 4)) for number in range(4)]
        producer._session.accumulator.seal_all()
        node.wait_for(lambda: len(node.puts) >= 1)
        more = [producer.send_async(Message("t", b"y", queue_id=number)) for number in range(4)]
        producer._session.accumulator.seal_all()
        node.wait_for(lambda: len(node.puts) >= 2)
        with pytest.raises(ResultPending):
            more[-1].result(0.03)
        assert len(node.puts) <= 2
        producer.close(flush=False)
        for future in (*futures, *more):
            with pytest.raises(ClientClosed):
                future.result(0)

    def test_a_full_buffer_makes_senders_wait_and_then_says_so(self, node: Standin) -> None:
        node.judge = lambda put: Silence()
        producer = producer_of(node, in_flight_max=1, buffer_bytes_max=2_000, send_timeout_ms=40)
        producer.route("t")
        messages = [Message("t", bytes(500))] * 100
        with pytest.raises(ProducerFull, match="no room came in 40 ms"):
            producer.send_batch(messages)
        producer.close(flush=False)

    def test_a_waiting_sender_goes_on_when_room_comes(self, node: Standin) -> None:
        with producer_of(node, buffer_bytes_max=2_000, batch_bytes_max=1_000) as producer:
            futures = [producer.send_async(Message("t", bytes(500)), max_block_ms=WAIT_MS) for _ in range(100)]
            producer.flush(WAIT_MS)
        assert all(future.result(0).acknowledged for future in futures)

    def test_send_async_refuses_at_once_what_finds_no_room_and_takes_it_when_room_came(self, node: Standin) -> None:
        node.judge = lambda put: Silence()
        producer = producer_of(node, buffer_bytes_max=2_000, send_timeout_ms=60_000, compression=None)
        producer.route("t")
        producer.send_async(Message("t", bytes(1_500)))
        with pytest.raises(ProducerFull, match="no room came in 0 ms"):
            producer.send_async(Message("t", bytes(1_500)))
        node.judge = lambda put: None
        node.forget_everyone()
        producer.flush(WAIT_MS)
        assert producer.send_async(Message("t", bytes(1_500))).result(WAIT_MS / 1000).acknowledged
        producer.close()

    def test_a_record_larger_than_the_buffer_goes_alone(self, node: Standin) -> None:
        with producer_of(node, buffer_bytes_max=1_000, compression=None) as producer:
            assert producer.send(Message("t", bytes(50_000))).acknowledged
            assert producer.send(Message("t", bytes(50_000))).acknowledged

    def test_closing_ends_a_waiting_sender(self, node: Standin) -> None:
        node.judge = lambda put: Silence()
        producer = producer_of(node, buffer_bytes_max=2_000, send_timeout_ms=60_000)
        producer.route("t")
        raised: list[Exception] = []

        def work() -> None:
            try:
                while True:
                    producer.send_async(Message("t", bytes(500)), max_block_ms=60_000)
            except ClientClosed as error:
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        node.wait_for(lambda: node.puts)
        producer.close(flush=False)
        thread.join(10)
        assert len(raised) == 1


class TestFutures:
    def test_a_callback_gets_the_future_when_the_outcome_comes_or_at_once(self, node: Standin) -> None:
        called: list[SendFuture] = []
        with producer_of(node, linger_ms=60_000) as producer:
            future = producer.send_async(Message("t", b"x"))
            future.add_done_callback(called.append)
            assert not future.done()
            producer.flush(WAIT_MS)
            assert future.done()
            future.add_done_callback(called.append)
        assert called == [future, future]

    def test_a_callback_that_fails_harms_nobody(self, node: Standin, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_: SendFuture) -> None:
            raise RuntimeError("in a callback")

        with producer_of(node, linger_ms=60_000) as producer:
            producer.send_async(Message("t", b"x")).add_done_callback(fail)
            producer.flush(WAIT_MS)
            assert producer.send(Message("t", b"y")).acknowledged
        assert "in a callback" in caplog.text

    def test_a_result_that_is_not_there_yet_is_pending(self, node: Standin) -> None:
        with producer_of(node, linger_ms=60_000) as producer:
            future = producer.send_async(Message("t", b"x"))
            with pytest.raises(ResultPending, match="no result after 1 ms"):
                future.result(0.001)
            producer.flush(WAIT_MS)
            assert future.exception(0) is None

    def test_a_result_is_a_future_of_the_standard_library(self, node: Standin) -> None:
        with producer_of(node, linger_ms=60_000) as producer:
            early = [producer.send_async(Message("t", b"%d" % n)) for n in range(4)]
            assert wait(early, timeout=0.001).not_done == set(early)
            assert [early[0].cancel(), early[0].cancelled(), early[0].done()] == [False] * 3
            assert early[0].running()
            threading.Timer(0.05, producer.flush).start()
            assert set(as_completed(early, timeout=WAIT_MS / 1000)) == set(early)
            late = producer.send(Message("t", b"late"))
            more = producer.send_async(Message("t", b"more"))
            producer.flush(WAIT_MS)
            assert set(as_completed([*early, more], timeout=0)) == {*early, more}
            assert asyncio.run(awaited(more)).physical_offset > late.physical_offset
            assert not early[0].running()

    def test_an_error_is_raised_by_whatever_waits_for_it(self, node: Standin) -> None:
        node.judge = lambda put: Refuse(PutStatus.MESSAGE_ILLEGAL)
        with producer_of(node, linger_ms=60_000) as producer:
            futures = [producer.send_async(Message("t", b"x")) for _ in range(2)]
            assert wait(futures, timeout=0).not_done
            producer.flush(WAIT_MS)
            assert all(isinstance(each.exception(), PutRefused) for each in wait(futures, WAIT_MS / 1000).done)
            with pytest.raises(PutRefused):
                asyncio.run(awaited(futures[0]))

    def test_flush_says_when_it_waited_in_vain(self, node: Standin) -> None:
        node.judge = lambda put: Silence()
        producer = producer_of(node, send_timeout_ms=60_000)
        producer.send_async(Message("t", b"x"))
        with pytest.raises(ResultPending):
            producer.flush(10)
        producer.close(flush=False)


class TestClosing:
    def test_closing_waits_for_what_was_sent(self, node: Standin) -> None:
        producer = producer_of(node, linger_ms=60_000)
        future = producer.send_async(Message("t", b"x"))
        producer.close()
        assert future.result(0).acknowledged
        producer.close()

    def test_an_error_inside_the_block_gives_up_what_waits(self, node: Standin) -> None:
        node.judge = lambda put: Silence()
        futures: list[SendFuture] = []

        def interrupted() -> None:
            with producer_of(node) as producer:
                futures.append(producer.send_async(Message("t", b"x")))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with pytest.raises(ClientClosed):
            futures[0].result(0)

    def test_a_closed_producer_sends_nothing(self, node: Standin) -> None:
        producer = producer_of(node)
        producer.send(Message("t", b"x"))
        producer.close()
        with pytest.raises(ClientClosed):
            producer.send(Message("t", b"x"))
        with pytest.raises(ClientClosed):
            producer.route("one")

    def test_a_program_that_forgets_to_close_ends_all_the_same(self, node: Standin) -> None:
        program = (
            "import sys\nfrom towline.client.producer import Producer\nfrom towline.client.message import Message\n"
            "producer = Producer(sys.argv[1])\nproducer.send_async(Message('t', b'x')).result()\nprint('stored')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, node.endpoint], capture_output=True, text=True, timeout=60, check=True
        )
        assert (done.stdout, done.stderr) == ("stored\n", "")


def test_an_interrupt_ends_a_program_that_waits_for_a_result(node: Standin) -> None:
    node.judge = lambda put: Silence()
    program = (
        "import sys\nfrom towline.client.producer import Producer\nfrom towline.client.message import Message\n"
        "with Producer(sys.argv[1], send_timeout_ms=60_000) as producer:\n    producer.send(Message('t', b'x'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, node.endpoint], stderr=subprocess.PIPE, text=True) as waiting:
        node.wait_for(lambda: node.puts)
        waiting.send_signal(signal.SIGINT)
        _, trouble = waiting.communicate(timeout=50)
    assert trouble.rstrip().endswith("KeyboardInterrupt")


def test_latencies_of_requests_are_sampled(node: Standin) -> None:
    with producer_of(node) as producer:
        for _ in range(20):
            producer.send(Message("t", b"x"))
        statistics = producer.statistics
    assert statistics.latency.count == statistics.requests == 20
    assert 0 < statistics.latency.percentile_ms(50) <= statistics.latency.percentile_ms(99) < WAIT_MS
