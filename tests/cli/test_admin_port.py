"""Administration of a running node through its port, as from another machine, beside the same on its own machine."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes.nodes import Pair, TestNode, ending, free_port
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.message import Message
from towline.client.producer import Producer

from .conftest import Towline


class NodeAtPort(TestNode):
    """A node with a port for clients."""

    port: int

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAtPort]:
    port = free_port()
    root = tmp_path_factory.mktemp("admin") / "store"
    made = NodeAtPort("master", root, listen_port=port, flush_disk_type="ASYNC_FLUSH")
    made.port = port
    with ending(made):
        made.start()
        with Producer(made.address) as producer:
            producer.send_batch([Message("orders", b"x", queue_id=0)] * 3)
        yield made


class TestStatusAndStatistics:
    def test_status_is_the_same_document_as_on_its_own_machine(self, node: NodeAtPort, towline: Towline) -> None:
        here = towline("master", "status", "--store", node.store.root, "--json").document
        there = towline("master", "status", "--endpoint", node.address, "--json").document
        assert there.keys() == here.keys()
        same = ("role", "pid", "store", "generation", "broker_permission", "endpoints", "started_ms", "queues")
        assert {key: there[key] for key in same} == {key: here[key] for key in same}
        shown = towline("slave", "status", "--endpoint", node.address)
        assert (shown.status, f"master on {node.store.root}" in shown.out) == (0, True)

    def test_statistics_come_from_there_too(self, node: NodeAtPort, towline: Towline) -> None:
        for where in (("--endpoint", node.address), ("--store", node.store.root)):
            found = towline("stats", *where, "--interval", 0.1, "--topic", "orders", "--json").document
            assert found["put"]["messages"] == 3
            assert found["queue_rows"][0]["put"]["messages"] == 3
            assert 100 <= found["interval_ms"] < 5_000

    def test_rates_over_a_longer_time_than_a_node_gives_are_refused(self, node: NodeAtPort, towline: Towline) -> None:
        done = towline("stats", "--endpoint", node.address, "--interval", 11, "--json")
        assert done.status == 1
        assert "node_stats" in done.document["sentence"]

    def test_a_context_names_the_node(self, node: NodeAtPort, towline: Towline) -> None:
        assert towline("context", "add", "there", "--endpoint", node.address).status == 0
        assert towline("master", "status", "--json").document["pid"] == node.pid
        assert towline("stats", "--interval", 0.1, "--json").document["put"]["messages"] == 3
        keys = [row["key"] for row in towline("config", "get", "--json").document["settings"]]
        assert "mapped_file_size_commit_log" in keys
        assert [row["topic"] for row in towline("topic", "list", "--json").document["topics"]] == ["orders"]
        assert towline("group", "list", "--json").document["groups"] == []

    def test_a_wait_for_a_slave_is_for_its_own_machine(self, node: NodeAtPort, towline: Towline) -> None:
        done = towline("slave", "status", "--wait", "--endpoint", node.address)
        assert (done.status, "name it by --store" in done.err) == (2, True)

    def test_a_slave_tells_of_itself(self, tmp_path: Path) -> None:
        pair = Pair(tmp_path)
        with ending(*pair.nodes):
            pair.start()
            with AdminClient(f"ipc://{pair.slave.runtime / 'serve.sock'}") as admin:
                status = admin.node_status()
                assert (status["role"], status["pid"]) == ("slave", pair.slave.pid)
                assert status["master"]["connected"]
                done = admin.configure_node(file_reserved_time=9)
                assert (done["settings"], done["waiting"]) == ({"file_reserved_time": 9}, [])
                named = {"broker_name": "towline", "broker_id": 1, "role": "slave", "store": str(pair.slave.store.root)}
                assert done["node"] == named


@pytest.mark.parametrize("by", ["endpoint", "store"])
class TestConfig:
    def where(self, node: NodeAtPort, by: str) -> tuple[str, object]:
        return f"--{by}", node.address if by == "endpoint" else node.store.root

    def test_a_setting_is_changed_and_shown(self, node: NodeAtPort, towline: Towline, by: str) -> None:
        where = self.where(node, by)
        done = towline("config", "set", "put_waiting_max=500", "file_reserved_time=8", *where, "--json")
        assert (done.status, done.document["settings"]) == (0, {"put_waiting_max": 500, "file_reserved_time": 8})
        [row] = towline("config", "get", "put_waiting_max", *where, "--json").document["settings"]
        assert row == {"key": "put_waiting_max", "value": 500, "default": 65_536, "live": "put", "kept": False}
        out = towline("config", "set", "put_waiting_max=65536", "file_reserved_time=72", *where).out
        assert "put_waiting_max is 65536, until the node ends" in out
        assert f"node 0 of towline, a master on {node.store.root}:" in out
        shown = towline("config", "get", *where).out
        assert "put_waiting_max" not in shown, "it has its default again"
        assert "put_waiting_max" in towline("config", "get", "--all", *where).out

    def test_a_kept_change_is_taken_back(self, node: NodeAtPort, towline: Towline, by: str) -> None:
        where = self.where(node, by)
        assert towline("config", "set", "put_waiting_max=500", "--keep", *where).status == 0
        done = towline("config", "unset", "--all", *where, "--json").document
        assert (done["forgotten"], done["settings"]) == ({"put_waiting_max": 500}, {"put_waiting_max": 65_536})
        [row] = towline("config", "get", "put_waiting_max", *where, "--json").document["settings"]
        assert (row["value"], row["kept"]) == (65_536, False)
        for words in ([], ["put_waiting_max", "--all"]):
            assert "give either names of settings or --all" in towline("config", "unset", *words, *where).err

    def test_a_node_is_made_read_only_and_back(self, node: NodeAtPort, towline: Towline, by: str) -> None:
        where = self.where(node, by)
        assert towline("config", "set", "broker_permission=4", *where).status == 0
        refused = towline("put", "orders", "x", "--endpoint", node.address)
        assert (refused.status, "broker_permission=4: this node is read-only" in refused.err) == (1, True)
        assert "it is read-only: broker_permission is 4" in towline("master", "status", *where).out
        assert len(towline("get", "orders", "--endpoint", node.address, "--json").document["messages"]) >= 3
        assert towline("config", "set", "broker_permission=6", *where).status == 0
        assert "it is read-only" not in towline("master", "status", *where).out

    def test_what_needs_a_start_is_refused_by_name(self, node: NodeAtPort, towline: Towline, by: str) -> None:
        done = towline("config", "set", "lease_ms=9000", "log_level=ERROR", *self.where(node, by), "--json")
        assert done.status == 1
        assert "takes effect after a restart only: lease_ms" in done.document["sentence"]

    def test_what_the_command_set_is_not_kept(self, node: NodeAtPort, towline: Towline, by: str) -> None:
        done = towline("config", "set", "listen_port=1", "--keep", *self.where(node, by))
        assert (done.status, "restart only: listen_port" in done.err) == (1, True)

    def test_a_call_that_means_nothing_is_refused(self, node: NodeAtPort, towline: Towline, by: str) -> None:
        assert "'put_waiting_max'" in towline("config", "get", "put_waiting", *self.where(node, by)).err
        assert towline("config", "set", "put_waiting_max", *self.where(node, by)).status == 2


def test_more_than_four_questions_at_once_are_too_many(node: NodeAtPort) -> None:
    def ask(_: int) -> str:
        with AdminClient(node.address) as admin:
            try:
                return f"{admin.node_stats(2_000)['put']['messages']} messages"
            except AskRefused as refused:
                return refused.error

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(ask, range(5))) == [*["3 messages"] * 4, "TooManyAsk"]
