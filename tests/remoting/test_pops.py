"""Pops, frame by frame: what is out, what comes again, where the group's offset stands, and what is refused."""

import json
import os
import signal
import threading
import time

import pytest

from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command

from .conftest import RemotingNode
from .other_clients import make_topic
from .popping import ack, acks_of, extend, messages_of, offset, pop, popped
from .raw import RawClient

SUCCESS, NO_PERMISSION, NO_TOPIC, BAD_FILTER, INVALID, ILLEGAL = 0, 16, 17, 23, 29, 13
NO_MESSAGE, OVER = 208, 210
WAIT_S = 30.0
SOON_MS = 500


def filled(client: RawClient, topic: str, count: int, **more: object) -> None:
    """Messages 0, 1, ... in queue 0, all of which can be read."""
    for number in range(count):
        assert client.put(topic, b"%d" % number, **more).code == SUCCESS
    await_(lambda: client.pull("of-nobody", topic, 0, count - 1).code == SUCCESS, WAIT_S, "the last message")


def stands_at(client: RawClient, group: str, topic: str, wanted: int) -> None:
    await_(lambda: offset(client, group, topic) == wanted, WAIT_S, f"the offset {wanted} of {group}")


# --- pops and acks


def test_the_groups_offset_follows_acks_and_never_passes_what_is_out(client: RawClient) -> None:
    filled(client, "acks", 5)
    found = popped(client, "g", "acks")
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3", b"4"]
    stands_at(client, "g", "acks", 0)
    for place in (1, 2, 4):
        assert ack(client, "g", found[place]).code == SUCCESS
    assert pop(client, "g", "acks", pollTime=300).code == OVER
    assert offset(client, "g", "acks") == 0
    assert ack(client, "g", found[0]).code == SUCCESS
    stands_at(client, "g", "acks", 3)
    assert ack(client, "g", found[3]).code == SUCCESS
    stands_at(client, "g", "acks", 5)


def test_acks_of_many_at_once(client: RawClient) -> None:
    filled(client, "batches", 12)
    answer = pop(client, "g", "batches")
    pop_time = int(answer.fields["popTime"])
    assert len(messages_of(answer, "g", "batches")) == 12
    rows = [acks_of("g", "batches", 0, 0, pop_time, [0, 1, 2, 9, 11]), acks_of("g", "batches", 0, 0, pop_time, [3])]
    body = json.dumps({"brokerName": "x", "acks": rows}).encode()
    assert client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body).code == SUCCESS
    stands_at(client, "g", "batches", 4)


def test_a_pop_takes_from_all_queues_and_no_message_twice(client: RawClient, node: RemotingNode) -> None:
    make_topic(f"127.0.0.1:{node.port}", "wide")
    for number in range(40):
        assert client.put("wide", b"%d" % number, e=number % 4).code == SUCCESS
    seen: list[bytes] = []

    def all_seen() -> bool:
        found = popped(client, "g", "wide", maxMsgNums=7, pollTime=1_000)
        assert len(found) <= 7
        seen.extend(each.body for each in found)
        return len(seen) == 40

    await_(all_seen, WAIT_S, "40 messages")
    assert sorted(seen) == sorted(b"%d" % number for number in range(40))
    only = popped(client, "h", "wide", queueId=2)
    assert {each.queue for each in only} == {2}
    assert len(only) == 10


def test_a_pop_waits_for_a_message(node: RemotingNode, client: RawClient) -> None:
    filled(client, "later", 1)
    assert len(popped(client, "g", "later")) == 1
    found: list[Command] = []
    with RawClient(node.port) as other:
        waiting = threading.Thread(target=lambda: found.append(pop(other, "g", "later", pollTime=20_000)))
        waiting.start()
        place = {"consumerGroup": "g", "topic": "later", "queueId": -1}
        await_(
            lambda: client.ask(RequestCode.POLLING_INFO, place).fields["pollingNum"] == "1", WAIT_S, "a pop that waits"
        )
        assert client.put("later", b"new").code == SUCCESS
        waiting.join(WAIT_S)
    assert [each.body for each in messages_of(found[0], "g", "later")] == [b"new"]
    assert client.ask(RequestCode.POLLING_INFO, place).fields["pollingNum"] == "0"


def test_a_pop_whose_client_has_gone_gets_nothing(node: RemotingNode, client: RawClient) -> None:
    filled(client, "gone", 1)
    assert len(popped(client, "g", "gone")) == 1
    with RawClient(node.port) as other:
        other.send(RequestCode.POP_MESSAGE, {"consumerGroup": "g", "topic": "gone", "queueId": -1, "maxMsgNums": 32,
                   "invisibleTime": 60_000, "pollTime": 20_000, "bornTime": 0, "initMode": 0})  # fmt: skip
        place = {"consumerGroup": "g", "topic": "gone", "queueId": -1}
        await_(
            lambda: client.ask(RequestCode.POLLING_INFO, place).fields["pollingNum"] == "1", WAIT_S, "a pop that waits"
        )
    ended = f"the connection of 127.0.0.1:{other.socket_port} ends"
    await_(lambda: ended in node.store.node_log.read_text(), WAIT_S, "the end of the connection")
    assert client.put("gone", b"new").code == SUCCESS
    assert [each.body for each in popped(client, "g", "gone")] == [b"new"]


