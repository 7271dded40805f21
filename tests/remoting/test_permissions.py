"""Keys whose roles are limited to topics and groups, on a node that runs: RocketMQ's requests and our own clients."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.aio.producer import AsyncProducer
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, PutRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.link.connection import own_facts
from towline.client.link.rpc import Caller
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.transaction import State, TransactionProducer
from towline.errors import LinkRefused
from towline.format.record.forms import delayed, half
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import Record
from towline.format.record.record import encode as encode_record
from towline.format.remoting.batch import member
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    Group,
    Kind,
    Pull,
    decode_put_answer,
    encode_pull,
    encode_put,
    expect,
    json_part,
    read_json,
)
from towline.format.wire.status import PutStatus
from towline.link.keys import ENVIRONMENT, change_key, make_node_keys, new_key, read_key
from towline.link.signature import sign
from towline.runtime.positions import Position
from towline.runtime.remoting_counts import Ending

from .conftest import RemotingNode, remoting_node
from .mqadmin import run_tool
from .test_access import NO_PERMISSION, SigningClient, handed
from .test_own_clients import WireClient

KEYS: dict[str, tuple[list[str], list[str]]] = {
    "chief": (["admin"], []),
    "orders": (["producer:orders,orders-*"], []),
    "bills": (["consumer:bills", "producer:bills"], ["billing", "billing-*"]),
    "reader": (["consumer:bills"], ["billing"]),
    "clerk": (["admin:bills,bills-*"], ["billing"]),
    "java": (["producer:java-*", "consumer:java-*"], ["reading"]),
    "everything": (["producer", "consumer", "admin:none"], []),
}
TOPICS = ("orders", "bills", "%RETRY%billing", "%DLQ%billing", "%RETRY%shipping")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys") / "ring"
    make_node_keys(made)
    for name, (roles, groups) in KEYS.items():
        new_key(made, name, roles, groups)
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[RemotingNode]:
    made = remoting_node(tmp_path_factory.mktemp("permissions") / "store", keys_dir=keys)
    with ending(made):
        made.start()
        with SigningClient(made.port, handed(keys, "chief")) as chief:
            for topic in TOPICS:
                assert chief.put(topic, f"of {topic}".encode(), f"KEYS\x01key-{topic}\x02").code == 0
            await_(lambda: chief.pull("g", "%RETRY%shipping", 0, 0).code == 0, 10.0, "all can be read")
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture
def raw(node: RemotingNode, keys: Path) -> Iterator[Callable[[str], SigningClient]]:
    made: list[SigningClient] = []

    def client(name: str) -> SigningClient:
        made.append(SigningClient(node.port, handed(keys, name)))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture
def show(keys: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setenv(ENVIRONMENT, str(handed(keys, name)))


Raw = Callable[[str], SigningClient]
Show = Callable[[str], None]


# --- RocketMQ's requests


def test_each_send_is_for_topics_of_the_key_alone_and_says_which_rule(raw: Raw) -> None:
    client = raw("orders")
    assert client.put("orders", b"x").code == 0
    assert client.put("orders-made-by-it", b"x").code == 0
    refused = client.put("bills", b"x")
    assert (refused.code, "may not produce to topic 'bills': its role producer is for orders, orders-*" in
            refused.remark) == (NO_PERMISSION, True)  # fmt: skip
    for topic in ("%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "orders_other"):
        assert client.put(topic, b"x").code == NO_PERMISSION, topic
    assert client.put("orders", b"x", "DELAY\x011\x02").code == 0
    assert client.put("bills", b"x", "DELAY\x011\x02").code == NO_PERMISSION
    assert client.put("bills", b"x", "TRAN_MSG\x01true\x02PGROUP\x01g\x02").code == NO_PERMISSION


def test_a_refused_batch_leaves_nothing_in_the_log(node: RemotingNode, keys: Path, raw: Raw, show: Show) -> None:
    client = raw("orders")
    end = node.positions.get(Position.APPENDED)
    assert client.put_batch("bills", [member(0, b"one", b""), member(0, b"two", b"")]).code == NO_PERMISSION
    forged = member(0, b"x", encode_properties(delayed("bills", 0, 1).pairs))
    assert client.put_batch("SCHEDULE_TOPIC_XXXX", [forged]).code == NO_PERMISSION
    show("orders")
    with Producer(node.address, retries=0) as producer:
        producer.route("orders")
        with pytest.raises(AskRefused, match="may not produce to topic 'bills'"):
            producer.send_batch([Message("bills", b"not mine") for _ in range(3)])
    with WireClient(node.port) as wire:
        greet(wire, keys, "orders", "producer")
        mine, other = records("orders", [b"mine"]), records("bills", [b"not mine"])
        groups = [Group(b"orders", 0, 1, len(mine)), Group(b"bills", 0, 1, len(other))]
        wire.say(encode_put(7, 0, 1 << 60, groups), mine + other)
        refused = decode_put_answer(wire.hear()[0])
        assert (refused.request_id, PutStatus(refused.status)) == (7, PutStatus.NO_PERMISSION)
        assert "topic 'bills'" in refused.sentence
    assert node.positions.get(Position.APPENDED) == end


def greet(client: WireClient, keys: Path, name: str, role: str) -> None:
    """Greets as this key signs it. Raises LinkRefused."""
    facts = sign({"role": role, "cluster": "", "store": "", "name": "raw"}, read_key(handed(keys, name)))
    client.greet(**facts)


def records(topic: str, bodies: list[bytes], pairs: tuple[tuple[str, str], ...] = ()) -> bytes:
    properties = encode_properties(pairs)
    return b"".join(
        encode_record(Record(topic=topic.encode(), body=body, properties=properties, queue_id=0)) for body in bodies
    )


def test_pulls_lookups_and_offsets_are_for_topics_and_groups_of_the_key(raw: Raw) -> None:
    client = raw("reader")
    assert client.pull("billing", "bills", 0, 0).code == 0
    for group, topic in (("billing", "orders"), ("shipping", "bills"), ("billing", "%RETRY%shipping")):
        assert client.pull(group, topic, 0, 0).code == NO_PERMISSION, (group, topic)
    assert client.pull("billing", "%RETRY%billing", 0, 0).code == 0
    lookup = {"key": "key-orders", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    assert client.ask(RequestCode.QUERY_MESSAGE, {"topic": "orders", **lookup}).code == NO_PERMISSION
    found = client.ask(RequestCode.QUERY_MESSAGE, {"topic": "bills", **lookup, "key": "key-bills"})
    assert found.code == 0
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        assert client.ask(code, {"topic": "bills", "queueId": 0}).code == 0
        assert client.ask(code, {"topic": "orders", "queueId": 0}).code == NO_PERMISSION
    place = {"topic": "bills", "queueId": 0, "commitOffset": 0}
    for group, code in (("billing", 0), ("shipping", NO_PERMISSION)):
        answer = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "consumerGroup": group})
        assert answer.code == code
    assert client.join("c1", "billing", {"bills": "*", "%RETRY%billing": "*"}).code == 0
    assert client.members("billing") == ["c1"]
    assert client.join("c1", "billing", {"bills": "*", "orders": "*"}).code == NO_PERMISSION
    assert client.join("c1", "shipping", {"bills": "*"}).code == NO_PERMISSION


def offset_of(chief: SigningClient, topic: str) -> int:
    """Where the first message of a topic stands in the log."""
    body = bytes(chief.pull("g", topic, 0, 0).body)
    return int.from_bytes(body[28:36], "big")


def test_a_record_that_is_named_by_its_place_counts_for_its_topic(node: RemotingNode, raw: Raw) -> None:
    chief, client = raw("chief"), raw("reader")
    places = {topic: offset_of(chief, topic) for topic in TOPICS}
    for topic, code in (("bills", 0), ("%RETRY%billing", 0), ("orders", NO_PERMISSION),
                        ("%RETRY%shipping", NO_PERMISSION)):  # fmt: skip
        answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": places[topic]})
        assert answer.code == code, topic
        assert (b"of orders" in bytes(answer.body)) is False
    end = node.positions.get(Position.APPENDED)
    back = {"group": "billing", "delayLevel": 0, "originMsgId": "", "offset": places["orders"]}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == NO_PERMISSION
    assert node.positions.get(Position.APPENDED) == end, "no copy that it could read"
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "offset": places["bills"]}).code == 0


def test_a_consumer_of_a_group_writes_its_retry_and_dead_letter_topics(raw: Raw) -> None:
    client = raw("reader")
    assert client.put("%RETRY%billing", b"again").code == 0
    assert client.put("%DLQ%billing", b"given up").code == 0
    for topic in ("bills", "%RETRY%shipping"):
        assert client.put(topic, b"x").code == NO_PERMISSION


def test_pops_and_their_ends_are_for_topics_and_groups_of_the_key(raw: Raw) -> None:
    client = raw("bills")
    pop = {"queueId": -1, "maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0}
    found = client.ask(RequestCode.POP_MESSAGE, {**pop, "consumerGroup": "billing-pops", "topic": "bills"})
    assert found.code == 0
    for group, topic in (("billing-pops", "orders"), ("shipping", "bills")):
        for code in (RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION, RequestCode.ACK_MESSAGE):
            answer = client.ask(code, {**pop, "consumerGroup": group, "topic": topic, "offset": 0, "extraInfo": ""})
            assert answer.code == NO_PERMISSION, (code, group, topic)


def test_routes_are_for_every_key(raw: Raw) -> None:
    """So that RocketMQ's client sends, and hears from the broker why not."""
    for name in ("orders", "reader"):
        assert raw(name).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "bills"}).code == 0


