"""Requests and replies over a node that answers from memory."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.errors import ClientClosed, NotARequest, RequestTimeout
from towline.client.link.endpoints import neighbour
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import is_expired, reply
from towline.errors import IllegalProperty, NoAnswer
from towline.format.record.properties import decode as decode_properties

from .standin import Standin

DEADLINE_S = 60.0
DEADLINE_MS = 20_000
REPLIES = "c1_REPLY_TOPIC"


@pytest.fixture
def producer(node: Standin) -> Iterator[Producer]:
    with Producer(node.endpoint, serve=node.endpoint) as producer:
        yield producer


class Answering(threading.Thread):
    """Replies to every request in the topic with its body and a `!`, once it is allowed to."""

    def __init__(self, node: Standin, topic: str) -> None:
        super().__init__(daemon=True)
        self.allowed = threading.Event()
        self.allowed.set()
        self.requests: list[ReceivedMessage] = []
        self._node, self._topic = node, topic
        self._ending = threading.Event()

    def run(self) -> None:
        endpoint = self._node.endpoint
        with Consumer(endpoint, self._topic) as consumer, Producer(endpoint) as producer:
            while not self._ending.is_set():
                for message in consumer.poll(50):
                    self.requests.append(message)
                    assert self.allowed.wait(DEADLINE_S)
                    producer.send(reply(message, message.body + b"!"))

    def stop(self) -> None:
        self._ending.set()
        self.allowed.set()
        self.join(DEADLINE_S)


@pytest.fixture
def answering(node: Standin) -> Iterator[Answering]:
    answering = Answering(node, "t")
    answering.start()
    yield answering
    answering.stop()


def test_a_request_comes_back_with_its_reply(node: Standin, producer: Producer, answering: Answering) -> None:
    bodies = [b"%d" % number for number in range(5)]
    assert [producer.request(Message("t", body), DEADLINE_MS).body for body in bodies] == [
        b"0!",
        b"1!",
        b"2!",
        b"3!",
        b"4!",
    ]
    asked = [decode_properties(record.properties) for record in node.stored("t")]
    assert len({properties["CORRELATION_ID"] for properties in asked}) == 5
    assert {properties["CLUSTER"] for properties in asked} == {"c1"}
    assert {properties["TTL"] for properties in asked} == {str(DEADLINE_MS)}
    replied = [decode_properties(record.properties) for record in node.stored(REPLIES)]
    assert [properties["CORRELATION_ID"] for properties in replied] == [
        message.properties["CORRELATION_ID"] for message in answering.requests
    ]
    assert {properties["MSG_TYPE"] for properties in replied} == {"reply"}
    assert {properties["TAGS"] for properties in replied} == {asked[0]["REPLY_TO_CLIENT"]}
    assert sum(question["op"] == "create_topic" for question in node.asked) == 1
    assert producer.late_replies == 0


def test_requests_of_many_threads_get_their_own_replies(producer: Producer, answering: Answering) -> None:
    got: dict[int, bytes] = {}

    def ask(number: int) -> None:
        got[number] = producer.request(Message("t", b"%d" % number), DEADLINE_MS).body

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert got == {number: b"%d!" % number for number in range(16)}


def test_replies_to_another_producer_are_not_read(node: Standin, producer: Producer, answering: Answering) -> None:
    with Producer(node.endpoint, serve=node.endpoint) as other:
        assert other.request(Message("t", b"a"), DEADLINE_MS).body == b"a!"
        assert producer.request(Message("t", b"b"), DEADLINE_MS).body == b"b!"
        assert producer.late_replies == other.late_replies == 0


def test_a_request_without_a_reply_times_out_and_a_late_reply_is_counted(
    producer: Producer, answering: Answering
) -> None:
    assert producer.request(Message("t", b"first"), DEADLINE_MS).body == b"first!"  # the links and topics are there
    answering.allowed.clear()
    with pytest.raises(RequestTimeout) as caught:
        producer.request(Message("t", b"late"), 500)
    assert caught.value.acknowledged
    assert caught.value.waited_ms == 500
    answering.allowed.set()
    await_(lambda: producer.late_replies == 1, DEADLINE_S, "the late reply comes")
    assert producer.request(Message("t", b"next"), DEADLINE_MS).body == b"next!"


def test_a_reader_of_requests_sees_that_nobody_waits_any_more(answering: Answering, producer: Producer) -> None:
    producer.request(Message("t", b"x"), DEADLINE_MS)
    request = answering.requests[0]
    assert not is_expired(request, request.born_timestamp + DEADLINE_MS)
    assert is_expired(request, request.born_timestamp + DEADLINE_MS + 1)


def test_what_is_no_request_has_no_reply(node: Standin, producer: Producer) -> None:
    producer.send(Message("t", b"plain"))
    with Consumer(node.endpoint, "t") as consumer:
        (message,) = consumer.poll(DEADLINE_MS)
    with pytest.raises(NotARequest, match="CLUSTER"):
        reply(message, b"")
    with pytest.raises(NotARequest, match="TTL"):
        is_expired(message, 0)


def test_a_request_does_not_choose_its_correlation(producer: Producer) -> None:
    with pytest.raises(IllegalProperty):
        producer.request(Message("t", b"", properties={"CORRELATION_ID": "mine"}), DEADLINE_MS)


def test_closing_ends_the_wait_of_other_threads(producer: Producer, answering: Answering) -> None:
    answering.allowed.clear()
    raised: list[Exception] = []

    def ask() -> None:
        try:
            producer.request(Message("t", b"x"), DEADLINE_MS)
        except ClientClosed as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    await_(lambda: answering.requests, DEADLINE_S, "the request arrives")
    producer.close()
    thread.join(DEADLINE_S)
    assert len(raised) == 1


def test_where_a_node_serves_what_else() -> None:
    assert neighbour("ipc:///run/put.sock", "serve") == "ipc:///run/serve.sock"
    assert neighbour("tcp://[::1]:10911", "serve") == "tcp://[::1]:10911"


@pytest.mark.parametrize("threads", [1, 4])
def test_a_request_keeps_its_time_where_no_node_answers(tmp_path: Path, threads: int) -> None:
    endpoint = f"ipc://{tmp_path / 'nobody'}"
    delivery_ms = 600_000
    ended: list[Exception] = []

    def ask(producer: Producer) -> None:
        with pytest.raises(NoAnswer) as caught:
            producer.request(Message("t", b"body"), 100)
        ended.append(caught.value)

    with Producer(endpoint, serve=endpoint, delivery_timeout_ms=delivery_ms) as producer:
        asking = [threading.Thread(target=ask, args=(producer,), daemon=True) for _ in range(threads)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(DEADLINE_S)
        assert len(ended) == threads
