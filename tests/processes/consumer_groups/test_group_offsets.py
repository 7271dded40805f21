"""Offsets of consumer groups through a running node: kills, damaged files, a real broker's file, a slave."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.nodes import SEGMENT, Pair, TestNode, ended
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.producer import Producer
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import segment_name
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.start import home

DEADLINE_S: Final = 60.0
INTERVAL_MS: Final = 300
COUNT: Final = 200  # messages of each queue
QUEUES: Final = 2
JOIN: Final = {"group": "g", "member": "m", "instance": "i", "topics": {"t": {"expression": "*", "type": "TAG"}}}
# As a RocketMQ 5.3 broker writes it; offsets of queue 1 and of TopicGone cannot be true here.
REAL: Final = """{
	"dataVersion":{
		"counter":7,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"groupTopicMap":{
		"real":["TopicGone","t"]
	},
	"offsetTable":{
		"TopicGone@real":{0:3
		},
		"t@real":{0:5,1:70000
		}
	}
}"""

Make = Callable[..., TestNode]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[TestNode] = []

    def new(**settings: object) -> TestNode:
        given = {"ha_listen_port": 0, "flush_consumer_offset_interval": INTERVAL_MS} | settings
        made.append(TestNode("master", tmp_path / f"node{len(made)}", **given))
        return made[-1]

    yield new
    for node in made:
        ending = ended(node)
        next(ending)
        next(ending, None)


def admin(node: TestNode) -> AdminClient:
    return AdminClient(f"ipc://{node.runtime / 'serve.sock'}", timeout_ms=int(DEADLINE_S * 1000))


def fill(node: TestNode) -> None:
    with AdminClient(node.endpoint) as put:
        put.create_topic("t", QUEUES)
    with Producer(node.endpoint) as producer:
        for queue in range(QUEUES):
            producer.send_bodies("t", [b"body"] * COUNT, queue_id=queue)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "everything is dispatched")


def commit(client: AdminClient, at: int, group: str = "g", **facts: Any) -> dict[str, Any]:
    offsets = {"t": {str(queue): at for queue in range(QUEUES)}}
    return client.ask("group_commit", group=group, member="", offsets=offsets, **facts).facts


def offsets(client: AdminClient, group: str = "g") -> dict[str, int]:
    found: dict[str, int] = client.ask("group_offsets", group=group, topics=["t"]).facts["offsets"]["t"]
    return found


def saved(node: TestNode) -> dict[str, Any]:
    content = ConfigFile(node.store.config / "consumerOffset.json").load() or {}
    return dict(content.get("offsetTable", {}).get("t@g", {}))


def test_offsets_go_back_by_an_interval_at_most_after_a_kill_and_never_forward(make: Make):
    node = make()
    node.start()
    fill(node)
    with admin(node) as client:
        assert client.ask("group_join", **JOIN, **{"from": "first"}).facts["queues"] == {"t": QUEUES}
    before = node.pids()
    check_offsets_go_back_a_little(
        node, 0, lambda: (os.kill(before["serve"], signal.SIGKILL), node.await_restarted("serve", before))
    )
    check_offsets_go_back_a_little(node, 100, lambda: (node.kill_all(7), node.start()))
    with admin(node) as client:
        assert client.ask("group_join", **JOIN, generation=1).facts["members"] == ["m"]
        commit(client, 199)
    assert node.stop()
    assert saved(node) == {"0": 199, "1": 199}


def check_offsets_go_back_a_little(node: TestNode, first: int, kill: Callable[[], object]) -> None:
    with admin(node) as client:
        commit(client, first + 40)
        await_(lambda: saved(node) == dict.fromkeys("01", first + 40), DEADLINE_S, "the commit is on disk")
        for at in range(first + 41, first + 90):
            commit(client, at)
        assert offsets(client) == dict.fromkeys("01", first + 89)
    kill()
    with admin(node) as client:
        after = offsets(client)
    assert all(first + 40 <= at <= first + 89 for at in after.values())
    assert after["0"] == after["1"]  # a file is one moment


def test_a_clean_stop_keeps_every_offset_and_commits_stay_within_their_queue(make: Make):
    node = make(flush_consumer_offset_interval=3_600_000)
    node.start()
    fill(node)
    with admin(node) as client:
        client.ask("group_join", **JOIN, **{"from": "last"})
        assert offsets(client) == {"0": COUNT, "1": COUNT}
        assert commit(client, 10**12)["clamped"] == {"t": {"0": COUNT, "1": COUNT}}
        assert commit(client, 7) == {}
        asked = client.ask("group_reset", group="g", topic="t", to={"offset": 3}, queue=1).facts
        assert asked == {"offsets": {"1": 3}}
        settings = client.ask("group_configure", group="g", settings={"retryMaxTimes": 3}).facts["settings"]
        assert settings["retryMaxTimes"] == 3
    assert node.stop()
    node.start()
    with admin(node) as client:
        assert offsets(client) == {"0": 7, "1": 3}
        shown = client.ask("group_describe", group="g").facts
        assert shown["settings"]["retryMaxTimes"] == 3
        assert [(row["queue"], row["lag"]) for row in shown["queues"]] == [(0, COUNT - 7), (1, COUNT - 3)]
        client.ask("group_delete", group="g")
        with pytest.raises(AskRefused) as error:
            offsets(client)
        assert error.value.error == "UNKNOWN_GROUP"
    assert node.stop()
    assert saved(node) == {}


@contextlib.contextmanager
def serve_by_hand(node: TestNode) -> Iterator[None]:
    """For a node that was started without it: it comes when put has long begun. Ends with the block."""
    serve = subprocess.Popen([sys.executable, "-m", "towline.serve", "--store", str(node.store.root)], cwd=home())
    try:
        yield
    finally:
        serve.terminate()
        serve.wait(DEADLINE_S)


def test_what_a_power_cut_took_is_given_back_before_put_uses_its_numbers_again(make: Make):
    """By the group's offsets and by a member that has lived on: neither passes over what comes under these numbers."""
    node = make(flush_disk_type="ASYNC_FLUSH")
    node.start()
    fill(node)
    assert node.stop()
    node.start()
    durable = node.at(Position.APPENDED)
    endpoint = f"ipc://{node.runtime / 'serve.sock'}"
    seen: list[tuple[int, int, bytes]] = []

    def read(member: GroupConsumer, count: int) -> None:
        def come() -> bool:
            seen.extend((each.queue_id, each.queue_offset, each.body) for each in member.poll(100))
            return len(seen) >= count

        await_(come, DEADLINE_S, f"{count} messages come")

    with GroupConsumer(endpoint, "g", "t", start="first", timeout_ms=60_000, suspend_ms=200) as member:
        with stopped(node.pids()["flush"]):
            lost, total = 150, QUEUES * COUNT + 150
            with Producer(node.endpoint) as producer:
                producer.send_bodies("t", [b"lost"] * lost, queue_id=0)
            read(member, total)
            member.commit()
            await_(lambda: saved(node).get("0") == COUNT + lost, DEADLINE_S, "the commit is on disk")
            node.kill_all(5)
        cut_power(node, durable)
        node.start("--without", "serve")
        with Producer(node.endpoint) as producer:
            producer.send_bodies("t", [b"new"] * 50, queue_id=0)
        await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "all is dispatched")
        with serve_by_hand(node), admin(node) as client:
            assert offsets(client) == {"0": COUNT, "1": COUNT}
            assert client.ask("group_list").facts["clamped"] == 1
            read(member, total + 50)
            assert seen[total:] == [(0, COUNT + number, b"new") for number in range(50)]
            member.close()
            assert offsets(client) == {"0": COUNT + 50, "1": COUNT}
    assert f"its offset {COUNT + lost} of queue 0 of t is beyond the queue's end" in node.store.node_log.read_text()


