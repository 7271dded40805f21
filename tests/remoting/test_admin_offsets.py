"""Requests of RocketMQ's tools about offsets of groups, and lists of topics and groups, frame by frame."""

import json
import time
from typing import Any

import pytest

from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode

from .conftest import RemotingNode
from .raw import RawClient
from .test_admin import (
    ERROR,
    INVALID,
    NO_GROUP,
    NO_TOPIC,
    NOT_FOUND,
    SUCCESS,
    WAIT_S,
    body_of,
    commit,
    filled,
    made,
    stored,
)

ABOVE_ALL = (1 << 63) - 1


def spans(client: RawClient, topic: str, group: str) -> list[dict[str, Any]]:
    answer = client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group})
    return list(body_of(answer)["consumeTimeSpanSet"])


def clone(client: RawClient, source: str, target: str, **more: Any) -> int:
    fields = {"srcGroup": source, "destGroup": target, "offline": "true", **more}
    return client.ask(RequestCode.CLONE_GROUP_OFFSET, fields).code


# --- spans of time


def test_when_messages_of_a_queue_were_stored_and_how_long_the_next_one_waits(client: RawClient) -> None:
    filled(client, "spans", 1)
    assert client.put("spans", b"later").code == SUCCESS
    await_(lambda: client.pull("g", "spans", 0, 1).code == SUCCESS, WAIT_S, "the second message")
    commit(client, "spanners", "spans", 1)
    first, second = spans(client, "spans", "spanners")
    assert first.pop("messageQueue") == {"brokerName": "towline", "queueId": 0, "topic": "spans"}
    begin, end = first.pop("minTimeStamp"), first.pop("maxTimeStamp")
    assert 0 < begin <= end <= time.time() * 1_000
    waits = first.pop("delayTime")
    assert 0 <= time.time() * 1_000 - end - waits < 10_000
    assert first == {"consumeTimeStamp": begin}
    del second["messageQueue"]
    assert second == {"consumeTimeStamp": -1, "delayTime": 0, "maxTimeStamp": -1, "minTimeStamp": -1}
    commit(client, "spanners", "spans", 2)
    first, _ = spans(client, "spans", "spanners")
    assert (first["consumeTimeStamp"], first["delayTime"]) == (end, 0)


def test_who_has_read_nothing_waits_for_the_first_message(client: RawClient) -> None:
    filled(client, "unread-spans", 2)
    first, _ = spans(client, "unread-spans", "nobody")
    assert first["consumeTimeStamp"] == first["minTimeStamp"] > 0
    assert 0 <= time.time() * 1_000 - first["minTimeStamp"] - first["delayTime"] < 10_000


# --- what a group reads


def test_topics_of_a_group_are_those_of_which_it_has_an_offset(node: RemotingNode, client: RawClient) -> None:
    made(client, "group-a")
    made(client, "group-b")
    for topic in ("group-b", "group-a"):
        commit(client, "topical", topic, 0)
    answer = client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "topical"})
    assert body_of(answer) == {"brokerAddr": f"127.0.0.1:{node.port}", "topicList": ["group-a", "group-b"]}
    assert body_of(client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "nobody"}))["topicList"] == []


def test_the_subscription_of_a_group_is_the_newest(node: RemotingNode, client: RawClient) -> None:
    made(client, "subscribed")
    asked = {"group": "subscribers", "topic": "subscribed"}
    nothing = body_of(client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, asked))
    assert nothing == asked
    with RawClient(node.port) as other:
        assert client.join("one@1", "subscribers", {"subscribed": "A"}).code == SUCCESS
        assert other.join("two@1", "subscribers", {"subscribed": "B"}, subVersion=2).code == SUCCESS
        found = body_of(client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, asked))
    said = found.pop("subscriptionData")
    assert found == asked
    assert (said["subString"], said["subVersion"], said["topic"]) == ("B", 2, "subscribed")


# --- copies


def test_offsets_of_a_group_are_copied_to_another_back_too(client: RawClient) -> None:
    for topic in ("cloned-a", "cloned-b"):
        filled(client, topic, 3)
        commit(client, "originals", topic, 1)
    commit(client, "clones", "cloned-a", 3)
    assert clone(client, "originals", "clones", topic="cloned-a") == SUCCESS
    assert stored(client, "clones", "cloned-a").fields["offset"] == "1"
    assert stored(client, "clones", "cloned-b").code == NOT_FOUND
    assert clone(client, "originals", "clones") == SUCCESS
    assert stored(client, "clones", "cloned-b").fields["offset"] == "1"
    assert stored(client, "clones", "cloned-b", queue=1).code == NOT_FOUND, "of that the original has none"


def test_nothing_is_copied_of_who_has_nothing(client: RawClient) -> None:
    made(client, "nothing-cloned")
    assert clone(client, "nobody", "nobodys-clone") == SUCCESS
    assert stored(client, "nobodys-clone", "nothing-cloned").code == NOT_FOUND
    filled(client, "nothing-cloned", 2)
    commit(client, "with-offset", "nothing-cloned", 1)
    assert clone(client, "with-offset", "a b") == INVALID


