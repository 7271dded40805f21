"""Requests of RocketMQ's administration tools, frame by frame."""

import json
import re
import time
from typing import Any

import pytest

from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command, Form

from .conftest import RemotingNode
from .raw import RawClient

SUCCESS, ERROR, UNKNOWN, NO_TOPIC, NOT_FOUND, NO_GROUP, INVALID, OFFLINE = 0, 1, 3, 17, 22, 26, 29, 206
WAIT_S = 30.0
BY_QUEUE = re.compile(r'\{"brokerName":"towline","queueId":(\d+),"topic":"([^"]+)"\}:')


def made(client: RawClient, topic: str, queues: int = 2) -> None:
    fields = {"topic": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == SUCCESS


def filled(client: RawClient, topic: str, count: int) -> None:
    """A topic of two queues with so many messages in queue 0, all of which can be read."""
    made(client, topic)
    for number in range(count):
        assert client.put(topic, b"%d" % number).code == SUCCESS
    await_(lambda: client.pull("g", topic, 0, count - 1).code == SUCCESS, WAIT_S, "the last message")


def commit(client: RawClient, group: str, topic: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS


def stored(client: RawClient, group: str, topic: str, queue: int = 0) -> Command:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
    return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)


def body_of(answer: Command) -> Any:
    """The JSON of an answer; keys that are queues become `queue:topic`."""
    assert answer.code == SUCCESS, answer.remark
    return json.loads(BY_QUEUE.sub(r'"\1:\2":', bytes(answer.body).decode()))


# --- topics


def test_topics_by_name_and_page_by_page(client: RawClient) -> None:
    made(client, "list-a")
    made(client, "list-b", 3)
    names = body_of(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
    assert {"list-a", "list-b"} <= set(names)
    everything = client.ask(RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": 0})
    assert everything.fields["totalTopicNum"] == str(len(names))
    assert list(body_of(everything)["topicConfigTable"]) == names
    asked = {"topicSeq": names.index("list-b"), "maxTopicNum": 1, "dataVersion": ""}
    page = body_of(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG, asked))
    config = {"attributes": {}, "order": False, "perm": 6, "readQueueNums": 3, "topicFilterType": "SINGLE_TAG",
              "topicName": "list-b", "topicSysFlag": 0, "writeQueueNums": 3}  # fmt: skip
    assert page["topicConfigTable"] == {"list-b": config}
    assert page["dataVersion"]["counter"] > 0
    assert body_of(client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "list-b"})) == config
    beyond = {"topicSeq": 1 << 30, "maxTopicNum": 1}
    assert body_of(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG, beyond))["topicConfigTable"] == {}


def test_bounds_of_a_topics_queues_and_when_their_newest_message_was_stored(client: RawClient) -> None:
    filled(client, "stats", 3)
    table = body_of(client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "stats"}))["offsetTable"]
    first, second = table["0:stats"], table["1:stats"]
    assert 0 <= time.time() * 1000 - first.pop("lastUpdateTimestamp") < 60_000
    assert first == {"maxOffset": 3, "minOffset": 0}
    assert second == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}


def test_more_queues_than_one_question_asks_about(client: RawClient) -> None:
    made(client, "wide", 600)
    for queue in (0, 300, 599):
        assert client.put("wide", b"here", e=queue).code == SUCCESS

    def times() -> list[str]:
        table = body_of(client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide"}))["offsetTable"]
        assert len(table) == 600
        return sorted(name for name, row in table.items() if row["lastUpdateTimestamp"])

    await_(lambda: times() == ["0:wide", "300:wide", "599:wide"], WAIT_S, "the messages")


def test_a_deleted_topic_is_gone_and_deleting_it_again_is_no_error(client: RawClient) -> None:
    filled(client, "ending", 1)
    for _ in range(2):
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "ending"}).code == SUCCESS
        assert client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "ending"}).code == SUCCESS
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "ending"}).code == NO_TOPIC
    for name in ("", " ", "SCHEDULE_TOPIC_XXXX", "TBW102"):
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}).code == INVALID


@pytest.mark.parametrize("code", [RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO])
def test_a_topic_that_is_not_there(client: RawClient, code: int) -> None:
    answer = client.ask(code, {"topic": "nowhere"})
    assert answer.code == NO_TOPIC
    assert "nowhere" in answer.remark


# --- groups