def test_an_admin_of_some_topics_does_nothing_with_others_or_the_node(raw: Raw) -> None:
    client = raw("clerk")
    make = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "bills-made", **make}).code == 0
    assert client.put("bills-made", b"x").code == 0
    assert client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "bills"}).code == 0
    assert client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"}).code != NO_PERMISSION
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "bills-made"}).code == 0
    for code, fields in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders-made", **make}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "shipping"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "shipping"}),
        (RequestCode.GET_BROKER_CONFIG, {}),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (999_999, {}),
    ):
        assert client.ask(code, fields).code == NO_PERMISSION, code


def test_the_end_and_the_check_of_a_transaction_count_for_the_topic_of_its_half(raw: Raw) -> None:
    chief, client = raw("chief"), raw("orders")
    assert client.heartbeat("one-of-them", "paying").code == 0
    sent = chief.put("bills", b"secret", "TRAN_MSG\x01true\x02PGROUP\x01paying\x02UNIQ_KEY\x01half-1\x02")
    assert sent.code == 0
    end = {"producerGroup": "paying", "tranStateTableOffset": sent.fields["queueOffset"], "commitLogOffset": 0,
           "commitOrRollback": 8, "transactionId": "half-1"}  # fmt: skip
    refused = client.ask(RequestCode.END_TRANSACTION, end)
    assert (refused.code, "may not produce to topic 'bills'" in refused.remark) == (NO_PERMISSION, True)
    mine = client.put("orders", b"mine", "TRAN_MSG\x01true\x02PGROUP\x01paying\x02UNIQ_KEY\x01half-2\x02")
    assert client.await_request(RequestCode.CHECK_TRANSACTION_STATE).fields["topic"] == "orders"
    assert not [each for each in client.asked if each.fields.get("topic") == "bills"]
    ends = {**end, "tranStateTableOffset": mine.fields["queueOffset"], "transactionId": "half-2"}
    assert client.ask(RequestCode.END_TRANSACTION, ends).code == 0
    assert chief.ask(RequestCode.END_TRANSACTION, end).code == 0


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_real_java_clients_hear_of_a_topic_that_is_not_theirs(
    node: RemotingNode, keys: Path, version: str, request: pytest.FixtureRequest
) -> None:
    key = json.loads(handed(keys, "java").read_text())
    said = {}
    for topic in (f"java-{version.replace('.', '-')}", "orders"):
        words = [f"127.0.0.1:{node.port}", topic, key["name"], key["access"]]
        lines = run_tool("Signed", request.config, *words, version=version)
        said[topic[:4]] = [line for line in lines if line.startswith(("sends: ", "reads: "))]
    assert said == {
        "java": ["sends: SEND_OK, SEND_OK", "reads: 4 messages"],
        "orde": [f"sends: code {NO_PERMISSION}", f"reads: code {NO_PERMISSION}"],
    }