def test_what_connected_clients_do_not_read_is_copied_when_offline_alone(node: RemotingNode, client: RawClient) -> None:
    made(client, "read-now")
    filled(client, "read-before", 2)
    commit(client, "movers", "read-before", 1)
    with RawClient(node.port) as other:
        assert other.join("one@1", "movers", {"read-now": "*"}).code == SUCCESS
        assert clone(client, "movers", "moved", offline="false") == SUCCESS
        assert stored(client, "moved", "read-before").code == NOT_FOUND
        assert clone(client, "movers", "moved") == SUCCESS
        assert stored(client, "moved", "read-before").fields["offset"] == "1"


# --- corrections


def test_corrections_are_the_least_offsets_of_all_groups_but_some(client: RawClient) -> None:
    filled(client, "corrected", 5)
    for group, offset in (("fast", 4), ("slow", 2), ("slowest", 1)):
        commit(client, group, "corrected", offset)

    def corrections(compared: str, left_out: str = "") -> dict[str, int]:
        fields = {"topic": "corrected", "compareGroup": compared, "filterGroups": left_out}
        answer = client.ask(RequestCode.QUERY_CORRECTION_OFFSET, fields)
        return dict(body_of(answer)["correctionOffsets"])

    assert corrections("fast") == corrections("slowest") == corrections("nobody") == {"0": 1}
    assert corrections("fast", "slowest") == {"0": 2}
    assert corrections("slowest", "slowest") == {"0": ABOVE_ALL}, "it is before all that count"
    assert corrections("slowest", "slowest,slow,fast,nobody") == {}
    fields = {"topic": "nowhere", "compareGroup": "fast"}
    assert body_of(client.ask(RequestCode.QUERY_CORRECTION_OFFSET, fields)) == {"correctionOffsets": {}}


# --- lists


def topic_list(*names: str, **more: Any) -> bytes:
    rows = [{"topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, **more} for name in names]
    return json.dumps({"topicConfigList": rows}).encode()


def queues(client: RawClient, topic: str) -> int:
    answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    return int(body_of(answer)["writeQueueNums"]) if answer.code == SUCCESS else 0


def test_topics_of_a_list_are_made_and_changed(client: RawClient) -> None:
    made(client, "of-list-a", 1)
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, topic_list("of-list-a", "of-list-b", "of-list-b"))
    assert answer.code == SUCCESS, answer.remark
    assert [queues(client, topic) for topic in ("of-list-a", "of-list-b")] == [3, 3]


def test_a_list_ends_with_the_topic_that_is_refused(client: RawClient) -> None:
    body = topic_list("before-it", "il legal", "behind-it")
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert (answer.code, "il legal" in answer.remark) == (INVALID, True)
    assert [queues(client, topic) for topic in ("before-it", "behind-it")] == [3, 0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"topicConfigList":[]}',
        b'{"topicConfigList":["t"]}',
        b'{"topicConfigList":[{"topicName":"t"}]}',
        topic_list("t", perm="6"),
        topic_list("t", perm=True),
        topic_list("t", readQueueNums=1 << 40),
        topic_list("t", writeQueueNums=-1),
    ],
)
def test_a_list_that_is_none_makes_no_topic(client: RawClient, body: bytes) -> None:
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert (answer.code, queues(client, "t")) == (ERROR, 0)
    assert answer.remark


def test_groups_of_a_list_are_made_and_changed_up_to_the_one_that_is_refused(client: RawClient) -> None:
    def configure(*groups: str) -> tuple[int, str]:
        rows = [{"groupName": group, "retryMaxTimes": 7} for group in groups]
        body = json.dumps({"groupConfigList": rows}).encode()
        answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)
        return answer.code, answer.remark

    assert configure("of-list-1", "of-list-2")[0] == SUCCESS
    code, why = configure("of-list-3", "il legal", "of-list-4")
    assert (code, "il legal" in why) == (INVALID, True)
    groups = body_of(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
    assert all(groups[f"of-list-{number}"]["retryMaxTimes"] == 7 for number in (1, 2, 3))
    assert "of-list-4" not in groups
    assert configure()[0] == ERROR


# --- the node's slaves


def test_a_master_without_slaves_says_where_its_log_ends(client: RawClient) -> None:
    found = body_of(client.ask(RequestCode.GET_BROKER_HA_STATUS))
    assert found.pop("masterCommitLogMaxOffset") > 0
    assert found == {"haConnectionInfo": [], "inSyncSlaveNums": 0, "master": True}


# --- all of them


@pytest.mark.parametrize(
    ("code", "fields", "missing"),
    [
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"group": "g"}, "topic"),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "t"}, "group"),
        (RequestCode.QUERY_TOPICS_BY_CONSUMER, {}, "group"),
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g"}, "topic"),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "g"}, "destGroup"),
        (RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "t"}, "compareGroup"),
    ],
)
def test_a_field_that_is_missing_is_named(client: RawClient, code: int, fields: dict[str, str], missing: str) -> None:
    answer = client.ask(code, fields)
    assert (answer.code, f"field {missing} " in answer.remark) == (ERROR, True)


def test_a_topic_that_is_not_there_has_no_spans(client: RawClient) -> None:
    answer = client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "nowhere", "group": "g"})
    assert (answer.code, answer.remark) == (NO_TOPIC, "topic[nowhere] not exist")
    answer = client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "a b"})
    assert answer.code in (INVALID, NO_GROUP)
