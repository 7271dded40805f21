"""What a broker of RocketMQ asks the node that it follows as a slave, frame by frame. Real ones: tests/ha/rocketmq."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ha.rocketmq.raw_slave import clients_port, followed, port_of, put
from tests.processes.groups import Group
from tests.processes.nodes import TestNode, ending
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.remoting.codes import RequestCode
from towline.runtime.positions import Position

from .raw import RawClient
from .test_admin import ERROR, SUCCESS, UNKNOWN, WAIT_S, body_of

BUSY = 2
TIMERS = struct.Struct(">7q")
OWN = {"clusterName": "DefaultCluster", "brokerName": "towline"}
SLAVE = {**OWN, "brokerId": 1, "brokerAddr": "127.0.0.1:10931"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = followed(tmp_path_factory.mktemp("registered") / "store", message_delay_level="1s 1h")
    with ending(made):
        made.start()
        put(made, 3, "known")
        yield made
        assert made.stop()


@pytest.fixture
def client(node: TestNode) -> Iterator[RawClient]:
    with RawClient(clients_port(node)) as made:
        yield made


def addresses(client: RawClient) -> dict[str, str]:
    """Of the brokers in the route of a topic."""
    (found,) = body_of(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "known"}))["brokerDatas"]
    return dict(found["brokerAddrs"])


class TestRegistering:
    def test_tells_where_master_and_log_are_and_puts_the_slave_into_routes(
        self, node: TestNode, client: RawClient
    ) -> None:
        own = f"127.0.0.1:{clients_port(node)}"
        answer = client.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "haServerAddr": "x", "compressed": "false"}, b"{}")
        assert answer.code == SUCCESS
        assert answer.fields == {"masterAddr": own, "haServerAddr": f"127.0.0.1:{port_of(node)}"}
        assert addresses(client) == {"0": own, "1": SLAVE["brokerAddr"]}
        members = body_of(client.ask(RequestCode.GET_BROKER_MEMBER_GROUP, OWN))["brokerMemberGroup"]
        assert members == {
            "brokerAddrs": {"0": own, "1": SLAVE["brokerAddr"]},
            "brokerName": "towline",
            "cluster": "DefaultCluster",
        }

    def test_a_slave_is_forgotten_when_it_says_so(self, client: RawClient) -> None:
        client.ask(RequestCode.REGISTER_BROKER, SLAVE)
        elsewhere = {**SLAVE, "brokerAddr": "127.0.0.1:1"}
        assert client.ask(RequestCode.UNREGISTER_BROKER, elsewhere).code == SUCCESS
        assert "1" in addresses(client)
        assert client.ask(RequestCode.UNREGISTER_BROKER, SLAVE).code == SUCCESS
        assert "1" not in addresses(client)

    def test_and_when_its_connection_ends(self, node: TestNode, client: RawClient) -> None:
        with RawClient(clients_port(node)) as slave:
            assert slave.ask(RequestCode.BROKER_HEARTBEAT, SLAVE).code == SUCCESS
            assert "1" in addresses(client)
        await_(lambda: "1" not in addresses(client), WAIT_S, "it is forgotten")

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            pytest.param({"brokerId": 0}, "brokerId 0 is that of the master", id="a second master"),
            pytest.param({"brokerId": -1}, "brokerId -1", id="a number below 0"),
            pytest.param({"brokerName": "other"}, "set brokerClusterName and brokerName", id="another name"),
            pytest.param({"clusterName": "other"}, "set brokerClusterName and brokerName", id="another cluster"),
            pytest.param({"brokerAddr": "nowhere"}, "host:port", id="no address"),
            pytest.param({"brokerAddr": "host:0"}, "no port", id="no port"),
            pytest.param({"brokerAddr": "h" * 300 + ":5"}, "host:port", id="a long address"),
            pytest.param({"brokerId": "x"}, "brokerId", id="no number"),
        ],
    )
    @pytest.mark.parametrize("code", [RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT])
    def test_who_can_be_no_slave_is_refused_with_the_reason(
        self, client: RawClient, code: int, changed: dict[str, Any], said: str
    ) -> None:
        answer = client.ask(code, {**SLAVE, **changed})
        assert answer.code == ERROR
        assert said in answer.remark
        assert set(addresses(client)) == {"0"}

    def test_so_many_are_kept_and_the_next_one_is_told(self, node: TestNode) -> None:
        with RawClient(clients_port(node)) as slave:
            for number in range(1, 17):
                assert slave.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "brokerId": number}).code == SUCCESS
            answer = slave.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "brokerId": 17})
            assert (answer.code, "no more may" in answer.remark) == (BUSY, True)
            assert slave.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "brokerId": 16}).code == SUCCESS

    def test_a_version_of_topics_is_always_another(self, client: RawClient) -> None:
        answer = client.ask(RequestCode.QUERY_DATA_VERSION, SLAVE, b"{}")
        assert (answer.code, answer.fields) == (SUCCESS, {"changed": "true"})

    def test_brokers_of_another_name_are_nobodys(self, client: RawClient) -> None:
        members = body_of(client.ask(RequestCode.GET_BROKER_MEMBER_GROUP, {**OWN, "brokerName": "other"}))
        assert members["brokerMemberGroup"]["brokerAddrs"] == {}


class TestWhatASlaveCopies:
    def test_offsets_of_groups(self, node: TestNode, client: RawClient) -> None:
        await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "all is in queues")
        with AdminClient(f"ipc://{node.runtime / 'serve.sock'}") as admin:
            queue, end = next((queue, end) for queue, (_, end) in admin.bounds("known").items() if end)
            admin.configure_group("copied")
            admin.set_offset("copied", "known", queue, end)

        def told() -> bool:
            body = body_of(client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET))
            return bool(body["offsetTable"].get("known@copied", {}).get(str(queue)) == end)

        await_(told, WAIT_S, "the offset is told")

    def test_offsets_of_delay_levels(self, node: TestNode, client: RawClient) -> None:
        with Producer(node.endpoint) as producer:
            assert producer.send(Message("known", b"soon", delay_level=1)).acknowledged

        def told() -> bool:
            return body_of(client.ask(RequestCode.GET_ALL_DELAY_OFFSET))["offsetTable"].get("1") == 1

        await_(told, WAIT_S, "the level's offset is told")

    def test_how_far_timers_are(self, node: TestNode, client: RawClient) -> None:
        before = time.time_ns() // 1_000_000
        until, _, _, count, *_ = TIMERS.unpack(client.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        assert count == 0
        assert until >= before - 1_000  # of no timer anything is left out
        with Producer(node.endpoint) as producer:
            assert producer.send(Message("known", b"at once", deliver_at=before + 1_000)).acknowledged

        def told() -> bool:
            until, _, _, count, *_ = TIMERS.unpack(client.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
            return count == 1 and until >= before + 1_000

        await_(told, WAIT_S, "one is through")
        counts = body_of(client.ask(RequestCode.GET_TIMER_METRICS))
        assert counts["timingCount"] == {}

    def test_modes_of_groups(self, client: RawClient) -> None:
        assert body_of(client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)) == {"messageRequestModeMap": {}}

    def test_where_the_log_is_and_how_far_it_is_on_disk(self, node: TestNode, client: RawClient) -> None:
        await_(lambda: node.at(Position.FLUSHED) == node.at(Position.APPENDED), WAIT_S, "all is on disk")
        fields = client.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).fields
        assert fields["masterHaAddress"] == f"127.0.0.1:{port_of(node)}"
        assert int(fields["masterFlushOffset"]) == node.at(Position.FLUSHED)


def test_ids_of_nodes_of_the_group_are_theirs_and_a_slave_of_ours_sends_brokers_away(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    group = Group(tmp_path_factory.mktemp("group"), 2)
    for node in group.nodes:
        found = followed(node.store.root)
        node.flags += ["--set", f"listen_port={clients_port(found)}", "--set", f"rocketmq_ha_port={port_of(found)}"]
    with ending(*group.nodes):
        group.start()
        with RawClient(clients_port(group.nodes[0])) as master:
            refused = master.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "brokerId": 2})
            assert "node 1 of this group: set brokerId=3" in refused.remark
            assert master.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "brokerId": 3}).code == SUCCESS
        with RawClient(clients_port(group.nodes[1])) as slave:
            assert slave.ask(RequestCode.REGISTER_BROKER, {**SLAVE, "brokerId": 3}).code == UNKNOWN