def cut_power(node: TestNode, durable: int) -> None:
    """What was not on the disk is gone, and all memory of the node with it."""
    with (node.store.commitlog / segment_name(durable - durable % SEGMENT)).open("r+b") as segment:
        segment.seek(durable % SEGMENT)
        segment.write(bytes(SEGMENT - durable % SEGMENT))
    memory = runtime_of(node.store.root)
    for path in (memory.page_cache, memory.wrote):
        path.unlink()


def test_damaged_files_and_a_real_brokers(make: Make):
    node = make()
    node.start()
    fill(node)
    path = node.store.config / "consumerOffset.json"
    with admin(node) as client:
        for at in (20, 30):
            commit(client, at)
            await_(lambda at=at: saved(node) == {"0": at, "1": at}, DEADLINE_S, "the commit is on disk")
    node.kill_all(3)

    path.write_bytes(b'{\n\t"offsetTable":{\n\t\t"t@g":{0:5')
    node.start()
    with admin(node) as client:
        assert offsets(client) == {"0": 20, "1": 20}
    assert "consumerOffset.json.bak is used" in node.store.node_log.read_text()
    assert node.stop()

    for each in (path, path.with_name(path.name + ".bak")):
        each.write_bytes(b'{"offsetTable":')
    node.start()
    with admin(node) as client:
        with pytest.raises(AskRefused) as error:
            client.ask("group_join", **JOIN)
        assert error.value.error == "OFFSETS_UNREADABLE"
        assert str(path) in error.value.sentence
        assert client.bounds("t") == {0: (0, COUNT), 1: (0, COUNT)}
    assert node.stop()
    assert path.read_bytes() == b'{"offsetTable":'  # for whoever can still read something there

    path.write_text(REAL, encoding="utf-8")
    node.start()
    with admin(node) as client:
        assert offsets(client, "real") == {"0": 5, "1": COUNT}
        assert client.ask("group_list").facts["clamped"] >= 1

        def topics() -> list[str]:
            rows = client.ask("group_list").facts["groups"]
            return next(row["topics"] for row in rows if row["group"] == "real")

        await_(lambda: topics() == ["t"], DEADLINE_S, "the offsets of a topic that is not there are dropped")
    assert (
        "its offset 70000 of queue 1 of t is beyond the queue's end and becomes 200" in node.store.node_log.read_text()
    )
    assert node.stop()


