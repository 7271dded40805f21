"""Consumers of RocketMQ's clients, frame by frame: pulls, offsets, groups, locks, messages that come back."""

import json
import os
import signal
import threading
import time

import pytest

from tests.processes.grouping import serve_of
from tests.processes.waiting import await_
from towline.client.group.consumer import GroupConsumer
from towline.format.record.record import decode
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command

from .conftest import RemotingNode
from .raw import RawClient
from .reading import messages

SUCCESS, ERROR, NOT_FOUND, AGAIN, MOVED, NO_QUERY, BAD_FILTER = 0, 1, 19, 20, 21, 22, 23
NO_TOPIC, INVALID = 17, 29
UNKNOWN_SUBSCRIPTION, OLD_SUBSCRIPTION = 24, 25
SUSPENDS, COMMITS = 2, 1
WAIT_S = 30.0


def filled(client: RawClient, topic: str, count: int, tag: str = "A") -> None:
    """Messages 0, 1, ... in queue 0, which can be pulled when this returns."""
    for number in range(count):
        assert client.put(topic, b"%d" % number, f"TAGS\x01{tag}\x02KEYS\x01k{number}\x02").code == SUCCESS
    await_(lambda: client.pull("g", topic, 0, count - 1).code == SUCCESS, WAIT_S, "the last message")


def bodies_in(answer: Command) -> list[bytes]:
    data, at, found = bytes(answer.body), 0, []
    while at < len(data):
        found.append(decode(data, at).body)
        at += int.from_bytes(data[at : at + 4], "big")
    return found


# --- pulls


def test_a_pull_gets_records_as_they_are_stored_and_what_to_ask_for_next(client: RawClient) -> None:
    filled(client, "pulls", 5)
    answer = client.pull("g", "pulls", 0, 1, maxMsgNums=3)
    assert bodies_in(answer) == [b"1", b"2", b"3"]
    given = {name: answer.fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")}
    assert given == {"nextBeginOffset": "4", "minOffset": "0", "maxOffset": "5"}
    assert answer.fields["suggestWhichBrokerId"] == "0"
    assert bodies_in(client.ask(RequestCode.LITE_PULL_MESSAGE, {
        "consumerGroup": "g", "topic": "pulls", "queueId": 0, "queueOffset": 4, "maxMsgNums": 32, "sysFlag": 20,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "maxMsgBytes": 2_147_483_647,
    })) == [b"4"]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "code", "following"),
    [
        ({"offset": 5}, NOT_FOUND, "5"),
        ({"offset": 9}, MOVED, "5"),
        ({"offset": 0, "subscription": "none"}, AGAIN, "5"),
        ({"offset": 0, "queue": 99}, INVALID, None),
        ({"offset": 0, "queue": -1}, INVALID, None),
        ({"offset": 0, "topic": "nowhere"}, NO_TOPIC, None),
    ],
)
def test_a_pull_that_finds_nothing_says_why_by_code(client: RawClient, asked, code, following) -> None:
    filled(client, "codes", 5) if client.pull("g", "codes", 0, 4).code else None
    given = {"topic": "codes", "queue": 0, **asked}
    more = {name: value for name, value in given.items() if name == "subscription"}
    answer = client.pull("g", given["topic"], given["queue"], given["offset"], **more)
    assert (answer.code, answer.fields.get("nextBeginOffset")) == (code, following)


def test_a_held_pull_is_answered_when_a_message_comes_or_its_time_is_over(
    node: RemotingNode, client: RawClient
) -> None:
    filled(client, "held", 1)
    began = time.monotonic()
    empty = client.pull("g", "held", 0, 1, sysFlag=4 | SUSPENDS, suspendTimeoutMillis=500)
    assert (empty.code, time.monotonic() - began >= 0.4) == (NOT_FOUND, True)
    with RawClient(node.port) as other:
        later = threading.Timer(0.3, other.put, ("held", b"new"))
        later.start()
        found = client.pull("g", "held", 0, 1, sysFlag=4 | SUSPENDS, suspendTimeoutMillis=20_000)
        later.join()
    assert bodies_in(found) == [b"new"]
    assert time.monotonic() - began < 10


