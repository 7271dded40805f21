"""Requests of RocketMQ's tools about a broker as a whole and its clients, frame by frame."""

import json
import threading
import tomllib
from typing import Any

import pytest

from tests.processes.waiting import await_
from towline.format.record.message_id import decode_offset_id
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import ANSWER, Command, Form, encode
from towline.remoting.refused import ABSENT
from towline.runtime.positions import Position

from .conftest import RemotingNode
from .raw import RawClient
from .test_admin import BY_QUEUE, ERROR, INVALID, SUCCESS, UNKNOWN, WAIT_S, body_of, commit, filled, made

NO_PERMISSION, TIMEOUT = 16, 207
PERM_READ, PERM_ALL = 4, 6
BROKER = "towline"


def perm_of(client: RawClient, topic: str) -> int:
    answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return int(body_of(answer)["queueDatas"][0]["perm"])


# --- permissions and settings


def test_routes_say_that_a_broker_is_not_written_to_until_it_is_again(client: RawClient) -> None:
    filled(client, "wiped", 1)
    answer = client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": BROKER})
    try:
        names = body_of(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
        assert (answer.code, answer.fields["wipeTopicCount"]) == (SUCCESS, str(len(names)))
        assert perm_of(client, "wiped") == perm_of(client, "TBW102") & ~1 == PERM_READ
        config = body_of(client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "wiped"}))
        assert config["perm"] == PERM_ALL, "the topic itself is what it was"
        assert client.put("wiped", b"by who knows the old route").code == SUCCESS
    finally:
        answer = client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": BROKER})
    assert (answer.code, answer.fields["addTopicCount"]) == (SUCCESS, str(len(names)))
    assert perm_of(client, "wiped") == PERM_ALL


def test_the_permission_of_another_broker_is_nobodys(client: RawClient) -> None:
    made(client, "kept")
    answer = client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "another"})
    assert (answer.code, answer.fields["wipeTopicCount"]) == (SUCCESS, "0")
    assert perm_of(client, "kept") == PERM_ALL
    assert client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER).code == ERROR


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"flushDiskType=ASYNC_FLUSH\n", SUCCESS, ""),
        (b"#Thu\nflushDiskType=ASYNC_FLUSH\r\nbrokerName=towline\n", SUCCESS, ""),
        (b"flushDiskType=SYNC_FLUSH\n", NO_PERMISSION, "takes effect after a restart only: flush_disk_type;"),
        (b"brokerName=towline\nmaxMessageSize=70000", NO_PERMISSION, "restart only: max_message_size;"),
        (b"putWaitingMax=60000\nosPageCacheBusyTimeOutMills=1001", SUCCESS, ""),
        (b"brokerPermission=9", INVALID, "broker_permission = 9"),
        (b"brokerPermission=4\nhaListenPort=1", NO_PERMISSION, "restart only: ha_listen_port;"),
        (b"nobodysKey=1", INVALID, "'nobodysKey'"),
        (b"", ERROR, "lines of name=value"),
        (b"flushDiskType", ERROR, "'flushDiskType' is no line of name=value"),
        (b"=x", ERROR, "is no line"),
        (b"\xff=\xff", ERROR, "no UTF-8"),
        (b"a=b\n" * 5_000, ERROR, "5000 lines"),
    ],
)
def test_settings_that_may_change_while_a_node_runs_do(client: RawClient, body: bytes, code: int, said: str) -> None:
    answer = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)
    assert answer.code == code
    assert said in answer.remark


def test_a_broker_is_made_read_only_and_back_by_its_permission(client: RawClient, node: RemotingNode) -> None:
    filled(client, "guarded", 1)
    assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n").code == SUCCESS
    try:
        end = node.at(Position.APPENDED)
        refused = client.put("guarded", b"refused")
        assert (refused.code, "this node is read-only" in refused.remark) == (NO_PERMISSION, True)
        assert node.at(Position.APPENDED) == end
        assert client.pull("readers", "guarded", 0, 0).code == SUCCESS
        assert perm_of(client, "guarded") == PERM_READ, "who asks for routes does not choose it"
        assert b"brokerPermission=4\n" in bytes(client.ask(RequestCode.GET_BROKER_CONFIG).body)
        assert tomllib.loads(node.store.kept_settings.read_text())["broker_permission"] == PERM_READ
    finally:
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n").code == SUCCESS
    assert perm_of(client, "guarded") == PERM_ALL
    assert client.put("guarded", b"taken").code == SUCCESS