def test_a_group_is_made_by_its_configuration_alone_and_begins_at_the_last_message(make: Make):
    node = make(auto_create_subscription_group=False)
    node.start()
    fill(node)
    endpoint = f"ipc://{node.runtime / 'serve.sock'}"
    with GroupConsumer(endpoint, "g", "t", start="last") as member:
        with pytest.raises(AskRefused) as error:
            member.poll(int(DEADLINE_S * 1000))
        assert error.value.error == "UNKNOWN_GROUP"
        with admin(node) as client:
            with pytest.raises(AskRefused):
                client.describe_group("g")
            client.configure_group("g", retryMaxTimes=3)
            found: list[tuple[int, int]] = []

            def come() -> None:
                with contextlib.suppress(AskRefused):  # as it was told before
                    found.extend((each.queue_id, each.queue_offset) for each in member.poll(100))

            def joined() -> bool:
                come()
                return len(client.describe_group("g")["members"]) == 1

            await_(joined, DEADLINE_S, "it has joined")
            with Producer(node.endpoint) as producer:
                for queue in range(QUEUES):
                    producer.send_bodies("t", [b"after"] * 5, queue_id=queue)
            await_(lambda: come() or len(found) >= 5 * QUEUES, DEADLINE_S, "what comes after it comes")
            assert sorted(found) == [(queue, COUNT + number) for queue in range(QUEUES) for number in range(5)]


def test_a_slave_follows_the_offsets_and_sends_members_to_its_master(tmp_path: Path):
    pair = Pair(tmp_path, broker_role="ASYNC_MASTER", flush_consumer_offset_interval=INTERVAL_MS)
    ending = ended(*pair.nodes)
    next(ending)
    pair.start()
    fill(pair.master)
    with admin(pair.master) as master, admin(pair.slave) as slave:
        commit(master, 42)
        commit(master, 17, group="h")

        def followed() -> bool:
            names = [row["group"] for row in slave.ask("group_list").facts["groups"]]
            return {"g", "h"} <= set(names) and offsets(slave) == {"0": 42, "1": 42}

        await_(followed, DEADLINE_S, "the slave has the offsets of its master")
        for op in ("group_join", "group_commit", "group_delete"):
            with pytest.raises(AskRefused) as error:
                slave.ask(op, **JOIN)
            assert error.value.error == "NOT_MASTER"
        assert slave.ask("group_describe", group="h").facts["queues"][0]["offset"] == 17
    pair.stop()
    next(ending, None)
