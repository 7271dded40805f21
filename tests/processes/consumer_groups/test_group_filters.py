"""A SQL92 subscription through a running node: serve writes it, reput says that it evaluates it, then it is born."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.damage.test_verify_repair import COMMAND
from tests.processes.nodes import TestNode, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.errors import FilterRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.group.subscription import Sql
from towline.client.message import Message
from towline.client.producer import Producer
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FilterData, read
from towline.log.files.config_file import ConfigFile
from towline.runtime.positions import Position
from towline.start import home

DEADLINE_S: Final = 60.0
SETTINGS: Final = {
    "ha_listen_port": 0,
    "enable_property_filter": True,
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
}


def join(node: TestNode, expression: str) -> dict[str, Any]:
    with AdminClient(f"ipc://{node.runtime / 'serve.sock'}", timeout_ms=int(DEADLINE_S * 1000)) as client:
        topics = {"t": {"expression": expression, "type": "SQL92"}}
        return client.ask("group_join", group="g", member="m", instance="i", topics=topics).facts


def subscription(node: TestNode) -> FilterData | None:
    path = node.store.config / "consumerFilter.json"
    content = ConfigFile(path).load()
    return None if content is None else read(content, Bloom(32, 20), str(path)).get("t", "g")


def await_born(node: TestNode, expression: str) -> FilterData:
    def born() -> FilterData | None:
        found = subscription(node)
        return found if found is not None and found.expression == expression and not found.is_pending else None

    found = await_(born, DEADLINE_S, f"the subscription {expression!r} is born")
    assert found is not None
    return found


def put(node: TestNode) -> None:
    with Producer(node.endpoint) as producer:
        producer.send(Message("t", b"body", properties={"a": "6"}))
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "everything is dispatched")


def check_refused(node: TestNode) -> None:
    """A member is told what a consumer is told: where its expression goes wrong."""
    endpoint = f"ipc://{node.runtime / 'serve.sock'}"
    with (
        GroupConsumer(endpoint, "other", {"t": Sql("a > 3 AND AND b")}) as consumer,
        pytest.raises(FilterRefused) as refused,
    ):
        await_(lambda: consumer.poll(200), DEADLINE_S, "a refusal")
    assert (refused.value.error, refused.value.position) == ("BadExpression", len("a > 3 AND "))


def check_command(node: TestNode) -> None:
    found, _ = get(node, "a > 5", "--json")
    assert [message["body"] for message in json.loads(found)["messages"]] == ["body"]
    found, _ = get(node, "a > 6", "--json")
    assert json.loads(found)["messages"] == []
    _, error = get(node, "a > 3 AND AND b")
    assert error.splitlines()[:2] == ["  a > 3 AND AND b", "            ^"]
    assert "at character 10" in error


def get(node: TestNode, expression: str, *words: str) -> tuple[str, str]:
    """What `towline get --sql` prints: results, errors."""
    command = [sys.executable, "-c", COMMAND, "get", "t", "--sql", expression, "--store", str(node.store.root), *words]
    done = subprocess.run(command, cwd=home(), capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def test_a_subscription_is_born_when_reput_evaluates_it_and_again_when_it_changes(tmp_path: Path):
    node = TestNode("master", tmp_path / "node", **SETTINGS)
    ending = ended(node)
    next(ending)
    node.start()
    with AdminClient(node.endpoint) as client:
        client.create_topic("t", 1)
    put(node)
    check_refused(node)
    check_command(node)
    join(node, "a > 5")
    put(node)
    first = await_born(node, "a > 5")
    join(node, "a > 7")
    put(node)
    second = await_born(node, "a > 7")
    assert second.born_time >= first.born_time
    before = node.pids()
    os.kill(before["serve"], signal.SIGKILL)
    node.await_restarted("serve", before)
    join(node, "a > 7")
    found = await_born(node, "a > 7")
    assert found.born_time == second.born_time  # reput has evaluated it all the time
    node.stop()
    next(ending, None)
