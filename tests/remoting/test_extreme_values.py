"""Each field of each request with values that no client sends: refused or served, and every process goes on."""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, Final

import pytest

from tests.ha.rocketmq.raw_slave import client_port
from tests.processes.nodes import ending, free_port
from tests.processes.waiting import await_
from towline.format.remoting import headers, pops
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Form
from towline.remoting.refused import ABSENT

from .conftest import RemotingNode, remoting_node
from .raw import RawClient
from .reading import messages

TOPIC: Final = "Extreme"
GROUP: Final = "extremes"
ID: Final = "extreme@1"
PUSHED: Final = (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                 RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)  # fmt: skip
HEADERS: Final = {
    RequestCode.SEND_MESSAGE: headers.SendMessage,
    RequestCode.SEND_MESSAGE_V2: headers.SendMessage,
    RequestCode.SEND_BATCH_MESSAGE: headers.SendMessage,
    RequestCode.SEND_REPLY_MESSAGE: headers.SendMessage,
    RequestCode.SEND_REPLY_MESSAGE_V2: headers.SendMessage,
    RequestCode.RECALL_MESSAGE: headers.RecallMessage,
    RequestCode.END_TRANSACTION: headers.EndTransaction,
    RequestCode.UPDATE_AND_CREATE_TOPIC: headers.MakeTopic,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: headers.OfTopic,
    RequestCode.UNREGISTER_CLIENT: headers.UnregisterClient,
    RequestCode.PULL_MESSAGE: headers.PullMessage,
    RequestCode.LITE_PULL_MESSAGE: headers.PullMessage,
    RequestCode.GET_MAX_OFFSET: headers.QueueOfTopic,
    RequestCode.GET_MIN_OFFSET: headers.QueueOfTopic,
    RequestCode.GET_EARLIEST_MSG_STORETIME: headers.QueueOfTopic,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: headers.SearchOffset,
    RequestCode.QUERY_CONSUMER_OFFSET: headers.ConsumerOffset,
    RequestCode.UPDATE_CONSUMER_OFFSET: headers.ConsumerOffset,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: headers.ConsumerGroup,
    RequestCode.QUERY_MESSAGE: headers.QueryMessage,
    RequestCode.VIEW_MESSAGE_BY_ID: headers.ViewMessage,
    RequestCode.CONSUMER_SEND_MSG_BACK: headers.SendBack,
    RequestCode.GET_ALL_TOPIC_CONFIG: headers.TopicPage,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: headers.GroupPage,
    RequestCode.GET_KV_CONFIG: headers.ConfigKey,
    RequestCode.DELETE_KV_CONFIG: headers.ConfigKey,
    RequestCode.GET_KVLIST_BY_NAMESPACE: headers.OfNamespace,
    RequestCode.GET_TOPICS_BY_CLUSTER: headers.OfCluster,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: headers.OfGroup,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: headers.TopicOfGroup,
    RequestCode.QUERY_CONSUME_TIME_SPAN: headers.TopicOfGroup,
    RequestCode.CLONE_GROUP_OFFSET: headers.CloneOffsets,
    RequestCode.QUERY_CORRECTION_OFFSET: headers.CorrectionOffset,
    RequestCode.GET_TOPIC_CONFIG: headers.OfTopic,
    RequestCode.GET_TOPIC_STATS_INFO: headers.OfTopic,
    RequestCode.DELETE_TOPIC_IN_BROKER: headers.OfTopic,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: headers.OfTopic,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: headers.OfTopic,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: headers.ConsumerGroup,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: headers.ProducerGroup,
    RequestCode.GET_CONSUME_STATS: headers.ConsumeStats,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: headers.DeleteGroup,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: headers.ResetOffset,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: headers.OfGroup,
    RequestCode.QUERY_CONSUME_QUEUE: headers.QueryQueue,
    RequestCode.GET_BROKER_CONSUME_STATS: headers.BrokerConsumeStats,
    RequestCode.GET_CONSUMER_RUNNING_INFO: headers.RunningInfo,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: headers.ConsumeDirectly,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: headers.OfBroker,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: headers.OfBroker,
    RequestCode.VIEW_BROKER_STATS_DATA: headers.StatsOf,
    RequestCode.REGISTER_BROKER: headers.OfOneBroker,
    RequestCode.UNREGISTER_BROKER: headers.OfOneBroker,
    RequestCode.QUERY_DATA_VERSION: headers.OfOneBroker,
    RequestCode.BROKER_HEARTBEAT: headers.OfOneBroker,
    RequestCode.GET_BROKER_MEMBER_GROUP: headers.OfGroupOfBrokers,
    RequestCode.POP_MESSAGE: pops.PopMessage,
    RequestCode.ACK_MESSAGE: pops.AckMessage,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pops.ChangeInvisibleTime,
    RequestCode.NOTIFICATION: pops.Notification,
    RequestCode.POLLING_INFO: pops.PollingInfo,
}
# Requests without fields or a body.
EMPTY: Final = (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG,
                RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_NAMESRV_CONFIG,
                RequestCode.GET_BROKER_HA_STATUS, RequestCode.EXCHANGE_BROKER_HA_INFO,
                RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
                RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_TIMER_CHECK_POINT,
                RequestCode.GET_TIMER_METRICS)  # fmt: skip
