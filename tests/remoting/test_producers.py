"""Producers of RocketMQ's clients, frame by frame: what is answered, and what readers see."""

import json
import time
from pathlib import Path

import pytest

from tests.format.remoting.test_batch import item
from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.format.record.message_id import encode_offset_id
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import ONE_WAY, Form
from towline.format.remoting.stored import RecallHandle
from towline.limits import MIB

from .conftest import RemotingNode, remoting_node
from .raw import RawClient, sent
from .reading import bodies, messages

SUCCESS, SYSTEM_ERROR, NOT_SUPPORTED, ILLEGAL, NO_PERMISSION, NO_TOPIC, INVALID = 0, 1, 3, 13, 16, 17, 29
KEY = "0A" * 16


@pytest.mark.parametrize("form", Form)
def test_a_message_gets_what_a_broker_adds_and_is_answered_with_its_place(node: RemotingNode, form: Form) -> None:
    topic = f"plain-{form.name}"
    with RawClient(node.port, form) as client:
        answer = client.put(topic, b"hello", f"UNIQ_KEY\x01{KEY}\x02TAGS\x01A", h=-7)
        assert answer.code == SUCCESS
        again = client.put(topic, b"again")
    (first, second) = messages(node, topic, 2)
    assert (first.body, first.tags, first.unique_key, first.record.flag) == (b"hello", "A", KEY, -7)
    assert {"CLUSTER", "MSG_REGION", "TRACE_ON"} <= first.properties.keys()
    assert first.record.born_host.port == client.socket_port
    assert answer.fields["transactionId"] == KEY
    assert second.unique_key == again.fields["transactionId"]
    for found, message in ((answer, first), (again, second)):
        assert found.fields["queueId"] == str(message.record.queue_id)
        assert found.fields["queueOffset"] == str(message.record.queue_offset)
        assert found.fields["msgId"] == encode_offset_id(message.record.store_host, message.record.physical_offset)
        assert message.record.store_host.port == node.port
        assert (found.fields["MSG_REGION"], found.fields["TRACE_ON"]) == ("DefaultRegion", "true")


def test_a_topic_is_made_as_its_first_producer_asks_within_what_the_template_has(client: RawClient) -> None:
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "fresh"}).code == NO_TOPIC
    template = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert template.code == SUCCESS
    assert b'"perm":7' in template.body
    assert client.put("fresh", b"x", d=2).code == SUCCESS
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "fresh"})
    assert b'"writeQueueNums":2' in route.body
    assert b'"perm":6' in route.body


def test_a_topic_is_made_and_changed_on_request(client: RawClient) -> None:
    fields = {"topic": "asked", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
              "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == SUCCESS
    changed = {**fields, "readQueueNums": 5, "writeQueueNums": 5}
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, changed).code == SUCCESS
    assert b'"readQueueNums":5' in client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "asked"}).body
    refused = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "readQueueNums": 0})
    assert refused.code == INVALID
    assert "queues" in refused.remark


def test_the_cluster_names_its_broker_and_where_it_listens(node: RemotingNode, client: RawClient) -> None:
    found = json.loads(bytes(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body))
    ((cluster, (broker,)),) = found["clusterAddrTable"].items()
    assert found["brokerAddrTable"][broker]["brokerAddrs"] == {"0": f"127.0.0.1:{node.port}"}
    assert found["brokerAddrTable"][broker]["cluster"] == cluster


def test_a_queue_below_0_is_any(node: RemotingNode, client: RawClient) -> None:
    assert {client.put("any", b"x", e=-1).fields["queueId"] for _ in range(8)} == {"0", "1", "2", "3"}


