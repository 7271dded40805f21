"""The real mqadmin, 5.5: each command says the same of this node as of a real broker with the same topics, messages,
groups and clients."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.processes.nodes import ending, free_port
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode

from .conftest import RemotingNode
from .java_clients import start_broker
from .java_member import JavaMember
from .mqadmin import VERSION, Mqadmin, run_tool
from .raw import RawClient

CLUSTER: Final = "DefaultCluster"
NAME: Final = "peer"  # of both brokers
TOPIC, GROUP = "orders", "billing"
WAIT_S: Final = 30.0
KEY: Final = "7F00000100002A9F{:016d}"
COMMANDS: Final = {
    "topicRoute": ("-t", TOPIC),
    "topicStatus": ("-t", TOPIC),
    "topicClusterList": ("-t", TOPIC),
    "updateTopic": ("-c", CLUSTER, "-t", "fresh", "-r", "4", "-w", "4"),
    "updateTopicPerm": ("-c", CLUSTER, "-t", "fresh", "-p", "4"),
    "deleteTopic": ("-c", CLUSTER, "-t", "fresh"),
    "queryMsgById": ("-t", TOPIC, "-i", "ID"),
    "queryMsgByKey": ("-t", TOPIC, "-k", "k1"),
    "queryMsgByUniqueKey": ("-t", TOPIC, "-i", KEY.format(1)),
    "queryMsgByOffset": ("-t", TOPIC, "-b", NAME, "-i", "1", "-o", "1"),
    "queryCq": ("-t", TOPIC, "-q", "1", "-i", "0", "-g", GROUP),
    "brokerConsumeStats": ("-b", "BROKER"),
    "updateBrokerConfig": ("-b", "BROKER", "-k", "brokerName", "-v", NAME),
    "wipeWritePerm": ("-b", NAME),
    "addWritePerm": ("-b", NAME),
    "exportConfigs": ("-c", CLUSTER),
    "exportMetadata": ("-c", CLUSTER),
    "exportMetrics": ("-c", CLUSTER),
    "consumerProgress": ("-g", GROUP),
    "consumerConnection": ("-g", GROUP),
    "producerConnection": ("-g", "sellers", "-t", TOPIC),
    "updateSubGroup": ("-c", CLUSTER, "-g", "fresh-group", "-r", "3"),
    "getConsumerConfig": ("-g", "fresh-group"),
    "cloneGroupOffset": ("-s", GROUP, "-d", "fresh-group", "-t", TOPIC, "-o", "true"),
    "deleteSubGroup": ("-c", CLUSTER, "-g", "fresh-group"),
    "resetOffsetByTime": ("-g", GROUP, "-t", TOPIC, "-s", "-1"),
    "skipAccumulatedMessage": ("-g", GROUP, "-t", TOPIC, "-f", "true"),
    "setConsumeMode": ("-c", CLUSTER, "-t", TOPIC, "-g", GROUP, "-m", "PULL", "-q", "0"),
    "allocateMQ": ("-t", TOPIC, "-i", "10.0.0.1,10.0.0.2"),
    "haStatus": ("-c", CLUSTER),
    "deleteKvConfig": ("-s", "ORDER_TOPIC_CONFIG", "-k", TOPIC),
    "sendMessage": ("-t", TOPIC, "-p", "by mqadmin", "-k", "key", "-c", "TagA", "-b", NAME, "-i", "1"),
}
# Of what is not there.
FAILING: Final = {
    "updateOrderConf": ("-t", TOPIC, "-m", "get"),
    "topicRoute": ("-t", "nowhere"),
    "topicStatus": ("-t", "nowhere"),
    "consumerProgress": ("-g", "nobody"),
    "consumerConnection": ("-g", "nobody"),
    "producerConnection": ("-g", "nobody", "-t", TOPIC),
    "queryMsgByUniqueKey": ("-t", TOPIC, "-i", KEY.format(99)),
    "queryCq": ("-t", TOPIC, "-q", "7", "-i", "0"),
    "wipeWritePerm": ("-b", "nobody"),
    "consumerStatus": ("-g", "nobody"),
    "deleteTopic": ("-c", CLUSTER, "-t", "nowhere"),
    "deleteSubGroup": ("-c", CLUSTER, "-g", "nobody"),
}
# What a node does by itself or has not: why not is part of what is said.
REFUSED: Final = {
    "cleanExpiredCQ": (("-c", CLUSTER), "CODE: 3", "a node removes by itself what has expired"),
    "cleanUnusedTopic": (("-c", CLUSTER), "CODE: 3", "a node removes by itself what has expired"),
    "deleteExpiredCommitLog": (("-c", CLUSTER), "CODE: 3", "a node removes by itself what has expired"),
    "updateKvConfig": (("-s", "ORDER_TOPIC_CONFIG", "-k", TOPIC, "-v", "b:2"), "CODE: 3", "no values are kept"),
    "updateOrderConf": (("-t", TOPIC, "-m", "put", "-v", "b:2"), "CODE: 3", "no values are kept"),
    "updateNamesrvConfig": (("-k", "listenPort", "-v", "1"), "CODE: 16", "when the node is started"),
}
WHEN: Final = re.compile(r"(?<=lastUpdateTimestamp=)\d{13}")
OFFSET: Final = re.compile(r"(?<=queueOffset=)\d+")
SUMS: Final = ("commitLogMinOffset", "commitLogMaxOffset", "putMessageSizeTotal", "putMessageAverageSize",
               "putMessageTimesTotal", "msgPutTotalTodayNow", "brokerActive", "dispatchBehindBytes")  # fmt: skip
SET_IN_BOTH: Final = ("timerMaxDelaySec", "enablePropertyFilter", "brokerName", "brokerClusterName", "brokerIP1",
                      "brokerId", "flushDiskType", "autoCreateTopicEnable")  # fmt: skip


class Side:
    """One of the two brokers, filled, with a consumer and a producer, and mqadmin."""

    def __init__(self, names: str, client: RawClient, tool: Mqadmin, address: str) -> None:
        """`names` and `address`: `host:port` of the name server and of the broker."""
        self.names, self.address = names, address
        self._client, self._tool = client, tool
        self._id = self._fill()

    def run(self, command: str, *words: str) -> list[str]:
        """What a command prints while both clients are there."""
        self._beat()
        meant = {"ID": self._id, "BROKER": self.address}
        return self._tool.run(command, *(meant.get(word, word) for word in words))

    def _fill(self) -> str:
        """Five messages in two queues, a consumer that has read the first of them; the id of the second message."""
        client = self._client
        made = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == 0
        ids = []
        for number in range(5):
            properties = f"TAGS\x01A\x02KEYS\x01k{number}\x02UNIQ_KEY\x01{KEY.format(number)}\x02"
            answer = client.put(TOPIC, b"body-%d" % number, properties, e=number % 2)
            assert answer.code == 0, answer.remark
            ids.append(answer.fields["msgId"])
        self._beat()
        for topic in (TOPIC, f"%RETRY%{GROUP}"):
            self._await_route(topic)
        offset = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset).code == 0
        return ids[1]

    def put(self, topic: str, count: int) -> None:
        """So many messages to a topic that is made for them."""
        for _ in range(count):
            assert self._client.put(topic, b"x").code == 0
        self._await_route(topic)

    def _beat(self) -> None:
        """Heartbeats of a consumer and a producer."""
        rows = [{"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1}
                for topic in (TOPIC, f"%RETRY%{GROUP}")]  # fmt: skip
        data = {"groupName": GROUP, "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": rows}  # fmt: skip
        body = {"clientID": "consumer@1", "producerDataSet": [], "consumerDataSet": [data]}
        assert self._client.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0
        assert self._client.heartbeat("producer@1", "sellers").code == 0

    def _await_route(self, topic: str) -> None:
        """With a connection of its own: a name server closes those that ask nothing for two minutes."""
        wanted = {"topic": topic}
        with RawClient(port_of(self.names)) as names:
            await_(lambda: names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, wanted).code == 0, WAIT_S, topic)


@contextmanager
def side(names: str, config: pytest.Config) -> Iterator[Side]:
    """Of the broker that a name server at `host:port` knows."""
    with RawClient(port_of(names)) as asked:
        port = broker_of(asked)
    with RawClient(port) as client, Mqadmin(names, config) as tool:
        yield Side(names, client, tool, f"127.0.0.1:{port}")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def broker_of(names: RawClient) -> int:
    """The port of the broker, once the name server knows it."""
    found: list[str] = []

    def known() -> bool:
        body = bytes(names.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body).decode()
        found[:] = [part.split('"')[0] for part in body.split("127.0.0.1:")[1:]]
        return bool(found)

    await_(known, WAIT_S, "the broker at the name server")
    return int(found[0])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Side]:
    port = free_port()
    node = RemotingNode(
        "master",
        tmp_path_factory.mktemp("mqadmin") / "store",
        flush_disk_type="ASYNC_FLUSH",
        listen_port=port,
        broker_name=NAME,
        timer_max_delay_sec=60,
        enable_property_filter=True,
    )
    with ending(node):
        node.start()
        with side(f"127.0.0.1:{port}", request.config) as made:
            yield made
        assert node.stop()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Side]:
    for node in start_broker(tmp_path_factory.mktemp("real")):
        with side(node.address, request.config) as made:
            yield made


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_the_same_of_both(command: str, ours: Side, theirs: Side) -> None:
    said, expected = (side.run(command, *COMMANDS[command]) for side in (ours, theirs))
    assert said
    assert sorted(said) == sorted(expected)
    assert "Exception" not in " ".join(said)


# The tools take 40 s to say that nothing has a key.
LONG: Final = {"queryMsgByUniqueKey"}


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in FAILING]
)
def test_a_command_about_what_is_not_there_says_the_same_of_both(command: str, ours: Side, theirs: Side) -> None:
    said, expected = (side.run(command, *FAILING[command]) for side in (ours, theirs))
    assert sorted(said) == sorted(expected)


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_that_has_no_meaning_here_says_why(command: str, ours: Side) -> None:
    words, code, why = REFUSED[command]
    said = " ".join(ours.run(command, *words))
    assert code in said
    assert why in said


def test_settings_of_a_name_server_have_the_names_that_a_real_one_has(ours: Side, theirs: Side) -> None:
    said, expected = (table_of(side.run("getNamesrvConfig"), "=") for side in (ours, theirs))
    assert said.keys() <= expected.keys()
    assert said.pop("listenPort") == ours.names.rpartition(":")[2]
    assert said == {name: expected[name] for name in ("bindAddress", "serverChannelMaxIdleTimeSeconds")}


def test_the_list_of_topics_holds_those_of_clients(ours: Side, theirs: Side) -> None:
    said, expected = (set(side.run("topicList")) for side in (ours, theirs))
    assert {TOPIC, f"%RETRY%{GROUP}"} <= said & expected
    rows = [[row for row in side.run("topicList", "-c") if f" {TOPIC} {GROUP}" in row] for side in (ours, theirs)]
    assert rows[0] == rows[1] != []


def test_the_progress_of_all_groups_holds_that_of_ours(ours: Side, theirs: Side) -> None:
    said, expected = (side.run("consumerProgress") for side in (ours, theirs))
    assert {line for line in said if line.startswith(GROUP)} == {line for line in expected if line.startswith(GROUP)}


def test_the_list_of_brokers_is_the_same_but_for_loads(ours: Side, theirs: Side) -> None:
    (head, said), (expected_head, expected) = (side.run("clusterList") for side in (ours, theirs))
    assert head == expected_head
    assert len(said.split()) == len(expected.split())
    assert said.split()[:5] == expected.split()[:5] == [CLUSTER, NAME, "0", "ADDRESS", "VERSION"]
    assert said.split()[-1] == expected.split()[-1] == "true"


def test_what_a_node_says_of_its_traffic_is_what_a_broker_says(ours: Side, theirs: Side) -> None:
    said, expected = (table_of(side.run("brokerStatus", "-b", side.address), ":") for side in (ours, theirs))
    assert said.keys() <= expected.keys()
    assert {name: said[name] for name in SUMS} == {name: expected[name] for name in SUMS}


def test_settings_have_the_names_that_a_broker_has(ours: Side, theirs: Side) -> None:
    said, expected = (table_of(side.run("getBrokerConfig", "-b", side.address), "=") for side in (ours, theirs))
    assert {name: said[name] for name in SET_IN_BOTH} == {name: expected[name] for name in SET_IN_BOTH}
    assert said["listenPort"] == ours.address.rpartition(":")[2]


def test_a_running_consumer_whose_offsets_are_set_back_reads_everything_again(
    ours: Side, theirs: Side, request: pytest.FixtureRequest
) -> None:
    said, expected = (run_tool("Reset", request.config, side.names, "set-back") for side in (ours, theirs))
    assert said == expected == ["first [0, 1, 2, 3, 4]", "again [0, 1, 2, 3, 4]"]


def test_a_running_consumer_tells_of_itself_and_handles_a_message_once_more(
    ours: Side, theirs: Side, request: pytest.FixtureRequest
) -> None:
    said, expected = (sorted(run_tool("Running", request.config, side.names, "told")) for side in (ours, theirs))
    assert said == expected
    assert {"once more CR_SUCCESS", "threads true"} <= set(said)


def test_all_producers_hold_those_of_ours(theirs: Side, ours: Side) -> None:
    rows = [
        [line for line in side.run("producer", "-b", side.address) if "(sellers)" in line] for side in (ours, theirs)
    ]
    said, expected = ([WHEN.sub("WHEN", line) for line in lines] for lines in rows)
    assert said == expected != []


def test_what_came_to_a_topic_is_counted_as_a_broker_does(ours: Side, theirs: Side) -> None:
    """A broker counts every 10 s."""
    topic = "counted"
    for side in (ours, theirs):
        side.put(topic, 7)

    def counted(side: Side) -> bool:
        rows = [line.split() for line in side.run("statsAll", "-t", topic) if line.startswith(topic)]
        return [(row[0], row[1], row[-2], row[-1]) for row in rows] == [(topic, "0", "7", "NO_CONSUMER")]

    for side in (ours, theirs):
        await_(lambda side=side: counted(side), WAIT_S, "seven messages")


def test_a_setting_that_changes_at_a_start_alone_is_refused_by_name(ours: Side) -> None:
    said = " ".join(ours.run("updateBrokerConfig", "-b", ours.address, "-k", "flushDiskType", "-v", "SYNC_FLUSH"))
    assert "takes effect after a restart only: flush_disk_type" in said


def test_sends_that_are_timed_say_the_same_but_for_their_times(ours: Side, theirs: Side) -> None:
    words = ("-t", TOPIC, "-a", "4", "-s", "16")
    said, expected = ([row.split() for row in side.run("checkMsgSendRT", *words)] for side in (ours, theirs))
    assert [row[:3] for row in said] == [row[:3] for row in expected]
    assert [row[2] for row in said[1:5]] == ["true"] * 4
    assert all(row[3].isdecimal() for row in said[1:5])


def test_sends_to_the_topic_of_the_broker_say_the_same(ours: Side, theirs: Side) -> None:
    """After the traffic was compared: a broker does not count what comes to that topic. On a busy machine the client
    may send one twice."""
    rows = (side.run("sendMsgStatus", "-b", NAME, "-s", "16", "-c", "2") for side in (ours, theirs))
    said, expected = ([OFFSET.sub("OFFSET", line) for line in lines] for lines in rows)
    assert said == expected
    assert len([line for line in said if "sendStatus=SEND_OK" in line]) == 2


def test_the_state_of_a_running_consumer_is_the_same(ours: Side, theirs: Side, request: pytest.FixtureRequest) -> None:
    found = []
    for side in (ours, theirs):
        side.put("watched", 1)
        with JavaMember(VERSION, side.names, "watched", "watchers", request.config) as member:
            await_(lambda member=member: member.consumed.total() == 1, WAIT_S, "the message is consumed")
            found.append(side.run("consumerStatus", "-g", "watchers"))
    assert found[0] == found[1]
    assert any("CLIENT" in line for line in found[0])


def test_what_no_command_asks_for_is_told_to_the_classes_of_tools(
    ours: Side, theirs: Side, request: pytest.FixtureRequest
) -> None:
    said, expected = (run_tool("Others", request.config, side.names, side.address) for side in (ours, theirs))
    assert said == expected


def table_of(lines: list[str], between: str) -> dict[str, str]:
    pairs = (line.partition(between) for line in lines if not line.startswith("=="))
    return {name.strip(): value.strip() for name, _, value in pairs}
