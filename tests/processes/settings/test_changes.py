"""Settings of a running node that are changed: all or none, taken by every process that works by them, kept or not."""

import os
import signal
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BadSetting, FixedSetting, NodeNotRunning, OverruledSetting, TowlineError, UnknownSetting
from towline.limits import MIB
from towline.node.process.settings_changes import change_settings, read_node_settings
from towline.runtime.positions import Position
from towline.runtime.settings import LIVE

WAIT_S = 30.0
RESERVED = 3  # what the command that starts the node gives for file_reserved_time


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("changed") / "store"
    quick = {"flush_consume_queue_thorough_interval": 200}  # nothing is cut before queues are on the disk
    made = TestNode("master", root, flush_disk_type="ASYNC_FLUSH", file_reserved_time=RESERVED, **quick)
    with ending(made):
        made.start()
        yield made
        assert made.stop()


@pytest.fixture
def changed(node: TestNode) -> Iterator[None]:
    """Gives back what a test changes."""
    before = values(node)
    yield
    change_settings(node.store.root, {key: before[key] for key in LIVE}, keep=False)


def values(node: TestNode) -> dict[str, object]:
    return {row["key"]: row["value"] for row in read_node_settings(node.store.root)}


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


ANOTHER = {  # value of each key that may change, other than its default
    "auto_create_subscription_group": False,
    "auto_create_topic_enable": False,
    "broker_permission": 4,
    "clean_file_forcibly_enable": False,
    "clean_resource_interval": 1_000,
    "delete_when": "05;17",
    "disk_max_used_space_ratio": 70,
    "dots_in_topic_names": True,
    "disk_space_clean_forcibly_ratio": 80,
    "disk_space_warning_level_ratio": 88,
    "file_reserved_bytes": 5 * SEGMENT,
    "file_reserved_time": 5,
    "flush_backlog_max": 16 * MIB,
    "ha_flow_control_enable": True,
    "keep_until_archived": True,
    "log_file_count": 3,
    "log_file_size_max": 16 * MIB,
    "log_format": "json",
    "log_level": "WARNING",
    "max_ha_transfer_byte_in_second": MIB,
    "max_transfer_bytes_on_message_in_disk": 1_000,
    "max_transfer_bytes_on_message_in_memory": 1_000,
    "max_transfer_count_on_message_in_disk": 2,
    "max_transfer_count_on_message_in_memory": 2,
    "os_page_cache_busy_time_out_mills": 900,
    "put_waiting_max": 10,
    "rocketmq_ha_from_oldest": True,
    "total_replicas": 2,
    "wait_time_mills_in_send_queue": 150,
}