def test_the_members_of_a_batch_are_stored_together_in_their_order(node: RemotingNode, client: RawClient) -> None:
    body = b"".join(item(number, b"%d" % number, b"TAGS\x01A") for number in range(5))
    answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, sent("batches", "", m="true"), body)
    assert answer.code == SUCCESS
    found = messages(node, "batches", 5)
    assert [message.body for message in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.record.flag for message in found] == [0, 1, 2, 3, 4]
    assert [message.properties for message in found] == [{"TAGS": "A"}] * 5
    assert answer.fields["msgId"].split(",") == [
        f"{answer.fields['msgId'][:16]}{message.record.physical_offset:016X}" for message in found
    ]


def test_what_is_sent_one_way_is_stored_and_never_answered(node: RemotingNode, client: RawClient) -> None:
    client.put_one_way("oneway", b"quiet")
    client.send(RequestCode.SEND_MESSAGE_V2, {"b": "oneway"}, b"", ONE_WAY)  # refused, and not told
    assert client.put("oneway", b"loud").code == SUCCESS
    assert client.asked == []
    assert bodies(node, "oneway", 2) == [b"quiet", b"loud"]


def test_what_comes_while_its_topic_is_made_is_stored_in_its_order(node: RemotingNode, client: RawClient) -> None:
    for number in range(300):
        client.send(RequestCode.SEND_MESSAGE_V2, sent("being-made", ""), b"%d" % number)
    assert {client.read().code for _ in range(300)} == {SUCCESS}
    assert bodies(node, "being-made", 300) == [b"%d" % number for number in range(300)]


def test_small_and_large_messages_of_one_connection_keep_their_order(node: RemotingNode, client: RawClient) -> None:
    """The largest go to put another way than the others: through its socket."""
    assert client.put("mixed", b"first").code == SUCCESS
    largest = 4 * MIB - 1_000  # nearly as much as a producer of RocketMQ sends, and as the segments of this node hold
    sizes = [10, largest, 20, 30, 3 * MIB, largest, 40, 2 * MIB, 50] * 3
    for size in sizes:
        client.send(RequestCode.SEND_MESSAGE_V2, sent("mixed", ""), bytes(size))
    answers = [client.read() for _ in sizes]
    assert {(answer.code, answer.remark) for answer in answers} == {(SUCCESS, "")}
    found = [len(message.body) for message in messages(node, "mixed", 1 + len(sizes)) if message.record.queue_id == 0]
    assert found == [5, *sizes]


def test_requests_that_come_at_once_are_all_answered_each_by_its_number(node: RemotingNode, client: RawClient) -> None:
    client.put("many", b"first")
    numbers = {client.send(RequestCode.SEND_MESSAGE_V2, sent("many", ""), b"%d" % number) for number in range(1_000)}
    answers = [client.read() for _ in range(1_000)]
    assert {answer.opaque for answer in answers} == numbers
    assert {answer.code for answer in answers} == {SUCCESS}
    assert bodies(node, "many", 1_001)[1:] == [b"%d" % number for number in range(1_000)]


def test_a_delayed_and_a_timed_message_come_when_they_are_due(node: RemotingNode, client: RawClient) -> None:
    began = time.time()
    delayed = client.put("later", b"delayed", "DELAY\x011\x02")
    timed = client.put("later", b"timed", f"TIMER_DELIVER_MS\x01{int((began + 1.5) * 1000)}\x02UNIQ_KEY\x01{KEY}\x02")
    assert (delayed.code, timed.code) == (SUCCESS, SUCCESS)
    found = {message.body: message for message in messages(node, "later", 2)}
    assert time.time() >= began + 1
    assert found[b"delayed"].record.store_timestamp >= int(began * 1000) + 1_000
    assert found[b"timed"].record.store_timestamp >= int(began * 1000) + 1_500
    assert RecallHandle.read(timed.fields["recallHandle"]).unique_key == KEY