# --- our own clients


def test_a_producer_sends_what_its_key_reaches_and_hears_of_the_rest_by_name(node: RemotingNode, show: Show) -> None:
    show("orders")
    with Producer(node.address, retries=0) as producer:
        assert producer.send(Message("orders", b"x")).acknowledged
        assert producer.send(Message("orders", b"x", delay_level=1)).acknowledged
        with pytest.raises(AskRefused, match="NotPermitted: the key 'orders' may not produce to topic 'bills'"):
            producer.send(Message("bills", b"x"))
        with pytest.raises(AskRefused, match="NotPermitted"):
            producer.send(Message("made-for-the-asking", b"x"))
    show("chief")
    with AdminClient(node.address) as admin:
        assert "made-for-the-asking" not in {topic["topic"] for topic in admin.topics()}


@pytest.mark.parametrize("form", [delayed("bills", 0, 1), half("bills", 0, "g")], ids=["delayed", "half"])
def test_records_of_a_form_count_for_the_topic_that_they_are_for(node: RemotingNode, show: Show, form: Any) -> None:
    show("orders")
    with Producer(node.address, retries=0) as producer:
        producer.route("orders")
        end = node.positions.get(Position.APPENDED)
        own = delayed("orders", 0, 1)
        hidden = records(own.topic, [b"a"], own.pairs) + records(form.topic, [b"b"], form.pairs)
        for data, count in ((records(form.topic, [b"x"], form.pairs), 1), (hidden, 2)):
            with pytest.raises(PutRefused, match="may not produce to topic 'bills'"):
                producer.send_records(form.topic, form.queue_id, data, count).result()
        assert node.positions.get(Position.APPENDED) == end
        inside = records(own.topic, [records(form.topic, [b"x"], form.pairs)], own.pairs)
        assert producer.send_records(own.topic, own.queue_id, inside, 1).result().acknowledged, "a body says nothing"
        end = node.positions.get(Position.APPENDED)
        hiding = records(form.topic, [b"REAL_TOPIC\x01orders-"], form.pairs)  # goes on, up to the end of REAL_TOPIC
        with pytest.raises(PutRefused, match="may not produce to topic 'bills'"):
            producer.send_records(form.topic, form.queue_id, hiding, 1).result()
        assert node.positions.get(Position.APPENDED) == end