@pytest.mark.usefixtures("changed")
def test_every_process_takes_a_change_of_everything_that_may_change(node: TestNode) -> None:
    assert ANOTHER.keys() == LIVE.keys() - {"ha_peers"}  # which a node alone has none of
    before = node.at(Position.SETTINGS)
    done = change_settings(node.store.root, ANOTHER, keep=False)
    named = {"broker_name": "towline", "broker_id": 0, "role": "master", "store": str(node.store.root)}
    assert done == {"settings": ANOTHER, "kept": False, "waiting": [], "node": named}
    assert {key: value for key, value in values(node).items() if key in ANOTHER} == ANOTHER
    assert node.at(Position.SETTINGS) == before + 1


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"flush_disk_type": "SYNC_FLUSH", "broker_permission": 4}, FixedSetting, "restart only: flush_disk_type;"),
        ({"pull_bytes_max": 9 * MIB, "lease_ms": 9_000}, FixedSetting, "restart only: lease_ms, pull_bytes_max;"),
        ({"ha_peers": "0=127.0.0.1:9999"}, FixedSetting, "restart only: ha_peers of this node itself;"),
        ({"broker_permision": 4}, UnknownSetting, "did you mean 'broker_permission'"),
        ({"broker_permission": 4, "put_waiting_max": 0}, BadSetting, "put_waiting_max = 0"),
        ({"flush_backlog_max": 1_000}, BadSetting, "beside request_size_max"),
        ({"log_level": "LOUD"}, BadSetting, "log_level = LOUD"),
        ({"keys_dir": "~nobody-of-this-name/ring"}, BadSetting, "keys_dir = ~nobody-of-this-name/ring"),
        ({"broker_permission": 2}, BadSetting, "broker_permission = 2"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(node, change, error, said) -> None:
    before, number = values(node), node.at(Position.SETTINGS)
    with pytest.raises(error, match=said):
        change_settings(node.store.root, change, keep=True)
    assert (values(node), node.at(Position.SETTINGS)) == (before, number)
    assert not node.store.kept_settings.exists()


def test_a_key_that_needs_a_start_may_be_named_with_the_value_it_has(node: TestNode) -> None:
    done = change_settings(node.store.root, {"flush_disk_type": "ASYNC_FLUSH", "put_waiting_max": 65_536}, keep=False)
    assert done["settings"] == {"put_waiting_max": 65_536}


def test_a_store_without_a_node_has_nothing_to_change(tmp_path: Path) -> None:
    with pytest.raises(NodeNotRunning):
        change_settings(tmp_path, {"broker_permission": 4}, keep=False)


@pytest.mark.usefixtures("changed")
def test_changes_that_several_ask_for_at_once_are_all_made(node: TestNode) -> None:
    keys = ["put_waiting_max", "file_reserved_time", "max_ha_transfer_byte_in_second", "clean_resource_interval"]

    def change(key: str) -> object:
        return change_settings(node.store.root, {key: ANOTHER[key]}, keep=False)["settings"]

    with ThreadPoolExecutor(len(keys)) as pool:
        assert list(pool.map(change, keys)) == [{key: ANOTHER[key]} for key in keys]
    now = values(node)
    assert {key: now[key] for key in keys} == {key: ANOTHER[key] for key in keys}
    assert not list(node.store.changes.iterdir())


@pytest.mark.usefixtures("changed")
def test_a_process_that_stands_still_is_named_and_takes_the_change_later(node: TestNode) -> None:
    flush = node.pids()["flush"]
    os.kill(flush, signal.SIGSTOP)
    try:
        done = change_settings(node.store.root, {"log_level": "ERROR"}, keep=False, timeout_s=2.0)
        assert done["waiting"] == ["flush"]
    finally:
        os.kill(flush, signal.SIGCONT)
    assert change_settings(node.store.root, {"log_level": "INFO"}, keep=False)["waiting"] == []


class TestKeeping:
    @pytest.fixture
    def alone(self, tmp_path: Path) -> Iterator[TestNode]:
        made = TestNode("master", tmp_path / "store", file_reserved_time=RESERVED)
        with ending(made):
            yield made

    def test_a_kept_value_wins_over_the_file_and_over_nothing_else(self, alone: TestNode, tmp_path: Path) -> None:
        file = tmp_path / "node.toml"
        file.write_text("put_waiting_max = 1000\nclean_resource_interval = 7000\n")
        alone.start("--config", str(file))
        change_settings(alone.store.root, {"put_waiting_max": 10, "log_level": "WARNING"}, keep=True)
        change_settings(alone.store.root, {"put_waiting_max": 11, "clean_resource_interval": 5}, keep=False)
        assert tomllib.loads(alone.store.kept_settings.read_text()) == {"log_level": "WARNING", "put_waiting_max": 10}
        alone.stop()
        alone.start("--config", str(file))
        rows = {row["key"]: (row["value"], row["kept"]) for row in read_node_settings(alone.store.root)}
        assert rows["put_waiting_max"] == (10, True)
        assert rows["log_level"] == ("WARNING", True)
        assert rows["clean_resource_interval"] == (7_000, False)
        alone.stop()
        alone.start("--config", str(file), "--set", "put_waiting_max=12")
        assert values(alone)["put_waiting_max"] == 12

    def test_what_the_next_start_would_overrule_is_not_kept(self, alone: TestNode, monkeypatch) -> None:
        monkeypatch.setenv("TOWLINE_PUT_WAITING_MAX", "2000")
        alone.start()
        for key, who in (("file_reserved_time", "the command that starts it"), ("put_waiting_max", "its environment")):
            with pytest.raises(OverruledSetting, match=f"{key} cannot be kept: {who}"):
                change_settings(alone.store.root, {"log_level": "ERROR", key: 9}, keep=True)
        assert values(alone)["log_level"] == "INFO"
        assert not alone.store.kept_settings.exists()
        assert change_settings(alone.store.root, {"file_reserved_time": 9}, keep=False)["waiting"] == []

    def test_a_kept_value_that_cannot_be_refuses_the_start_by_its_file(self, alone: TestNode) -> None:
        alone.store.root.mkdir()
        alone.store.kept_settings.write_text("put_waiting_max = 0\n")
        with pytest.raises(TowlineError, match=r"kept.toml: put_waiting_max = 0"):
            alone.start()


class TestWhatFollows:
    @pytest.mark.usefixtures("changed")
    def test_topics_are_made_by_a_first_message_or_not(self, node: TestNode) -> None:
        with Producer(node.endpoint) as producer:
            change_settings(node.store.root, {"auto_create_topic_enable": False}, keep=False)
            with pytest.raises(TowlineError, match="unmade"):
                producer.send(Message("unmade", b"x"))
            change_settings(node.store.root, {"auto_create_topic_enable": True}, keep=False)
            assert producer.send(Message("unmade", b"x")).acknowledged

    @pytest.mark.usefixtures("changed")
    def test_groups_are_made_by_their_first_member_or_not(self, node: TestNode) -> None:
        with AdminClient(node.endpoint) as admin:
            admin.create_topic("grouped", 1)
        change_settings(node.store.root, {"auto_create_subscription_group": False}, keep=False)
        joining = {"member": "m@1", "topics": {"grouped": {"expression": "*", "type": "TAG"}}}
        with AdminClient(serve_of(node)) as admin:
            with pytest.raises(AskRefused, match="UNKNOWN_GROUP"):
                admin.ask("group_join", group="unmade", **joining)
            change_settings(node.store.root, {"auto_create_subscription_group": True}, keep=False)
            assert admin.ask("group_join", group="unmade", **joining).facts["generation"] > 0

    @pytest.mark.usefixtures("changed")
    def test_a_pull_gets_as_many_messages_as_is_allowed_then(self, node: TestNode) -> None:
        with Producer(node.endpoint) as producer:
            producer.send_batch([Message("pulled", b"x", queue_id=0)] * 9)
        for most in (2, 5):
            change_settings(node.store.root, {"max_transfer_count_on_message_in_memory": most}, keep=False)
            with Consumer(serve_of(node), "pulled", start="first") as consumer:
                assert len(consumer.poll(5_000)) == most

    @pytest.mark.usefixtures("changed")
    def test_the_log_is_cut_to_a_size_that_is_set(self, node: TestNode) -> None:
        with Producer(node.endpoint) as producer:
            while node.at(Position.APPENDED) < 8 * SEGMENT:
                producer.send(Message("large", os.urandom(MIB), queue_id=0))
        low = node.at(Position.LOG_MIN)
        change_settings(node.store.root, {"file_reserved_bytes": 4 * SEGMENT}, keep=False)
        await_(lambda: node.at(Position.LOG_MIN) > low, WAIT_S, "old segments go")

    @pytest.mark.usefixtures("changed")
    def test_the_log_says_less_from_then_on(self, node: TestNode) -> None:
        change_settings(node.store.root, {"log_level": "WARNING"}, keep=False)
        change_settings(node.store.root, {"put_waiting_max": 1_234}, keep=False)
        change_settings(node.store.root, {"log_level": "INFO", "put_waiting_max": 4_321}, keep=False)
        log = node.store.node_log.read_text()
        assert "put_waiting_max = 4321" in log
        assert "put_waiting_max = 1234" not in log