# Requests whose body is lines of name=value.
LINES: Final = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)
# Bodies that are no JSON.
PROPERTIES: Final = (b"", b"=", b"a", b"a=b", b"a=b\nc=d", b"flushDiskType=\\", b"#", b"\0=\0", b"\xff=\xff",
                     b"brokerId=0\n" * 5_000, b"x" * 1_000_000, b"\n" * 1_000_000)  # fmt: skip
BODIES: Final[dict[int, Any]] = {
    RequestCode.HEART_BEAT: {
        "clientID": ID,
        "producerDataSet": [{"groupName": GROUP}],
        "consumerDataSet": [
            {
                "groupName": GROUP,
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": TOPIC, "subString": "*", "expressionType": "TAG", "subVersion": 1, "tagsSet": []}
                ],
            }
        ],
    },
    RequestCode.LOCK_BATCH_MQ: {
        "consumerGroup": GROUP,
        "clientId": ID,
        "mqSet": [{"topic": TOPIC, "brokerName": "b", "queueId": 0}],
    },
    RequestCode.UNLOCK_BATCH_MQ: {
        "consumerGroup": GROUP,
        "clientId": ID,
        "mqSet": [{"topic": TOPIC, "brokerName": "b", "queueId": 0}],
    },
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {
        "groupName": "configured",
        "retryMaxTimes": 3,
        "consumeEnable": True,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "attributes": {"a": "b"},
    },
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {
        "groupConfigList": [{"groupName": "configured", "retryMaxTimes": 3, "attributes": {"a": "b"}}],
    },
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {
        "topicConfigList": [{"topicName": "Listed", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}],
    },
    RequestCode.CHECK_CLIENT_CONFIG: {
        "subscriptionData": {"topic": TOPIC, "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}
    },
    RequestCode.QUERY_ASSIGNMENT: {
        "topic": TOPIC,
        "consumerGroup": GROUP,
        "clientId": ID,
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    },
    RequestCode.SET_MESSAGE_REQUEST_MODE: {
        "topic": TOPIC,
        "consumerGroup": GROUP,
        "mode": "POP",
        "popShareQueueNum": 0,
    },
    RequestCode.BATCH_ACK_MESSAGE: {
        "brokerName": "b",
        "acks": [
            {"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1_000, "b": "/w=="},
        ],
    },
}
SHORT_MAX: Final = 2**15 - 1  # the largest code that the other form of a header holds
USUAL: Final = {
    "topic": TOPIC, "producer_group": GROUP, "consumer_group": GROUP, "group": GROUP, "queue_id": "0", "key": "k",
    "client_id": ID, "group_name": GROUP, "src_group": GROUP,
    "dest_group": GROUP, "compare_group": GROUP, "cluster": "DefaultCluster", "namespace": "n", "timestamp": "1",
    "broker_name": "towline", "cluster_name": "DefaultCluster", "broker_id": "1", "broker_addr": "127.0.0.1:1",
    "stats_name": "TOPIC_PUT_NUMS", "stats_key": TOPIC, "count": "1", "index": "0",
    "recall_handle": "djEgRXh0cmVtZSBiIDE3OTk5OTk5OTk5OTkgSw==", "default_topic": "TBW102",
    "max_msg_nums": "1", "invisible_time": "1000", "extra_info": "0 1 1000 0 0 b 0 0", "poll_time": "0",
    "properties": "TAGS\x01A\x02", "msg_id": "K", "perm": "6", "read_queue_nums": "1", "write_queue_nums": "1",
}  # fmt: skip
OTHERS: Final = {RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": "Deleted"}}  # the topic of all others stays
TEXTS: Final = (
    "", " ", "\0", "\x01", "\x02", "\x01" * 255, "x" * 256, "x" * 65_535, "\u00fc" * 32_767, "\u00fc" * 65_535,
    "\U0001f600" * 255, "%RETRY%", "%DLQ%" + GROUP, "TBW102", "rmq_sys_wheel_timer", "../../etc/passwd", "-1", "NaN",
    "null", "[]", "DELAY\x01-1\x02", "DELAY\x0199999999999999999999\x02", "TIMER_DELIVER_MS\x01-1\x02",
    "TIMER_DELAY_SEC\x01999999999999999\x02", "TRAN_MSG\x01true\x02", "UNIQ_KEY\x01\x02", "\x01\x02\x01\x02",
    "REPLY_TO_CLIENT\x01" + ID + "\x02", "a\x01" + "b" * 32_700 + "\x02",
)  # fmt: skip
NUMBERS: Final = ("-1", "0", "1", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808", "1e9")
JSON_VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 1 << 31, 1 << 63, 1 << 70, 1.5, float("nan"), "", "\x01" * 255, "\ud800", "x" * 255, "\u00fc" * 255,
    "\u00fc" * 256, [], {}, [[]], [None], [{}], {"a": {}}, "%RETRY%" + GROUP, "BROADCASTING", "SQL92", [1] * 2_000,
)  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotingNode]:
    """Brokers of RocketMQ may follow it, so that it answers what they ask too."""
    made = remoting_node(tmp_path_factory.mktemp("extreme") / "store")
    made.port = client_port()
    made.flags += ["--set", f"listen_port={made.port}", "--set", f"rocketmq_ha_port={free_port()}"]
    with ending(made):
        made.start()
        yield made
        assert made.stop()


def requests() -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Every request, with one field after the other that is extreme."""
    for code, kind in HEADERS.items():
        letters = code in (
            RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
        )  # fmt: skip
        named = {
            each.name: wire for each, (_, wire, _, _) in zip(fields(kind), headers._shape(kind, letters), strict=True)
        }
        usual = {
            wire: USUAL.get(name, "0")
            for name, wire in named.items()
            if name in USUAL or kind.__dataclass_fields__[name].default is MISSING
        } | OTHERS.get(code, {})
        for name, wire in named.items():
            for value in (*TEXTS, *NUMBERS):
                for body in (b"", b"body") if name == "properties" else (b"body",):
                    yield code, {**usual, wire: value}, body
            if name in usual:
                yield code, {other: value for other, value in usual.items() if other != wire}, b"body"
        for body in (b"\0" * 4, struct.pack(">iiii", 24, 0, 0, -1), b"\xff" * 64, bytes(5 << 20)):
            yield code, usual, body
    for code in (*EMPTY, *LINES, *ABSENT):
        for body in PROPERTIES:
            yield code, {"topic": TOPIC}, body
    for code, body in BODIES.items():
        for changed in changes(body):
            yield code, {}, json.dumps(changed).encode()
        for text in (
            b"",
            b"{}",
            b"null",
            b'"x"',
            b"\xed\xa0\x80",
            b'{"clientID":"\xed\xa0\x80"}',
            b"\xff",
            b"1" * 5_000,
        ):
            yield code, {}, text


def changes(said: Any) -> Iterator[Any]:
    """The object with one value after the other, at every depth, that is another or missing."""
    yield from JSON_VALUES
    if isinstance(said, dict):
        for name, value in said.items():
            yield {other: kept for other, kept in said.items() if other != name}
            for changed in changes(value):
                yield {**said, name: changed}
    elif isinstance(said, list) and said:
        for changed in changes(said[0]):
            yield [changed]


@pytest.mark.parametrize("form", Form)
def test_each_value_alone_is_refused_or_served_and_no_process_ends(node: RemotingNode, form: Form) -> None:
    before = node.pids()
    with RawClient(node.port) as honest:
        assert honest.put(TOPIC, b"before").code == 0
        chance = random.Random(form)
        wanted = list(requests())
        assert len(wanted) > 4_000
        chance.shuffle(wanted)  # the states of groups and topics meet each other
        for begin in range(0, len(wanted), 200):
            with RawClient(node.port, form) as client:
                for code, given, body in wanted[begin : begin + 200]:
                    if form is Form.JSON or code <= SHORT_MAX:
                        client.send(code, given, body)
                last = client.send(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
                while not ((found := client.read()).is_answer and found.opaque == last):
                    pass
                assert found.code == 0
            assert honest.put(TOPIC, b"meanwhile").code == 0
            assert node.pids() == before
        assert honest.put(TOPIC, b"after").code == 0
        assert honest.members(GROUP + "-of-nobody") == []
    await_(lambda: node.pids() == before, 5.0, "all processes are the ones from before")


def test_every_request_that_is_handled_is_among_them() -> None:
    """Frames of our own client have tests of their own (`test_own_clients`)."""
    named = {*HEADERS, *BODIES, *EMPTY, *PUSHED, *LINES, RequestCode.TOWLINE}
    assert named == set(RequestCode)


@pytest.mark.parametrize("half", [b"\\ud800", b"\xed\xa0\x80"], ids=["escaped", "as it is"])
@pytest.mark.parametrize("place", [b'"remark":"%s"', b'"language":"%s"', b'"extFields":{"%s":[]}',
                                   b'"extFields":{"topic":"%s"}'])  # fmt: skip
def test_half_a_surrogate_pair_anywhere_in_a_header_is_no_json(node: RemotingNode, half: bytes, place: bytes) -> None:
    header = b'{"code":105,"opaque":1,"flag":0,' + place % half + b"}"
    before = node.pids()["remoting"]
    with RawClient(node.port) as client:
        client.write(struct.pack(">II", 4 + len(header), len(header)) + header)
        assert client.is_closed()
    assert node.pids()["remoting"] == before


def test_an_answer_that_no_frame_holds_is_an_error_of_who_asked(node: RemotingNode) -> None:
    """Messages that share a key are found together: those of this one are larger than a frame."""
    with RawClient(node.port) as client:
        for _ in range(6):
            assert client.put("Large", bytes(3_500_000), "KEYS\x01same\x02").code == 0
        assert len(messages(node, "Large", 6)) == 6
        before = node.pids()
        fields = {"topic": "Large", "key": "same", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": (1 << 62)}
        answer = client.ask(RequestCode.QUERY_MESSAGE, fields)
        if answer.code == 0:
            assert len(answer.body) < 16 << 20
        else:
            assert "16777216" in answer.remark
        assert client.pull("g", "Large", 0, 0).code == 0
    assert node.pids() == before