def test_a_producer_for_asyncio_is_refused_the_same(node: RemotingNode, show: Show) -> None:
    async def send() -> None:
        async with AsyncProducer(node.address, retries=0) as producer:
            assert (await producer.send(Message("orders", b"x"))).acknowledged
            with pytest.raises(AskRefused, match="may not produce to topic 'bills'"):
                await producer.send(Message("bills", b"x"))

    show("orders")
    asyncio.run(send())


def test_a_consumer_reads_and_asks_within_its_topics(node: RemotingNode, show: Show) -> None:
    show("reader")
    with Consumer(node.address, "bills", start="first") as consumer:
        await_(lambda: any(message.body == b"of bills" for message in consumer.poll(100)), 30.0, "the message")
    with Consumer(node.address, "orders", start="first") as consumer, pytest.raises(AskRefused, match="NotPermitted"):
        consumer.poll(5_000)
    asked = Caller(node.address, own_facts("consumer", "reader", ""))
    shown = {row["topic"] for row in asked.ask("topics", {}, 5_000).facts["topics"]}
    assert {"bills", "%RETRY%billing"} <= shown
    assert not shown & {"orders", "%RETRY%shipping"}
    for op, facts in (
        ("bounds", {"topic": "orders"}),
        ("follow", {"topic": "orders", "read": []}),
        ("query_key", {"topic": "orders", "key": "key-orders"}),
        ("offset_by_time", {"topic": "orders", "queue": 0, "time": 0}),
        ("store_times", {"places": [["orders", 0, 0]]}),
        ("group_describe", {"group": "shipping"}),
        ("group_commit", {"group": "billing", "offsets": {"orders": {"0": 0}}}),
        ("group_offsets", {"group": "billing", "topics": ["orders"]}),
    ):
        with pytest.raises(AskRefused, match="NotPermitted"):
            asked.ask(op, facts, 5_000)
    asked.close()