def test_system_topics(client: RawClient) -> None:
    made(client, "no-system-topic")
    names = body_of(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC"} <= set(names)
    assert "no-system-topic" not in names


@pytest.mark.parametrize("code", ABSENT)
def test_what_has_no_meaning_here_is_refused_with_the_reason(client: RawClient, code: int) -> None:
    answer = client.ask(code, {"brokerName": BROKER}, b"x=y")
    assert (answer.code, answer.remark) == (UNKNOWN, f"request type {code} not supported: {ABSENT[code]}")


# --- clients


def test_all_producers_by_their_groups(client: RawClient, node: RemotingNode) -> None:
    with RawClient(node.port) as other:
        assert client.heartbeat("p1@1", "sellers", "tellers").code == SUCCESS
        assert other.heartbeat("p2@1", "sellers").code == SUCCESS
        table = body_of(client.ask(RequestCode.GET_ALL_PRODUCER_INFO))["data"]
        assert [row["clientId"] for row in table["sellers"]] == ["p1@1", "p2@1"]
        (row,) = table["tellers"]
        assert row.pop("lastUpdateTimestamp") > 1_700_000_000_000
        assert row == {"clientId": "p1@1", "language": "JAVA", "remoteIP": f"/127.0.0.1:{client.socket_port}",
                       "version": 409}  # fmt: skip
    await_(
        lambda: len(body_of(client.ask(RequestCode.GET_ALL_PRODUCER_INFO))["data"]["sellers"]) == 1,
        WAIT_S,
        "p2 is gone",
    )


def asked_of(asker: RawClient, asked: RawClient, code: int, fields: dict[str, Any], said: Command) -> list[Command]:
    """What a tool is answered when the client that it asks about answers with `said`; and what the client was asked."""
    got: list[Command] = []
    asking = threading.Thread(target=lambda: got.append(asker.ask(code, fields)))
    asking.start()
    question = asked.await_request(code)
    asked.write(
        b"".join(
            encode(Command(said.code, question.opaque, ANSWER, said.remark, said.fields, said.body, Form.JSON, 409))
        )
    )
    asking.join(WAIT_S)
    return [*got, question]


def test_a_consumer_says_itself_what_it_does(client: RawClient, node: RemotingNode) -> None:
    made(client, "running")
    with RawClient(node.port) as consumer:
        assert consumer.join("c1@1", "runners", {"running": "*"}).code == SUCCESS
        fields = {"consumerGroup": "runners", "clientId": "c1@1", "jstackEnable": "true", "AccessKey": "not for it"}
        said = Command(0, 0, 0, "as it is", {"a": "b"}, b'{"properties":{}}')
        answer, question = asked_of(client, consumer, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, said)
        assert (answer.code, answer.remark, answer.fields["a"]) == (SUCCESS, "as it is", "b")
        assert bytes(answer.body) == b'{"properties":{}}'
        assert question.fields == {"consumerGroup": "runners", "clientId": "c1@1", "jstackEnable": "true"}


def test_a_consumer_handles_one_message_more(client: RawClient, node: RemotingNode) -> None:
    filled(client, "once-more", 1)
    msg_id = client.put("once-more", b"again").fields["msgId"]
    await_(lambda: client.pull("g", "once-more", 0, 1).code == SUCCESS, WAIT_S, "the message")
    with RawClient(node.port) as consumer:
        assert consumer.join("c1@1", "handlers", {"once-more": "*"}).code == SUCCESS
        fields = {"consumerGroup": "handlers", "clientId": "c1@1", "msgId": msg_id, "topic": "once-more"}
        said = Command(0, 0, 0, "", {}, b'{"consumeResult":"CR_SUCCESS"}')
        answer, question = asked_of(client, consumer, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, said)
        assert bytes(answer.body) == b'{"consumeResult":"CR_SUCCESS"}'
        record = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": decode_offset_id(msg_id).physical_offset})
        assert bytes(question.body) == bytes(record.body)
        assert question.fields["brokerName"] == BROKER
        for wrong in ("", "x", "00", "7F00000100002A9F" + "F" * 16):
            refused = client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "msgId": wrong})
            assert refused.code in (ERROR, INVALID)


@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY])
def test_who_is_not_online_is_not_asked(client: RawClient, code: int) -> None:
    fields = {"consumerGroup": "nobody", "clientId": "c9@1", "msgId": "00"}
    answer = client.ask(code, fields)
    assert (answer.code, answer.remark) == (ERROR, "The Consumer <nobody> <c9@1> not online")
    assert client.ask(code, {"consumerGroup": "nobody"}).code == ERROR


def test_a_client_that_ends_or_answers_for_another_answers_nothing(client: RawClient, node: RemotingNode) -> None:
    made(client, "silent")
    consumer, other = RawClient(node.port), RawClient(node.port)
    with consumer, other:
        assert consumer.join("c1@1", "silents", {"silent": "*"}).code == SUCCESS
        assert other.join("c2@1", "silents", {"silent": "*"}).code == SUCCESS
        client.send(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "silents", "clientId": "c1@1"})
        question = consumer.await_request(RequestCode.GET_CONSUMER_RUNNING_INFO)
        forged = Command(0, question.opaque, ANSWER, "", {}, b"forged", Form.JSON, 409)
        other.write(b"".join(encode(forged)))
        assert other.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == SUCCESS, "what it sent was read"
    answer = client.read()
    assert (answer.code, bytes(answer.body)) == (TIMEOUT, b"")
    assert "c1@1" in answer.remark