def test_progress_of_a_group_in_the_topics_of_which_it_has_an_offset(client: RawClient) -> None:
    filled(client, "progress", 3)
    made(client, "unread")
    commit(client, "walkers", "progress", 2)
    table = body_of(client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "walkers"}))["offsetTable"]
    assert table.keys() == {"0:progress", "1:progress"}
    assert 0 <= time.time() * 1000 - table["0:progress"].pop("lastTimestamp") < 60_000
    assert table["0:progress"] == {"brokerOffset": 3, "consumerOffset": 2, "pullOffset": 2}
    nothing = {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
    assert table["1:progress"] == nothing
    asked = {"consumerGroup": "walkers", "topic": "unread"}
    table = body_of(client.ask(RequestCode.GET_CONSUME_STATS, asked))["offsetTable"]
    assert table == {"0:unread": nothing, "1:unread": nothing}


@pytest.mark.parametrize("fields", [{"consumerGroup": "nobody"}, {"consumerGroup": "nobody", "topic": "nowhere"}])
def test_progress_of_who_is_not_there_is_empty(client: RawClient, fields: dict[str, str]) -> None:
    assert body_of(client.ask(RequestCode.GET_CONSUME_STATS, fields))["offsetTable"] == {}


def test_groups_of_a_topic_are_those_with_an_offset_and_those_that_subscribe(
    node: RemotingNode, client: RawClient
) -> None:
    made(client, "shared")
    commit(client, "committed", "shared", 0)
    with RawClient(node.port) as other:
        assert other.join("one@1", "subscribed", {"shared": "*"}).code == SUCCESS
        answer = client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "shared"})
        assert body_of(answer)["groupList"] == ["committed", "subscribed"]
    assert body_of(client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "nowhere"})) == {"groupList": []}


def test_connections_of_a_group_are_who_sent_heartbeats(node: RemotingNode, client: RawClient) -> None:
    made(client, "seen")
    with RawClient(node.port) as other:
        assert client.join("one@1", "seers", {"seen": "A"}).code == SUCCESS
        assert other.join("two@1", "seers", {"seen": "B"}, subVersion=2).code == SUCCESS
        found = body_of(client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "seers"}))
        addresses = [f"127.0.0.1:{each.socket_port}" for each in (client, other)]
    rows = [{"clientAddr": address, "clientId": name, "language": "JAVA", "version": 409}
            for address, name in zip(addresses, ("one@1", "two@1"), strict=True)]  # fmt: skip
    assert (found["connectionSet"], found["messageModel"]) == (rows, "CLUSTERING")
    assert found["subscriptionTable"]["seen"]["subString"] == "B"
    answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "nobody"})
    assert (answer.code, answer.remark) == (OFFLINE, "the consumer group[nobody] not online")


def test_producers_of_a_group(client: RawClient) -> None:
    assert client.heartbeat("seller@1", "sellers", "others").code == SUCCESS
    found = body_of(client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "sellers"}))
    address = f"127.0.0.1:{client.socket_port}"
    assert found == {
        "connectionSet": [{"clientAddr": address, "clientId": "seller@1", "language": "JAVA", "version": 409}]
    }
    answer = client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "nobody"})
    assert (answer.code, answer.remark) == (ERROR, "the producer group[nobody] not exist")


def test_settings_of_a_group_are_made_changed_listed_and_deleted(client: RawClient) -> None:
    configure = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    for times in (3, 4):
        said = {"groupName": "tuned", "retryMaxTimes": times, "consumeEnable": True}
        assert client.ask(configure, {}, json.dumps(said).encode()).code == SUCCESS
        answer = client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = body_of(answer)["subscriptionGroupTable"]
        assert groups["tuned"]["retryMaxTimes"] == times
        assert answer.fields["totalGroupNum"] == str(len(groups))
    asked = {"groupSeq": sorted(groups).index("tuned"), "maxGroupNum": 1}
    page = body_of(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, asked))
    assert list(page["subscriptionGroupTable"]) == ["tuned"]
    for _ in range(2):
        assert client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "tuned"}).code == SUCCESS
    left = body_of(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
    assert "tuned" not in left


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ERROR),
        (b"{", ERROR),
        (b"[]", ERROR),
        (b'{"groupName":7}', ERROR),
        (b'{"groupName":"a b"}', INVALID),
        (b'{"groupName":"g","retryMaxTimes":"many"}', INVALID),
        (b'{"groupName":"g","noSuchSetting":1}', INVALID),
    ],
)
def test_settings_that_are_none_are_refused(client: RawClient, body: bytes, code: int) -> None:
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == code
    assert answer.remark


def test_settings_of_any_depth_are_refused_or_kept(node: RemotingNode, client: RawClient) -> None:
    before = node.pids()
    for depth in (1, 6, 7, 8, 20, *range(900, 1_000, 3), 5_000):
        body = b'{"groupName":"deep","attributes":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
        answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        assert (answer.code == SUCCESS) == (depth <= 7), depth
    assert node.pids() == before


def test_a_group_with_members_is_not_deleted(node: RemotingNode, client: RawClient) -> None:
    made(client, "in-use")
    with RawClient(node.port) as other:
        assert other.join("one@1", "users", {"in-use": "*"}).code == SUCCESS
        answer = client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "users"})
        assert answer.code == ERROR
        assert "1 members" in answer.remark


# --- resets