def test_a_pull_without_a_subscription_uses_the_newest_of_its_group(node: RemotingNode, client: RawClient) -> None:
    filled(client, "beats", 3)
    assert client.pull("beating", "beats", 0, 0, sysFlag=0).code == UNKNOWN_SUBSCRIPTION
    assert client.join("one@1", "beating", {"beats": "*"}).code == SUCCESS
    assert bodies_in(client.pull("beating", "beats", 0, 0, sysFlag=0)) == [b"0", b"1", b"2"]
    assert client.pull("beating", "beats", 0, 0, sysFlag=0, subVersion=2).code == OLD_SUBSCRIPTION
    with RawClient(node.port) as other:
        assert other.join("two@1", "beating", {"beats": "none"}, subVersion=2).code == SUCCESS
        assert client.pull("beating", "beats", 0, 0, sysFlag=0, subVersion=2).code == AGAIN


def test_a_filter_that_nobody_can_evaluate_is_refused_with_its_place(client: RawClient) -> None:
    filled(client, "filters", 2)
    for expression, kind, code in (("a > ", "SQL92", BAD_FILTER), ("||", "TAG", BAD_FILTER), ("a = 1", "SQL92", AGAIN)):
        answer = client.pull("g", "filters", 0, 0, subscription=expression, expressionType=kind)
        assert answer.code == code, answer.remark
    said = {"clientId": "c", "group": "g", "subscriptionData": {
        "topic": "filters", "subString": "a >", "expressionType": "SQL92", "subVersion": 1}}  # fmt: skip
    refused = client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(said).encode())
    assert refused.code == BAD_FILTER
    said["subscriptionData"]["subString"] = "a > 1"
    assert client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(said).encode()).code == SUCCESS


# --- offsets and single messages


def test_bounds_and_times_of_a_queue(client: RawClient) -> None:
    filled(client, "bounds", 3)
    place = {"topic": "bounds", "queueId": 0}
    assert client.ask(RequestCode.GET_MIN_OFFSET, place).fields["offset"] == "0"
    assert client.ask(RequestCode.GET_MAX_OFFSET, place).fields["offset"] == "3"
    first = int(client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, place).fields["timestamp"])
    assert 0 < time.time() * 1000 - first < 60_000
    assert client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {**place, "queueId": 1}).fields["timestamp"] == "-1"
    found = client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**place, "timestamp": first})
    assert found.fields["offset"] == "0"
    late = {**place, "timestamp": first + 3_600_000, "boundaryType": "UPPER"}
    assert client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, late).code == SUCCESS


def test_a_groups_offset_is_0_in_a_queue_that_begins_there_and_what_was_committed_after(client: RawClient) -> None:
    filled(client, "offsets", 3)
    place = {"consumerGroup": "committers", "topic": "offsets", "queueId": 0}

    def stored(**more: object) -> tuple[int, str | None]:
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**place, **more})
        return answer.code, answer.fields.get("offset")

    assert stored() == (SUCCESS, "0")
    for offset, told in ((-1, (NO_QUERY, None)), (2, (SUCCESS, "2")), (-1, (SUCCESS, "2"))):
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": offset}).code == SUCCESS
        assert stored(setZeroIfNotFound="false") == told, "a negative offset is none, and changes none"
    client.pull("committers", "offsets", 0, 2, sysFlag=4 | COMMITS, commitOffset=3)
    await_(lambda: stored() == (SUCCESS, "3"), WAIT_S, "the commit of the pull")


def test_messages_are_found_by_key_and_by_id(client: RawClient) -> None:
    filled(client, "found", 3)
    sent = client.put("found", b"single", "KEYS\x01a b\x02")
    times = {"maxNum": 10, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}

    def query(key: str, **more: object) -> Command:
        return client.ask(RequestCode.QUERY_MESSAGE, {"topic": "found", "key": key, **times, **more})

    await_(lambda: query("b").code == SUCCESS, WAIT_S, "the key")
    assert bodies_in(query("b")) == [b"single"]
    assert bodies_in(query(sent.fields["transactionId"], _UNIQUE_KEY_QUERY="true")) == [b"single"]
    assert query("nobody").code == NO_QUERY
    offset = int(sent.fields["msgId"][16:], 16)
    assert bodies_in(client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})) == [b"single"]
    assert client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 1 << 60}).code != SUCCESS


# --- groups


def test_members_of_both_kinds_share_a_group_and_see_each_other(node: RemotingNode, client: RawClient) -> None:
    filled(client, "mixed", 4)
    assert client.join("java@1", "mixers", {"mixed": "*"}).code == SUCCESS
    assert client.members("mixers") == ["java@1"]
    client.await_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    with GroupConsumer(serve_of(node), "mixers", {"mixed": "*"}, start="first", member="towline@1") as ours:
        ours.poll(100)
        told = client.await_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        assert told.fields["consumerGroup"] == "mixers"
        assert client.members("mixers") == ["java@1", "towline@1"]

        def divided() -> bool:
            ours.poll(50)
            return sum(topic == "mixed" for topic, _ in ours.assignment()) == 2

        await_(divided, WAIT_S, "half of the queues")
    client.await_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert client.members("mixers") == ["java@1"]
    assert client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "java@1", "consumerGroup": "mixers"}).code == SUCCESS
    assert client.members("mixers") == []