def test_a_recalled_message_does_not_come(node: RemotingNode, client: RawClient) -> None:
    recalled = client.put("recalls", b"recalled", "TIMER_DELAY_MS\x012500\x02")
    kept = client.put("recalls", b"kept", "TIMER_DELAY_MS\x012500\x02")
    fields = {"topic": "recalls", "recallHandle": recalled.fields["recallHandle"]}
    answer = client.ask(RequestCode.RECALL_MESSAGE, fields)
    assert (answer.code, answer.fields["msgId"]) == (SUCCESS, recalled.fields["transactionId"])
    assert kept.code == SUCCESS
    assert client.put("recalls", b"at once").code == SUCCESS
    assert bodies(node, "recalls", 2) == [b"at once", b"kept"]
    other = client.ask(RequestCode.RECALL_MESSAGE, {**fields, "topic": "others"})
    assert other.code == ILLEGAL


def test_a_message_that_was_retried_too_often_becomes_a_dead_letter(node: RemotingNode, client: RawClient) -> None:
    assert client.put("%RETRY%workers", b"once more", j=3, l=3).code == SUCCESS
    assert client.put("%RETRY%workers", b"given up", j=4, l=3).code == SUCCESS
    (once,) = messages(node, "%RETRY%workers", 1)
    assert (once.body, once.record.reconsume_times) == (b"once more", 3)
    assert bodies(node, "%DLQ%workers", 1) == [b"given up"]


# --- transactions


def half(client: RawClient, body: bytes, key: str, group: str = "billing") -> dict[str, object]:
    answer = client.put("orders", body, f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01{key}\x02", f=4)
    assert answer.code == SUCCESS
    offset = int(answer.fields["msgId"][16:], 16)
    return {
        "producerGroup": group,
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": offset,
        "msgId": key,
        "transactionId": answer.fields["transactionId"],
    }


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_rolled_back(
    node: RemotingNode, client: RawClient
) -> None:
    ends = [half(client, body, f"{number:032X}") for number, body in enumerate((b"rolled back", b"committed"))]
    for end, outcome in zip(ends, (12, 8), strict=True):
        assert client.ask(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": outcome}).code == SUCCESS
    assert client.put("orders", b"after").code == SUCCESS
    assert set(bodies(node, "orders", 2)) == {b"committed", b"after"}
    refused = client.ask(RequestCode.END_TRANSACTION, {**ends[0], "commitOrRollback": 8})
    assert refused.code == SYSTEM_ERROR
    assert client.ask(RequestCode.END_TRANSACTION, {**ends[1], "commitOrRollback": 8}).code == SUCCESS, "twice is once"


def test_an_open_transaction_is_checked_with_a_client_of_its_group(node: RemotingNode, client: RawClient) -> None:
    with RawClient(node.port) as other:
        assert other.heartbeat("elsewhere@1", "shipping").code == SUCCESS
        assert client.heartbeat("here@1", "billing").code == SUCCESS
        end = half(client, b"undecided", "F" * 32)
        assert client.ask(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": 0}).code == SUCCESS
        check = client.await_request(RequestCode.CHECK_TRANSACTION_STATE)
        while check.fields["transactionId"] != "F" * 32:  # of another test
            check = client.await_request(RequestCode.CHECK_TRANSACTION_STATE)
        assert check.is_one_way
        assert check.fields["topic"] == "orders"
        assert b"undecided" in bytes(check.body)
        told = {
            "producerGroup": "billing",
            "tranStateTableOffset": check.fields["tranStateTableOffset"],
            "commitLogOffset": check.fields["commitLogOffset"],
            "msgId": check.fields["msgId"],
            "transactionId": check.fields["transactionId"],
            "commitOrRollback": 8,
            "fromTransactionCheck": "true",
        }
        client.send(RequestCode.END_TRANSACTION, told, b"", ONE_WAY)
    await_(lambda: b"undecided" in bodies(node, "orders", 1), 30.0, "the message of the transaction")


def test_who_sent_the_last_half_is_checked_before_any_heartbeat(node: RemotingNode, client: RawClient) -> None:
    with RawClient(node.port) as gone:
        half(gone, b"sent before", "A" * 32, "shy")
    half(client, b"sent", "B" * 32, "shy")
    found = {client.await_request(RequestCode.CHECK_TRANSACTION_STATE).fields["transactionId"] for _ in range(8)}
    assert {"A" * 32, "B" * 32} <= found
    assert client.heartbeat("late@1", "shy").code == SUCCESS
    assert client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "late@1", "producerGroup": "shy"}).code == SUCCESS


# --- replies


def test_a_reply_goes_to_who_asked_and_is_stored(node: RemotingNode, client: RawClient) -> None:
    with RawClient(node.port) as replier:
        assert client.heartbeat("asker@1", "pg").code == SUCCESS
        properties = "REPLY_TO_CLIENT\x01asker@1\x02CORRELATION_ID\x01c-1\x02"
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, sent("c1_REPLY_TOPIC", properties), b"the reply")
        assert answer.code == SUCCESS
        pushed = client.await_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        assert bytes(pushed.body) == b"the reply"
        assert pushed.fields["properties"] == properties
        assert not pushed.is_one_way
        nobody = replier.ask(
            RequestCode.SEND_REPLY_MESSAGE_V2, sent("c1_REPLY_TOPIC", "REPLY_TO_CLIENT\x01gone\x02"), b"lost"
        )
        assert nobody.code == SUCCESS, "stored; the requester's own time-out says the rest"
    assert bodies(node, "c1_REPLY_TOPIC", 2) == [b"the reply", b"lost"]


