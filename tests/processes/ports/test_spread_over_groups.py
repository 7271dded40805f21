"""A cluster of two real groups of nodes, by its file: producers spread messages over them, consumers read them all."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.nodes import TestNode, ended, free_port
from tests.processes.waiting import await_
from towline.cli.main import run
from towline.client.cluster_admin import ClusterAdmin
from towline.client.consumer import Consumer
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.request import reply

DEADLINE_S: Final = 60.0
COUNT: Final = 400
NAMES: Final = ("left", "right")


class Cluster:
    def __init__(self, root: Path) -> None:
        self.path = root / "cluster.toml"
        self.endpoint = f"cluster:{self.path}"
        rows, self.nodes = ['name = "DefaultCluster"'], {}
        for name in NAMES:
            port = free_port()
            self.nodes[name] = TestNode("master", root / name, broker_name=name, ha_listen_port=0, listen_port=port)
            rows += ["[[group]]", f'name = "{name}"', "[[group.node]]", "id = 0", f'store = "{name}"']
            rows += [f"listen_port = {port}", f"ha_listen_port = {free_port()}"]
        self.path.write_text("\n".join(rows))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    ending = ended(*made.nodes.values())
    next(ending)
    try:
        for node in made.nodes.values():
            node.start()
        with ClusterAdmin(made.endpoint) as admin:
            admin.create_topic("t", 2)
        yield made
    finally:
        next(ending, None)


def read(consumer: Consumer | GroupConsumer, count: int) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []

    def all_there() -> bool:
        found.extend((message.broker_name, message.body) for message in consumer.poll(200))
        return len(found) >= count

    await_(all_there, DEADLINE_S, f"{count} messages come")
    return found


def test_messages_are_spread_and_all_are_read(cluster: Cluster):
    bodies = [b"%d" % number for number in range(COUNT)]
    with Producer(cluster.endpoint, batch_bytes_max=4_096) as producer:
        await_(lambda: producer.linked_groups == list(NAMES), DEADLINE_S, "both masters are there")
        assert all(result.acknowledged for result in producer.send_batch([Message("t", body) for body in bodies]))
        assert producer.statistics.acknowledged == COUNT
    with Consumer(cluster.endpoint, "t", suspend_ms=500) as consumer:
        found = read(consumer, COUNT)
    assert sorted(body for _, body in found) == sorted(bodies)
    assert {name for name, _ in found} == set(NAMES)
    with ClusterAdmin(cluster.endpoint) as admin:
        ends = {name: sum(end for _, end in queues.values()) for name, queues in admin.bounds("t").items()}
        assert sum(ends.values()) == COUNT
        assert min(ends.values()) > 0
    with GroupConsumer(cluster.endpoint, "g", "t", start="first", suspend_ms=500) as member:
        assert sorted(body for _, body in read(member, COUNT)) == sorted(bodies)
        member.commit()
    with ClusterAdmin(cluster.endpoint) as admin:
        offsets = admin.group_offsets("g", "t")
        assert {name: sum(topics["t"].values()) for name, topics in offsets.items()} == ends


def test_a_request_is_replied_to_through_any_group(cluster: Cluster):
    with (
        Producer(cluster.endpoint) as asker,
        GroupConsumer(cluster.endpoint, "answerers", "t", start="last", suspend_ms=500) as answerer,
    ):
        answerer.poll(0)
        await_(
            lambda: answerer.poll(50) == [] and all(answerer.assignment(name) for name in NAMES),
            DEADLINE_S,
            "the answerer reads both",
        )
        future = []

        def answered() -> bool:
            for message in answerer.poll(100):
                future.append(asker.send(reply(message, b"pong " + message.body)))
            return bool(future)

        from_thread = ThreadPoolExecutor(1)
        asked = from_thread.submit(asker.request, Message("t", b"ping"), 20_000)
        await_(answered, DEADLINE_S, "the request came")
        assert asked.result(DEADLINE_S).body == b"pong ping"
        from_thread.shutdown()


def test_a_group_that_is_killed_is_passed_over_and_its_keys_wait(cluster: Cluster):
    with Producer(cluster.endpoint, send_timeout_ms=1_000) as producer:
        await_(lambda: producer.linked_groups == list(NAMES), DEADLINE_S, "both masters are there")
        assert producer.send(Message("t", b"w", broker_name="left")).acknowledged
        cluster.nodes["left"].kill_all(seed=5)
        results = [producer.send(Message("t", b"x")) for _ in range(10)]
        assert all(result.acknowledged for result in results)
        assert {result.broker_name for result in results[1:]} == {"right"}
        waiting = producer.send_async(Message("t", b"y", broker_name="left"))
        assert not waiting.done()
        cluster.nodes["left"].start()
        assert waiting.result(20).acknowledged


def test_the_command_sees_and_sets_a_group_on_every_master(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(command: str, *words: str) -> Any:
        assert run(["group", command, *words, "--endpoint", cluster.endpoint, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    told("configure", "everywhere", "--retry-max", "2")
    rows = [row for row in told("list")["groups"] if row["group"] == "everywhere"]
    assert [row["broker_name"] for row in rows] == list(NAMES)
    told("reset-offset", "everywhere", "t", "--to", "first")
    found = told("describe", "everywhere")["nodes"]
    assert [(each["broker_name"], each["settings"]["retryMaxTimes"]) for each in found] == [(name, 2) for name in NAMES]
    assert [row["offset"] for each in found for row in each["queues"]] == [0] * 4
    with ClusterAdmin(cluster.endpoint) as admin:
        admin.of("left").delete_group("everywhere")
        assert told("delete", "everywhere") == {"group": "everywhere", "topics": []}  # of who still has it
        assert not any(row["group"] == "everywhere" for rows in admin.groups().values() for row in rows)