def test_a_member_leaves_with_its_connection(node: RemotingNode, client: RawClient) -> None:
    filled(client, "leaving", 1)
    assert client.join("stays@1", "leavers", {"leaving": "*"}).code == SUCCESS
    with RawClient(node.port) as other:
        assert other.join("goes@1", "leavers", {"leaving": "*"}).code == SUCCESS
        await_(lambda: client.members("leavers") == ["goes@1", "stays@1"], WAIT_S, "both")
    await_(lambda: client.members("leavers") == ["stays@1"], WAIT_S, "the one that stays")


def test_a_group_has_a_retry_topic_and_may_subscribe_to_what_is_not_there_yet(client: RawClient) -> None:
    assert client.join("early@1", "early", {"not-yet": "*", "%RETRY%early": "*"}).code == SUCCESS
    route = {"topic": "%RETRY%early"}
    await_(lambda: client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == SUCCESS, WAIT_S, "the retry topic")
    filled(client, "not-yet", 1)
    await_(lambda: client.members("early") == ["early@1"], WAIT_S, "the member")


def test_a_queue_is_locked_for_one_member_at_a_time(node: RemotingNode, client: RawClient) -> None:
    filled(client, "locks", 1)

    def ask(code: int, by: RawClient, name: str) -> list[int]:
        queues = [{"topic": "locks", "brokerName": "towline", "queueId": number} for number in (0, 1, 99)]
        body = {"consumerGroup": "lockers", "clientId": name, "mqSet": queues}
        answer = by.ask(code, {}, json.dumps(body).encode())
        assert answer.code == SUCCESS, answer.remark
        return sorted(row["queueId"] for row in json.loads(bytes(answer.body) or b"{}").get("lockOKMQSet", []))

    assert client.join("first@1", "lockers", {"locks": "*"}).code == SUCCESS
    with RawClient(node.port) as other:
        assert other.join("second@1", "lockers", {"locks": "*"}).code == SUCCESS
        assert ask(RequestCode.LOCK_BATCH_MQ, client, "first@1") == [0, 1]
        assert ask(RequestCode.LOCK_BATCH_MQ, other, "second@1") == []
        assert ask(RequestCode.LOCK_BATCH_MQ, client, "first@1") == [0, 1], "renewed"
        ask(RequestCode.UNLOCK_BATCH_MQ, client, "first@1")
        assert ask(RequestCode.LOCK_BATCH_MQ, other, "second@1") == [0, 1]


def test_a_message_that_is_sent_back_comes_again_and_at_last_is_a_dead_letter(
    node: RemotingNode, client: RawClient
) -> None:
    filled(client, "failing", 1)
    (first,) = messages(node, "failing", 1)
    fields = {"offset": first.record.physical_offset, "group": "failers", "delayLevel": 1, "originMsgId": "ID1",
              "originTopic": "failing", "maxReconsumeTimes": 1}  # fmt: skip
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == SUCCESS
    (again,) = messages(node, "%RETRY%failers", 1)
    assert (again.body, again.record.reconsume_times) == (b"0", 1)
    assert (again.properties["RETRY_TOPIC"], again.properties["ORIGIN_MESSAGE_ID"]) == ("failing", "ID1")
    more = {**fields, "offset": again.record.physical_offset, "originMsgId": "ID2"}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, more).code == SUCCESS
    (dead,) = messages(node, "%DLQ%failers", 1)
    assert (dead.body, dead.record.reconsume_times, dead.properties["ORIGIN_MESSAGE_ID"]) == (b"0", 2, "ID1")
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "offset": 1 << 60}).code == ERROR


def test_after_a_kill_of_serve_a_member_is_one_again_without_a_heartbeat(node: RemotingNode, client: RawClient) -> None:
    filled(client, "served", 2)
    assert client.join("lasting@1", "lasting", {"served": "*"}).code == SUCCESS
    before = node.pids()
    os.kill(before["serve"], signal.SIGKILL)
    node.await_restarted("serve", before)
    await_(lambda: client.members("lasting") == ["lasting@1"], WAIT_S, "the member")
    await_(lambda: client.pull("lasting", "served", 0, 0).code == SUCCESS, WAIT_S, "a pull")