def test_what_a_question_finds_by_its_place_or_lists_is_judged_when_it_is_found(
    node: RemotingNode, raw: Raw, show: Show
) -> None:
    places = {topic: offset_of(raw("chief"), topic) for topic in ("orders", "bills")}
    show("chief")
    with AdminClient(node.address) as admin:
        admin.ask("group_commit", group="shipping", offsets={"orders": {"0": 0}})
        admin.ask("group_commit", group="billing", offsets={"bills": {"0": 0}})
    show("reader")
    asked = Caller(node.address, own_facts("consumer", "reader", ""))
    assert asked.ask("query_offset", {"offset": places["bills"]}, 5_000).facts["found"] == 1
    with pytest.raises(AskRefused, match="may not consume topic 'orders'"):
        asked.ask("query_offset", {"offset": places["orders"]}, 5_000)
    groups = {row["group"] for row in asked.ask("group_list", {}, 5_000).facts["groups"]}
    assert "billing" in groups
    assert "shipping" not in groups
    asked.close()


def test_a_member_of_a_group_gives_messages_back_with_a_consumer_s_key_alone(node: RemotingNode, show: Show) -> None:
    show("reader")
    with GroupConsumer(node.address, "billing", "bills", start="first") as member:
        message = await_(lambda: member.poll(100), 30.0, "a message")[0]
        assert message.retry_later(level=1)
    with (
        GroupConsumer(node.address, "shipping", "bills") as member,
        pytest.raises(AskRefused, match="may not consume in group 'shipping'"),
    ):
        await_(lambda: member.poll(100), 30.0, "nothing")


def test_a_transactional_producer_is_asked_about_and_ends_what_its_key_reaches(
    node: RemotingNode, raw: Raw, show: Show
) -> None:
    sent = raw("chief").put("bills", b"secret", "TRAN_MSG\x01true\x02PGROUP\x01limited\x02UNIQ_KEY\x01half-3\x02")
    asked_about: list[str] = []

    def check(message: Any) -> State:
        asked_about.append(message.topic)
        return State.COMMIT

    show("orders")
    with TransactionProducer(node.address, "limited", check) as producer:
        assert producer.send(Message("orders", b"committed"), lambda *_: State.COMMIT).ended is PutStatus.PUT_OK
        producer.send(Message("orders", b"left to a check"), lambda *_: State.UNKNOWN)
        await_(lambda: asked_about, 30.0, "the check")
    assert set(asked_about) == {"orders"}
    asked = Caller(node.address, own_facts("producer", "orders", ""))
    rows = asked.ask("transaction_list", {"group": ""}, 5_000).facts["transactions"]
    assert "bills" not in {row["topic"] for row in rows}
    facts = {"first": int(sent.fields["queueOffset"]), "group": "limited", "key": "half-3", "outcome": "commit"}
    with pytest.raises(AskRefused, match="may not produce to topic 'bills'"):
        asked.ask("transaction_end", facts, 5_000)
    with pytest.raises(LinkRefused, match="short questions only"):  # who says himself what he may do is cut off
        asked.ask("transaction_end", {**facts, "holder": {"name": "x", "roles": ["admin"], "limits": {}}}, 1_000)
    asked.close()
    assert raw("chief").put("orders", b"x").code == 0


def test_who_has_another_key_neither_becomes_a_client_that_is_there_nor_takes_it_out_of_its_group(raw: Raw) -> None:
    chief, other = raw("chief"), raw("reader")
    assert chief.join("one-of-chief", "billing", {"bills": "*"}).code == 0
    leaves = {"clientID": "one-of-chief", "consumerGroup": "billing"}
    for refused in (
        other.heartbeat("one-of-chief"),
        other.join("one-of-chief", "billing", {"bills": "*"}),
        other.ask(RequestCode.UNREGISTER_CLIENT, leaves),
    ):
        assert (refused.code, "connected with another key than 'reader'" in refused.remark) == (NO_PERMISSION, True)
    assert "one-of-chief" in chief.members("billing")
    assert chief.ask(RequestCode.UNREGISTER_CLIENT, leaves).code == 0