# --- refusals


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        ({"e": 99}, INVALID, "queueId"),
        ({"i": "DELAY\x01x\x02bad\x00name\x01v\x02"}, ILLEGAL, "NUL|0x00"),
        ({"i": "TIMER_DELAY_SEC\x0199999999\x02"}, ILLEGAL, "delay time"),
        ({"b": "no/topic"}, INVALID, "topic"),
        ({"b": "x" * 128}, INVALID, "topic"),
        ({"b": "OFFSET_MOVED_EVENT"}, NO_PERMISSION, "topic"),
        ({"h": 1 << 31}, SYSTEM_ERROR, "32 bits"),
        ({"b": None}, SYSTEM_ERROR, "missing"),
        ({"i": "k\x01" + "v" * 32_760}, ILLEGAL, "properties"),
        ({"i": "k\x01" + "\u4e2d" * 32_769}, ILLEGAL, "properties"),
    ],
)
def test_a_message_that_cannot_be_is_refused_with_the_reason(client: RawClient, fields, code, why) -> None:
    given = {name: value for name, value in {**sent("refused", ""), **fields}.items() if value is not None}
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, given, b"x")
    assert (answer.code, any(part in answer.remark for part in why.split("|"))) == (code, True), answer.remark
    assert client.put("refused", b"goes on").code == SUCCESS


def test_a_request_that_nobody_handles_is_refused_by_its_number(client: RawClient) -> None:
    answer = client.ask(9_999)
    assert (answer.code, answer.remark) == (NOT_SUPPORTED, "request type 9999 not supported")


def test_a_node_without_a_ring_takes_the_same_over_puts_socket(tmp_path: Path) -> None:
    made = remoting_node(tmp_path / "store", shared_memory_puts=False)
    with ending(made):
        made.start()
        with RawClient(made.port) as client:
            # A node that has just started says for a moment that put is away.
            await_(lambda: client.put("ringless", b"first").code == SUCCESS, 30.0, "put is there")
            for number in range(300):
                client.send(RequestCode.SEND_MESSAGE_V2, sent("ringless", f"UNIQ_KEY\x01{number:032X}"), b"%d" % number)
            assert {client.read().code for _ in range(300)} == {SUCCESS}
            assert bodies(made, "ringless", 301)[1:] == [b"%d" % number for number in range(300)]
        assert made.stop()
        check_nothing_is_left(made)