def test_a_notification_tells_whether_there_is_something_and_takes_nothing(client: RawClient) -> None:
    filled(client, "told", 1)
    place = {"consumerGroup": "g", "topic": "told", "queueId": -1, "bornTime": 0}
    answer = client.ask(RequestCode.NOTIFICATION, {**place, "pollTime": 10_000})
    assert answer.fields == {"hasMsg": "true", "pollingFull": "false"}
    assert len(popped(client, "g", "told")) == 1
    assert client.ask(RequestCode.NOTIFICATION, {**place, "pollTime": 300}).fields["hasMsg"] == "false"


def test_a_group_without_offsets_begins_at_the_first_message_or_in_a_young_queue_too(client: RawClient) -> None:
    filled(client, "begin", 3)
    assert len(popped(client, "first", "begin", initMode=0)) == 3
    assert len(popped(client, "last", "begin", initMode=1)) == 3


@pytest.mark.parametrize(("kind", "expression"), [("TAG", "A || C"), ("SQL92", "TAGS IN ('A', 'C')")])
def test_a_pop_gets_what_its_filter_takes_and_the_rest_is_done(client: RawClient, kind: str, expression: str) -> None:
    topic = f"filtered-{kind}"
    for number, tag in enumerate("ABCBB"):
        assert client.put(topic, b"%d" % number, f"TAGS\x01{tag}\x02").code == SUCCESS
    found = popped(client, "g", topic, expType=kind, exp=expression)
    assert [each.body for each in found] == [b"0", b"2"]
    for each in found:
        ack(client, "g", each)
    assert pop(client, "g", topic, expType=kind, exp=expression, pollTime=300).code == OVER
    stands_at(client, "g", topic, 5)


# --- what comes again


def test_what_is_not_acknowledged_in_time_comes_again_and_counts(client: RawClient) -> None:
    filled(client, "again", 2)
    first, second = popped(client, "g", "again", invisibleTime=SOON_MS)
    assert ack(client, "g", second).code == SUCCESS
    (found,) = popped(client, "g", "again", invisibleTime=SOON_MS)
    assert (found.body, found.times, found.topic) == (b"0", 1, "%RETRY%g_again")
    assert found.properties["1ST_POP_TIME"] == first.handle.split(" ")[1]
    stands_at(client, "g", "again", 2)
    (found,) = popped(client, "g", "again")
    assert (found.body, found.times) == (b"0", 2)
    assert ack(client, "g", found).code == SUCCESS
    await_(lambda: offset(client, "g", "%RETRY%g_again") == 2, WAIT_S, "the offset of the retry topic")


def test_a_message_is_kept_for_longer_and_its_former_handle_is_none_any_more(client: RawClient) -> None:
    filled(client, "longer", 1)
    (found,) = popped(client, "g", "longer", invisibleTime=SOON_MS)
    answer = extend(client, "g", found, 3_000)
    assert answer.code == SUCCESS
    assert pop(client, "g", "longer", pollTime=1_500).code == OVER
    assert ack(client, "g", found).code == SUCCESS
    assert extend(client, "g", found, 60_000).code == NO_MESSAGE
    (again,) = popped(client, "g", "longer")
    assert again.times == 1, "the former handle acknowledges nothing"


def test_a_new_handle_is_another_however_soon_it_is_asked_for(client: RawClient) -> None:
    filled(client, "soon", 64)
    for _ in range(64):
        (message,) = popped(client, "g", "soon", maxMsgNums=1)
        answer = extend(client, "g", message, 60_000)
        assert int(answer.fields["popTime"]) > int(message.handle.split(" ")[1])
        assert extend(client, "g", message, 60_000).code == NO_MESSAGE


def test_a_message_that_is_given_back_comes_at_once(client: RawClient) -> None:
    filled(client, "back", 1)
    (found,) = popped(client, "g", "back")
    began = time.monotonic()
    assert extend(client, "g", found, 1).code == SUCCESS
    (again,) = popped(client, "g", "back")
    assert again.times == 1
    assert time.monotonic() - began < 10


# --- order


def test_pops_in_order_get_nothing_before_what_is_out_is_done(client: RawClient) -> None:
    filled(client, "order", 4)
    first = popped(client, "g", "order", order="true", maxMsgNums=2, attemptId="a")
    assert [each.body for each in first] == [b"0", b"1"]
    assert pop(client, "g", "order", order="true", attemptId="b", pollTime=300).code == OVER
    again = popped(client, "g", "order", order="true", maxMsgNums=2, attemptId="a")
    assert [each.body for each in again] == [b"0", b"1"], "an attempt that is made again"
    for each in again:
        assert ack(client, "g", each).code == SUCCESS
    stands_at(client, "g", "order", 2)
    assert [each.body for each in popped(client, "g", "order", order="true", attemptId="c")] == [b"2", b"3"]