def test_a_pull_under_a_number_of_one_that_is_held_ends_the_connection(
    node: RemotingNode, keys: Path, raw: Raw
) -> None:
    """Else the first one's answer, which is judged by the topic that it names, would be taken for the second's."""
    assert raw("chief").put("twice", b"first").code == 0
    new_key(keys, "twice", ["consumer:twice,bills"])
    with WireClient(node.port) as wire:
        greet(wire, keys, "twice", "consumer")
        for topic in (b"twice", b"bills"):
            wire.say(*encode_pull(Pull(7, topic, 3, 0, 1, 1_000, 30_000)))
        refused = read_json(wire.hear()[1])
        assert (refused["code"], "a pull of number 7" in str(refused["sentence"])) == ("MALFORMED", True)
        assert wire.is_closed()


def test_a_connection_that_has_greeted_is_judged_by_one_key(node: RemotingNode, keys: Path) -> None:
    """Else one of two would let in what the other does."""

    class Both(SigningClient, WireClient):
        pass

    with Both(node.port, handed(keys, "everything")) as client:
        greet(client, keys, "orders", "producer")
        answer = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "bills", "queueId": 0})
        assert (answer.code, "has greeted with the key 'orders'" in answer.remark) == (NO_PERMISSION, True)


# --- changes while the node runs


