"""What a name server is asked is answered by a master and by its slave, each by its own copy of the topics."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import ended, free_port
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command, Form

from .mqadmin import Mqadmin
from .raw import RawClient

MASTER, SLAVE = 0, 1
NODES: Final = (MASTER, SLAVE)
CLUSTER, BROKER = "DefaultCluster", "towline"
SUCCESS, ERROR, UNKNOWN, NO_SERVICE, NO_PERMISSION, NO_TOPIC, NOT_FOUND = 0, 1, 3, 14, 16, 17, 22
PERM_READ, PERM_ALL = 4, 6
WAIT_S: Final = 30.0


class NamingGroup(Group):
    """A master and a slave that nobody may read. `ports`: of remoting."""

    ports: list[int]

    def ask(self, node: int, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        with RawClient(self.ports[node]) as client:
            return client.ask(code, fields, body)

    def make(self, topic: str, perm: int = PERM_ALL) -> None:
        """A topic that both nodes know. A node that has just started says for a moment that put is away: try again."""
        made = {"topic": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": perm}

        def is_made() -> bool:
            answer = self.ask(MASTER, RequestCode.UPDATE_AND_CREATE_TOPIC, made)
            assert answer.code in (SUCCESS, NO_SERVICE), answer.remark
            return answer.code == SUCCESS

        await_(is_made, WAIT_S, f"{topic} is made")
        self.await_topic(topic)

    def perm(self, node: int, topic: str) -> int:
        """What the routes of a node say; 0 of a topic that it does not know."""
        answer = self.ask(node, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert answer.code in (SUCCESS, NO_TOPIC), answer.remark
        return 0 if answer.code else int(json.loads(bytes(answer.body))["queueDatas"][0]["perm"])

    def topics(self, node: int, code: int, fields: dict[str, Any] | None = None) -> list[str]:
        answer = self.ask(node, code, fields)
        assert answer.code == SUCCESS, answer.remark
        return list(json.loads(bytes(answer.body))["topicList"])


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamingGroup]:
    made = NamingGroup(tmp_path_factory.mktemp("names"), 2)
    made.ports = [free_port() for _ in made.nodes]
    for node, port in zip(made.nodes, made.ports, strict=True):
        node.flags += ["--set", f"listen_port={port}"]
    ending = ended(*made.nodes)
    next(ending)
    made.start()
    yield made
    next(ending, None)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("form", Form)
def test_topics_are_listed_all_and_of_the_cluster(group: NamingGroup, node: int, form: Form) -> None:
    group.make("listed")
    with RawClient(group.ports[node], form) as client:
        names = json.loads(bytes(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body))["topicList"]
        assert "listed" in names
        assert names == sorted(names)
    assert group.topics(node, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": CLUSTER}) == names
    assert group.topics(node, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "another"}) == []


@pytest.mark.parametrize("node", NODES)
def test_the_topics_of_cluster_and_broker_come_with_the_masters_address(group: NamingGroup, node: int) -> None:
    answer = group.ask(node, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert json.loads(bytes(answer.body)) == {
        "brokerAddr": f"127.0.0.1:{group.ports[MASTER]}",
        "topicList": [CLUSTER, BROKER],
    }


@pytest.mark.parametrize("node", NODES)
def test_no_value_is_kept(group: NamingGroup, node: int) -> None:
    place = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"}
    answer = group.ask(node, RequestCode.GET_KV_CONFIG, place)
    assert (answer.code, answer.remark) == (NOT_FOUND, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: t")
    answer = group.ask(node, RequestCode.GET_KVLIST_BY_NAMESPACE, place)
    assert (answer.code, answer.remark) == (NOT_FOUND, "No config item, Namespace: ORDER_TOPIC_CONFIG")
    assert group.ask(node, RequestCode.DELETE_KV_CONFIG, place).code == SUCCESS
    answer = group.ask(node, 100, {**place, "value": "v"})
    assert answer.code == UNKNOWN
    assert "no values are kept" in answer.remark


@pytest.mark.parametrize("node", NODES)
def test_the_settings_of_a_name_server_are_told_and_stay(group: NamingGroup, node: int) -> None:
    answer = group.ask(node, RequestCode.GET_NAMESRV_CONFIG)
    lines = dict(line.split("=", 1) for line in bytes(answer.body).decode().splitlines())
    assert lines == {
        "bindAddress": "127.0.0.1",
        "listenPort": str(group.ports[node]),
        "serverChannelMaxIdleTimeSeconds": "120",
    }
    answer = group.ask(node, RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"listenPort=1\n")
    assert (answer.code, "when the node is started" in answer.remark) == (NO_PERMISSION, True)
    assert group.ask(node, RequestCode.UPDATE_NAMESRV_CONFIG).code == ERROR


def test_a_slave_learns_of_a_change_and_of_the_end_of_a_topic(group: NamingGroup) -> None:
    group.make("changing")
    await_(lambda: group.perm(SLAVE, "changing") == PERM_ALL, WAIT_S, "the slave knows the topic")
    group.make("changing", PERM_READ)
    await_(lambda: group.perm(SLAVE, "changing") == PERM_READ, WAIT_S, "the slave knows the permission")
    named = {"topic": "changing"}
    assert group.ask(MASTER, RequestCode.DELETE_TOPIC_IN_BROKER, named).code == SUCCESS
    for node in NODES:
        assert group.ask(node, RequestCode.DELETE_TOPIC_IN_NAMESRV, named).code == SUCCESS
    await_(lambda: group.perm(SLAVE, "changing") == 0, WAIT_S, "the slave knows that it is gone")
    assert "changing" not in group.topics(SLAVE, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


@pytest.mark.parametrize("node", NODES)
def test_the_routes_of_the_node_that_is_asked_say_that_nobody_writes(group: NamingGroup, node: int) -> None:
    group.make("wiped")
    await_(lambda: group.perm(SLAVE, "wiped") == PERM_ALL, WAIT_S, "the slave knows the topic")
    broker, other = {"brokerName": BROKER}, MASTER + SLAVE - node
    count = len(group.topics(node, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    answer = group.ask(node, RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker)
    try:
        assert (answer.code, answer.fields["wipeTopicCount"]) == (SUCCESS, str(count))
        assert (group.perm(node, "wiped"), group.perm(other, "wiped")) == (PERM_READ, PERM_ALL)
    finally:
        answer = group.ask(node, RequestCode.ADD_WRITE_PERM_OF_BROKER, broker)
    assert (answer.code, answer.fields["addTopicCount"]) == (SUCCESS, str(count))
    assert group.perm(node, "wiped") == PERM_ALL


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, "topic"),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, "topic"),
        (RequestCode.GET_TOPICS_BY_CLUSTER, "cluster"),
        (RequestCode.GET_KV_CONFIG, "namespace"),
        (RequestCode.DELETE_KV_CONFIG, "namespace"),
        (RequestCode.GET_KVLIST_BY_NAMESPACE, "namespace"),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "brokerName"),
    ],
)
def test_a_field_that_is_missing_is_named(group: NamingGroup, node: int, code: int, field: str) -> None:
    answer = group.ask(node, code)
    assert (answer.code, f"field {field} " in answer.remark) == (ERROR, True)


def test_what_is_the_masters_is_still_refused_by_a_slave(group: NamingGroup) -> None:
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.HEART_BEAT):
        answer = group.ask(SLAVE, code, {"topic": "wiped"})
        assert (answer.code, "node 1 is a slave" in answer.remark) == (NO_SERVICE, True)


def test_mqadmin_lists_and_deletes_topics_where_a_slave_is_the_name_server(
    group: NamingGroup, request: pytest.FixtureRequest
) -> None:
    group.make("deleted")
    await_(lambda: group.perm(SLAVE, "deleted") == PERM_ALL, WAIT_S, "the slave knows the topic")
    master, slave = (f"127.0.0.1:{port}" for port in group.ports)
    with Mqadmin(slave, request.config) as tool:
        assert "deleted" in tool.run("topicList")
        assert any(line.startswith(CLUSTER) for line in tool.run("topicList", "-c"))
    with Mqadmin(f"{slave};{master}", request.config) as tool:
        said = tool.run("deleteTopic", "-c", CLUSTER, "-t", "deleted")
        assert f"delete topic [deleted] from cluster [{CLUSTER}] success." in said
        assert not [line for line in said if "Exception" in line or "CODE" in line]
    for node in NODES:
        await_(lambda node=node: group.perm(node, "deleted") == 0, WAIT_S, "the topic is gone")
