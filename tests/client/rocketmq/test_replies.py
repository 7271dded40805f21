"""Requests and replies at brokers, frame by frame: as Java's clients make and take them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.processes.waiting import await_
from towline.client.errors import PutRefused, RequestTimeout
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import reply
from towline.errors import NoAnswer
from towline.format.record import properties as names
from towline.format.record.record import Record, encode
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command

from .standins import Standin, broker, names_of, refuses, serving

SEND, REPLY, PUSH = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
REPLIES = "c1_REPLY_TOPIC"
TIMEOUT_MS = 20_000
DEADLINE_S = 30.0


class Cluster:
    """Two brokers; the topic `t` is at the first alone, that of replies at both."""

    def __init__(self, opened: ExitStack) -> None:
        self.brokers = [opened.enter_context(serving(broker())) for _ in range(2)]
        addresses = {name: {0: each.address} for name, each in zip("ab", self.brokers, strict=True)}
        told = names_of(addresses, {"t": {"a": 4}, REPLIES: {"a": 1, "b": 1}})
        self.names = opened.enter_context(serving(told))

    @property
    def endpoint(self) -> str:
        return f"rocketmq://{self.names.address}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as opened:
        yield Cluster(opened)


def pushed(asked: dict[str, str], body: bytes, opaque: int) -> Command:
    """What a broker makes of the reply of one of Java's clients, which has no tags."""
    kept = {name: asked[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")}
    fields = {
        "producerGroup": "repliers",
        "topic": REPLIES,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": names.encode({**kept, "MSG_TYPE": "reply", "PUSH_REPLY_TIME": "1700000000001"}.items()).decode(),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": "/127.0.0.1:4711",
        "storeHost": "/127.0.0.1:10911",
        "storeTimestamp": "1700000000002",
    }
    return Command(PUSH, opaque, fields=fields, body=body)


def answering(at: Standin, through: Standin, says: Callable[[bytes], list[bytes]]) -> None:
    """Has the messages at one broker replied to through one of them; before the send is answered."""
    stored = at.answers[SEND]

    def take(command: Command) -> Command | None:
        asked = names.decode(command.fields["i"].encode())
        for number, body in enumerate(says(bytes(command.body))):
            through.tell(pushed(asked, body, 1_000 + number))
        return stored(command)

    at.answers[SEND] = take


def client_ids(at: Standin) -> set[str]:
    return {str(json.loads(bytes(each.body))["clientID"]) for each in at.asked if each.code == RequestCode.HEART_BEAT}


@pytest.mark.parametrize("through", [0, 1])
def test_a_reply_of_javas_is_taken_from_whichever_broker_pushes_it(cluster: Cluster, through: int) -> None:
    answering(cluster.brokers[0], cluster.brokers[through], lambda body: [body + b"!"])
    with Producer(cluster.endpoint) as producer:
        found = producer.request(Message("t", b"question"), TIMEOUT_MS)
        assert (found.body, found.topic, found.born_timestamp) == (b"question!", REPLIES, 1_700_000_000_000)
        assert str(found.record.born_host) == "127.0.0.1:4711"
        answers = lambda: [each for each in cluster.brokers[through].asked if each.is_answer]  # noqa: E731
        await_(answers, DEADLINE_S, "the broker hears that it was taken")
        assert [(each.code, each.opaque) for each in answers()] == [(0, 1_000)]
    (sent,) = [each for each in cluster.brokers[0].asked if each.code == SEND]
    told = names.decode(sent.fields["i"].encode())
    assert {told["REPLY_TO_CLIENT"]} == client_ids(cluster.brokers[0]) == client_ids(cluster.brokers[1])
    assert told["TTL"] == str(TIMEOUT_MS)


def test_producers_of_one_program_are_told_apart(cluster: Cluster) -> None:
    with Producer(cluster.endpoint, name="same") as one, Producer(cluster.endpoint, name="same") as other:
        one.send(Message("t", b"x"))
        other.send(Message("t", b"x"))
    assert len(client_ids(cluster.brokers[0])) == 2


def test_a_second_reply_and_one_to_nobody_are_counted_as_late(cluster: Cluster) -> None:
    answering(cluster.brokers[0], cluster.brokers[0], lambda body: [body, body])
    with Producer(cluster.endpoint) as producer:
        assert producer.request(Message("t", b"question"), TIMEOUT_MS).body == b"question"
        nobody = {"CORRELATION_ID": "nobody's", "REPLY_TO_CLIENT": "x@1", "TTL": "1"}
        cluster.brokers[1].tell(pushed(nobody, b"", 7))
        await_(lambda: producer.late_replies == 2, DEADLINE_S, "both are counted")


def test_what_is_no_reply_is_passed_over(cluster: Cluster) -> None:
    answering(cluster.brokers[0], cluster.brokers[0], lambda body: [body])
    with Producer(cluster.endpoint) as producer:
        assert producer.request(Message("t", b"1"), TIMEOUT_MS).body == b"1"
        for fields in ({}, {"topic": REPLIES, "sysFlag": "x", "bornTimestamp": "1", "flag": "0"}):
            cluster.brokers[0].tell(Command(PUSH, 9, fields=fields))
        assert producer.request(Message("t", b"2"), TIMEOUT_MS).body == b"2"


def test_replies_come_over_a_new_connection_where_the_old_one_was_lost(cluster: Cluster) -> None:
    with Producer(cluster.endpoint) as producer:
        answering(cluster.brokers[0], cluster.brokers[0], lambda body: [body])
        assert producer.request(Message("t", b"1"), TIMEOUT_MS).body == b"1"
        for each in cluster.brokers:
            each.cut()
        assert producer.request(Message("t", b"2"), TIMEOUT_MS).body == b"2"


def test_a_request_without_a_reply_times_out(cluster: Cluster) -> None:
    with Producer(cluster.endpoint) as producer, pytest.raises(RequestTimeout):
        producer.request(Message("t", b"x"), 1_000)


def test_a_request_to_nobody_times_out_within_its_time(cluster: Cluster) -> None:
    for each in cluster.brokers:
        each.answers[RequestCode.HEART_BEAT] = lambda _: None
    began = time.monotonic()
    with Producer(cluster.endpoint) as producer, pytest.raises(NoAnswer):
        producer.request(Message("t", b"x"), 1_000)
    assert time.monotonic() - began < DEADLINE_S / 2


# --- replies of ours


def request_of(number: int) -> ReceivedMessage:
    pairs = {"CLUSTER": "c1", "CORRELATION_ID": f"c{number}", "REPLY_TO_CLIENT": "10.0.0.1@7", "TTL": "3000"}
    return ReceivedMessage(encode(Record(topic=b"t", body=b"question", properties=names.encode(pairs.items()))))


def test_a_reply_goes_by_its_own_request_with_what_java_looks_for(cluster: Cluster) -> None:
    for each in cluster.brokers:
        each.answers[REPLY] = each.answers[SEND]
    with Producer(cluster.endpoint) as producer:
        assert all(
            result.acknowledged
            for result in producer.send_batch([reply(request_of(number), b"%d" % number) for number in range(3)])
        )
    found = [each for each in (*cluster.brokers[0].asked, *cluster.brokers[1].asked) if each.code == REPLY]
    assert sorted(bytes(each.body) for each in found) == [b"0", b"1", b"2"]
    for each in found:
        told = names.decode(each.fields["i"].encode())
        assert told["CORRELATION_ID"] == f"c{bytes(each.body).decode()}"
        assert (told["REPLY_TO_CLIENT"], told["TTL"], told["MSG_TYPE"]) == ("10.0.0.1@7", "3000", "reply")
        assert (each.fields["b"], each.fields["e"]) == (REPLIES, "0")


def test_a_reply_for_which_nobody_waits_fails_alone(cluster: Cluster) -> None:
    for each in cluster.brokers:
        stored = each.answers[SEND]

        def take(command: Command, stored: Callable[[Command], Command | None] = stored) -> Command | None:
            return refuses(1, "nobody waits")(command) if bytes(command.body) == b"1" else stored(command)

        each.answers[REPLY] = take
    with Producer(cluster.endpoint) as producer:
        futures = [producer.send_async(reply(request_of(number), b"%d" % number)) for number in range(3)]
        assert futures[0].result().acknowledged
        with pytest.raises(PutRefused, match="nobody waits"):
            futures[1].result()
        assert futures[2].result().acknowledged