def test_a_change_takes_effect_on_connections_that_are_open_and_cuts_none(
    node: RemotingNode, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = node.ended(Ending.REVOKED)
    path = new_key(keys, "changing", ["producer:orders", "consumer:orders"], ["shifting"])
    monkeypatch.setenv(ENVIRONMENT, str(path))
    with (
        SigningClient(node.port, path) as raw,
        Producer(node.address, retries=0) as producer,
        Consumer(node.address, "orders", start="first") as consumer,
    ):
        assert raw.put("orders", b"x").code == 0
        assert raw.join("changing-1", "shifting", {"orders": "*"}).code == 0
        assert raw.members("shifting") == ["changing-1"]
        assert producer.send(Message("orders", b"x")).acknowledged
        await_(lambda: consumer.poll(100), 30.0, "a message")

        change_key(keys, "changing", ["producer:bills", "consumer:bills"], ["shifting"])
        await_(lambda: raw.put("orders", b"x").code == NO_PERMISSION, 5.0, "the change at RocketMQ's request")
        assert raw.put("bills", b"x").code == 0
        await_(lambda: refusal(producer, "orders"), 5.0, "the change at our producer")
        assert "its role producer is for bills" in refusal(producer, "orders")
        assert producer.send(Message("bills", b"x")).acknowledged
        with pytest.raises(AskRefused, match="may not consume topic 'orders'"):
            await_(lambda: not consumer.poll(1_000) and None, 10.0, "the refusal")
        await_(lambda: raw.members("shifting") == [], 5.0, "the end of its membership, whose topic it has lost")

        change_key(keys, "changing", ["consumer"])
        await_(lambda: "not any more" in refusal(producer, "bills") or "its roles are consumer" in
               refusal(producer, "bills"), 5.0, "the end of the role")  # fmt: skip
        change_key(keys, "changing", ["producer"])
        await_(lambda: raw.put("orders", b"x").code == 0, 5.0, "all topics")
        await_(lambda: not refusal(producer, "orders"), 5.0, "all topics")
    assert node.ended(Ending.REVOKED) == ended


def refusal(producer: Producer, topic: str) -> str:
    try:
        producer.send(Message(topic, b"x"))
    except (AskRefused, PutRefused) as refused:
        return refused.describe()
    return ""


LOSSES: dict[str, tuple[tuple[list[str], list[str]], tuple[list[str], list[str]]]] = {  # what a key has, and then has
    "topic": ((["consumer:pulls-topic,pops-topic"], ["g"]), (["consumer:elsewhere"], ["g"])),
    "group": ((["consumer:pulls-group,pops-group"], ["g"]), (["consumer:pulls-group,pops-group"], ["h"])),
    "role": ((["consumer", "producer"], []), (["producer"], [])),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_pull_that_is_held_hears_of_the_change_and_not_of_messages(
    node: RemotingNode, keys: Path, raw: Raw, lost: str
) -> None:
    name = topic = f"pulls-{lost}"
    had, has = LOSSES[lost]
    path, chief = new_key(keys, name, *had), raw("chief")
    assert chief.put(topic, b"first").code == 0
    with SigningClient(node.port, path) as client:
        await_(lambda: client.pull("g", topic, 0, 0).code == 0, 10.0, "the message")
        fields = {"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": 1, "maxMsgNums": 32,
                  "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 30_000, "subscription": "*",
                  "subVersion": 1}  # fmt: skip
        client.send(RequestCode.PULL_MESSAGE, fields)
        change_key(keys, name, *has)
        await_(lambda: client.pull("g", topic, 0, 0).code == NO_PERMISSION, 5.0, "the change")
        assert chief.put(topic, b"secret").code == 0
        answer = client.read()
        assert (answer.code, b"secret" in bytes(answer.body)) == (NO_PERMISSION, False)


@pytest.mark.parametrize("lost", LOSSES)
def test_a_pop_that_waits_hears_of_the_change_and_not_of_messages(
    node: RemotingNode, keys: Path, raw: Raw, lost: str
) -> None:
    name = topic = f"pops-{lost}"
    had, has = LOSSES[lost]
    path, chief = new_key(keys, name, *had), raw("chief")
    assert chief.put(topic, b"first").code == 0
    # A first pop that comes before it would begin at it.
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 10.0, "the message is in its queue")
    pop = {"consumerGroup": "g", "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
           "pollTime": 0, "bornTime": 0, "initMode": 1}  # fmt: skip
    with SigningClient(node.port, path) as client:
        await_(lambda: client.ask(RequestCode.POP_MESSAGE, pop).code == ResponseCode.POLLING_TIMEOUT, 10.0, "no more")
        client.send(RequestCode.POP_MESSAGE, {**pop, "pollTime": 30_000})
        change_key(keys, name, *has)
        await_(lambda: client.ask(RequestCode.POP_MESSAGE, pop).code == NO_PERMISSION, 5.0, "the change")
        assert chief.put(topic, b"secret").code == 0
        answer = client.read()
        assert (answer.code, b"secret" in bytes(answer.body)) == (NO_PERMISSION, False)


def test_a_check_that_a_producer_waits_for_is_not_of_a_topic_that_its_key_has_lost(
    node: RemotingNode, keys: Path, raw: Raw
) -> None:
    chief = raw("chief")
    new_key(keys, "watching", ["producer:orders"])
    with WireClient(node.port) as wire:
        greet(wire, keys, "watching", "producer")

        def asks(number: int, **question: object) -> None:
            wire.say(ASK.pack(Kind.ASK, number), json_part(question))

        def is_refused(number: int) -> bool:
            asks(number, op="route", topic="orders")
            _, status, answered, _ = expect(ANSWER, wire.hear()[0])
            return bool(status and answered == number)

        asks(1, op="transaction_watch", group="watched", wait_ms=10_000)
        change_key(keys, "watching", ["producer:bills"])
        await_(lambda: is_refused(2), 5.0, "the change")
        half_of = "TRAN_MSG\x01true\x02PGROUP\x01watched\x02UNIQ_KEY\x01half-4\x02"
        assert chief.put("orders", b"secret", half_of).code == 0
        answer = wire.hear()
        assert expect(ANSWER, answer[0])[1:3] == (1, 1)
        assert read_json(answer[1])["error"] == "NotPermitted"
        assert not any(b"secret" in bytes(part) for part in answer)


def test_no_kernel_takes_sends_where_keys_are_asked_for(node: RemotingNode, keys: Path) -> None:
    """A kernel asks nobody what a key may do: so there is none, however fast a client sends what it may."""
    with SigningClient(node.port, handed(keys, "orders")) as client:
        for _ in range(50):
            assert client.put("orders", b"x").code == 0
        assert client.put("bills", b"x").code == NO_PERMISSION
    with WireClient(node.port) as wire:
        greet(wire, keys, "orders", "producer")
        mine, other = records("orders", [b"mine"]), records("bills", [b"not mine"])
        for number in range(50):
            last = number == 49
            topic, data = (b"bills", other) if last else (b"orders", mine)
            wire.say(encode_put(number, 0, 1 << 60, [Group(topic, 0, 1, len(data))]), data)
        answers = [decode_put_answer(wire.hear()[0]) for _ in range(50)]
    found = {answer.request_id: PutStatus(answer.status) for answer in answers}
    assert found == {number: PutStatus.NO_PERMISSION if number == 49 else PutStatus.PUT_OK for number in range(50)}