def test_what_is_not_acknowledged_in_order_comes_again_before_all_else(client: RawClient) -> None:
    filled(client, "ordered", 3)
    first, _ = popped(client, "g", "ordered", order="true", maxMsgNums=2, invisibleTime=SOON_MS)
    assert ack(client, "g", first).code == SUCCESS
    answer = pop(client, "g", "ordered", order="true")
    assert [each.body for each in messages_of(answer, "g", "ordered")] == [b"1", b"2"]
    assert "0 qo0%1 1" in answer.fields["orderCountInfo"].split(";")


# --- modes, and queues that the node divides


def test_how_a_group_reads_is_kept_over_a_kill_of_serve(node: RemotingNode, client: RawClient) -> None:
    filled(client, "modes", 1)
    said = {"topic": "modes", "consumerGroup": "g-modes", "mode": "POP", "popShareQueueNum": 0}
    assert client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(said).encode()).code == SUCCESS
    client.join("one", "g-modes", {"modes": "*"})
    assert assigned(client, "g-modes", "modes", "one") == [("POP", -1)]
    before = node.pids()
    os.kill(before["serve"], signal.SIGKILL)
    node.await_restarted("serve", before)
    await_(lambda: assigned(client, "g-modes", "modes", "one") == [("POP", -1)], WAIT_S, "the mode")
    assert assigned(client, "others", "modes", "one") is None
    said["topic"] = "%RETRY%g-modes"
    assert client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(said).encode()).code == NO_PERMISSION
    said["topic"] = "nowhere"
    assert client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(said).encode()).code == NO_TOPIC


def assigned(client: RawClient, group: str, topic: str, client_id: str) -> list[tuple[str, int]] | None:
    said = {"topic": topic, "consumerGroup": group, "clientId": client_id, "strategyName": "AVG",
            "messageModel": "CLUSTERING"}  # fmt: skip
    answer = client.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(said).encode())
    if answer.code != SUCCESS:
        return []
    rows = json.loads(bytes(answer.body))["messageQueueAssignments"]
    return None if rows is None else sorted((row["mode"], row["messageQueue"]["queueId"]) for row in rows)


def test_queues_are_divided_among_members_that_pull(node: RemotingNode, client: RawClient) -> None:
    make_topic(f"127.0.0.1:{node.port}", "divided")
    with RawClient(node.port) as other:
        client.join("one", "dividing", {"divided": "*"})
        other.join("two", "dividing", {"divided": "*"})

        def divided() -> bool:
            halves = [assigned(client, "dividing", "divided", name) for name in ("one", "two")]
            return halves == [[("PULL", 0), ("PULL", 1)], [("PULL", 2), ("PULL", 3)]]

        await_(divided, WAIT_S, "two queues each")


def test_offsets_that_are_set_anew_are_where_pops_go_on(client: RawClient) -> None:
    filled(client, "reset", 3)
    for each in popped(client, "g", "reset"):
        ack(client, "g", each)
    stands_at(client, "g", "reset", 3)
    fields = {"topic": "reset", "group": "g", "timestamp": 0, "isForce": "true"}
    assert client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == SUCCESS
    assert [each.body for each in popped(client, "g", "reset")] == [b"0", b"1", b"2"]


# --- refusals


def test_what_nobody_can_pop_is_refused(client: RawClient) -> None:
    filled(client, "refused", 1)
    assert pop(client, "g", "nowhere").code == NO_TOPIC
    for more in (
        {"maxMsgNums": 0},
        {"maxMsgNums": 33},
        {"invisibleTime": 0},
        {"invisibleTime": 1 << 40},
        {"queueId": 9},
    ):
        assert pop(client, "g", "refused", **more).code == INVALID, more
    assert pop(client, "g", "refused", expType="SQL92", exp="a = ").code == BAD_FILTER
    assert pop(client, "no group!", "refused").code != SUCCESS
    (found,) = popped(client, "g", "refused")
    for handle in ("", "x", "0 1 2 3", "0 1 2 3 0 b x 0", "0 1 2 3 0 b 0 0".replace("1", "-1")):
        fields = {"consumerGroup": "g", "topic": "refused", "queueId": 0, "extraInfo": handle, "offset": 0}
        assert client.ask(RequestCode.ACK_MESSAGE, fields).code == 1, handle
    assert client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[{"c":1}]}').code == 1
    row = acks_of("g", "refused", 0, 0, 1, [0]) | {"b": base64_of_too_many()}
    assert client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps({"acks": [row]}).encode()).code == 1
    assert extend(client, "g", found, 0).code == INVALID
    assert ack(client, "g", found).code == SUCCESS


def base64_of_too_many() -> str:
    return "/" * 4_000


def test_a_group_that_may_not_consume_pops_nothing(client: RawClient) -> None:
    filled(client, "disabled", 1)
    body = json.dumps({"groupName": "g-disabled", "consumeEnable": False}).encode()
    assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == SUCCESS
    assert pop(client, "g-disabled", "disabled").code == NO_PERMISSION