# --- queues and groups


def test_entries_of_a_queue(client: RawClient) -> None:
    filled(client, "entries", 5)
    asked = {"topic": "entries", "queueId": 0, "index": 1, "count": 2}
    found = body_of(client.ask(RequestCode.QUERY_CONSUME_QUEUE, asked))
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 5)
    assert "filterData" not in found
    first, second = found["queueData"]
    assert second["physicOffset"] == first["physicOffset"] + first["physicSize"]
    record = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": first["physicOffset"]})
    assert len(record.body) == first["physicSize"]
    beyond = body_of(client.ask(RequestCode.QUERY_CONSUME_QUEUE, {**asked, "index": 5}))
    assert beyond["queueData"] == []
    for wrong in ({"count": -1}, {"count": 1 << 30}, {"index": -1}, {"index": (1 << 63) - 1}):
        rows = body_of(client.ask(RequestCode.QUERY_CONSUME_QUEUE, {**asked, **wrong}))["queueData"]
        assert len(rows) <= 5
    of_nobody = body_of(client.ask(RequestCode.QUERY_CONSUME_QUEUE, {**asked, "consumerGroup": "nobody"}))
    assert of_nobody["filterData"] == "nobody@entries is not online!"
    for nowhere in ({"topic": "nowhere"}, {"queueId": 2}, {"queueId": -1}):
        answer = client.ask(RequestCode.QUERY_CONSUME_QUEUE, {**asked, **nowhere})
        assert answer.code == ERROR
        assert "is not exist!" in answer.remark


def test_how_far_all_groups_have_read(client: RawClient) -> None:
    filled(client, "stand", 4)
    commit(client, "standers", "stand", 3)
    answer = client.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    found = json.loads(BY_QUEUE.sub(r'"\1:\2":', bytes(answer.body).decode()))
    (tables,) = [row["standers"] for row in found["consumeStatsList"] if "standers" in row]
    (table,) = tables
    row = table["offsetTable"]["0:stand"]
    assert row.pop("lastTimestamp") > 1_700_000_000_000
    assert row == {"brokerOffset": 4, "consumerOffset": 3, "pullOffset": 3}
    assert found["totalDiff"] >= 1
    ordered = json.loads(bytes(client.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"}).body))
    assert {"standers": []} in ordered["consumeStatsList"]


def test_settings_of_one_group(client: RawClient) -> None:
    settings = {"groupName": "single", "retryMaxTimes": 7, "consumeEnable": True}
    assert (
        client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(settings).encode()).code == SUCCESS
    )

    def found() -> Command:
        return client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "single"})

    await_(lambda: found().code == SUCCESS, WAIT_S, "the settings")
    assert settings.items() <= body_of(found()).items()
    made = client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "nobody"})
    assert (made.code, body_of(made)["groupName"]) == (SUCCESS, "nobody")  # a proxy asks before anybody else does
    assert client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG).code == ERROR


# --- traffic


def test_what_came_and_went_is_counted_by_topic_and_group(client: RawClient) -> None:
    filled(client, "counted", 3)
    puts = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "counted"}
    gets = {"statsName": "GROUP_GET_NUMS", "statsKey": "counted@counters"}
    assert client.ask(RequestCode.VIEW_BROKER_STATS_DATA, gets).code == ERROR
    assert client.pull("counters", "counted", 0, 1).code == SUCCESS
    for wish, count in ((puts, 3), (gets, 2)):
        found = body_of(client.ask(RequestCode.VIEW_BROKER_STATS_DATA, wish))
        assert {name: row["sum"] for name, row in found.items()} == dict.fromkeys(
            ("statsMinute", "statsHour", "statsDay"), count
        )
        assert found["statsMinute"]["tps"] > 0
    stats = json.loads(
        BY_QUEUE.sub(
            r'"\1:\2":', bytes(client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "counted"}).body).decode()
        )
    )
    assert stats["topicPutTps"] > 0
    commit(client, "counters", "counted", 1)
    answer = client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "counters", "topic": "counted"})
    progress = body_of(answer)
    assert progress["consumeTps"] > 0
    row = progress["offsetTable"]["0:counted"]
    assert (row["consumerOffset"], row["pullOffset"]) == (1, 3), "two of them are on their way"


@pytest.mark.parametrize("name", ["", "TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "BROKER_PUT_NUMS"])
@pytest.mark.parametrize("key", ["", "nowhere", "@", "nowhere@nobody", "@" * 1_000, "x" * 60_000])
def test_what_was_not_counted_does_not_exist(client: RawClient, name: str, key: str) -> None:
    answer = client.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
    assert answer.code == ERROR
    assert answer.remark == f"The stats <{name}> <{key}> not exist"