def test_offsets_are_set_by_time_and_to_an_offset_and_clients_are_told(node: RemotingNode, client: RawClient) -> None:
    filled(client, "resets", 3)
    commit(client, "resetters", "resets", 1)
    place = {"group": "resetters", "topic": "resets", "isForce": "true"}
    with RawClient(node.port) as other:
        assert other.join("one@1", "resetters", {"resets": "*"}).code == SUCCESS
        for more, expected in (
            ({"timestamp": -1}, {"0:resets": 3, "1:resets": 0}),
            ({"timestamp": 1}, {"0:resets": 0, "1:resets": 0}),
            ({"timestamp": -1, "queueId": 0, "offset": 2}, {"0:resets": 2}),
            ({"timestamp": -1, "queueId": 1}, {"1:resets": 0}),
        ):
            answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**place, **more})
            assert body_of(answer)["offsetTable"] == expected
            told = other.await_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            assert bytes(told.body) == bytes(answer.body)
            assert dict(told.fields) == {**place, "timestamp": str(more["timestamp"])}
    assert stored(client, "resetters", "resets").fields["offset"] == "2"


def test_a_reset_makes_a_group_that_is_to_begin_there(client: RawClient) -> None:
    filled(client, "begin", 2)
    assert stored(client, "beginners", "begin").code == NOT_FOUND
    fields = {"group": "beginners", "topic": "begin", "timestamp": -1, "isForce": "true"}
    answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert body_of(answer)["offsetTable"] == {"0:begin": 2, "1:begin": 0}
    assert stored(client, "beginners", "begin").fields["offset"] == "2"


@pytest.mark.parametrize(
    ("more", "code", "why"),
    [
        ({"topic": "nowhere"}, NO_TOPIC, "Topic nowhere does not exist"),
        ({"queueId": 0, "offset": 99}, ERROR, "not in consume queue range [0-1]"),
        ({"queueId": 9}, ERROR, "no queue 9"),
        ({"group": "a b"}, INVALID, "legal"),
        ({"timestamp": "soon"}, ERROR, "timestamp"),
    ],
)
def test_a_reset_that_cannot_be_is_refused(client: RawClient, more: dict[str, Any], code: int, why: str) -> None:
    if client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "refused"}).code:
        filled(client, "refused", 1)
    fields = {"group": "strict", "topic": "refused", "timestamp": -1, "isForce": "true", **more}
    answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert answer.code == code
    assert why in answer.remark


# --- the node


def test_what_the_node_does_now(client: RawClient) -> None:
    filled(client, "traffic", 2)

    def now() -> dict[str, str]:
        return dict(body_of(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"])

    before = now()  # a put is counted a moment after it was answered
    assert client.put("traffic", b"one").code == SUCCESS
    await_(lambda: int(now()["msgPutTotalTodayNow"]) > int(before["msgPutTotalTodayNow"]), WAIT_S, "one more")
    after = now()
    assert int(after["commitLogMaxOffset"]) > int(before["commitLogMaxOffset"])
    assert 0 <= time.time() * 1000 - int(after["earliestMessageTimeStamp"]) < 600_000
    assert 0 < float(after["commitLogDiskRatio"]) < 1
    for name in ("putTps", "getTransferredTps", "timerEnqueueTps", "timerDequeueTps"):
        assert float(after[name].split()[0]) >= 0
    assert after["brokerActive"] == "true"
    assert re.fullmatch(r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", after["runtime"])


def test_settings_under_rocketmqs_names_and_none_of_our_own(node: RemotingNode, client: RawClient) -> None:
    answer = client.ask(RequestCode.GET_BROKER_CONFIG)
    lines = dict(line.split("=", 1) for line in bytes(answer.body).decode().splitlines())
    expected = {"brokerName": "towline", "flushDiskType": "ASYNC_FLUSH", "enablePropertyFilter": "true",
                "brokerIP1": "127.0.0.1", "listenPort": str(node.port), "timerMaxDelaySec": "60"}  # fmt: skip
    assert {name: lines[name] for name in expected} == expected
    assert not {"keysDir", "insecure", "putPort"} & lines.keys()
    assert json.loads(answer.fields["version"])["counter"] == 0


# --- all of them


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.GET_TOPIC_CONFIG, "topic"),
        (RequestCode.GET_TOPIC_STATS_INFO, "topic"),
        (RequestCode.DELETE_TOPIC_IN_BROKER, "topic"),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, "topic"),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, "topic"),
        (RequestCode.GET_CONSUME_STATS, "consumerGroup"),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, "consumerGroup"),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, "producerGroup"),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, "groupName"),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "group"),
    ],
)
@pytest.mark.parametrize("form", Form)
def test_a_field_that_is_missing_is_named(node: RemotingNode, code: int, field: str, form: Form) -> None:
    with RawClient(node.port, form) as client:
        answer = client.ask(code)
        assert (answer.code, f"field {field} " in answer.remark) == (ERROR, True)


@pytest.mark.parametrize("code", [1, 7, 99, 999, 200_049])
def test_what_is_not_supported_is_refused_by_its_number(client: RawClient, code: int) -> None:
    answer = client.ask(code)
    assert (answer.code, answer.remark) == (UNKNOWN, f"request type {code} not supported")
