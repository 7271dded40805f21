"""`/live`, `/ready`, the metric `towline_ready` and the exit status of `status` judge alike, under real damage."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.scraping import WAIT_S, ask, families, metered, ready, value, values
from tests.processes.damage.test_verify_repair import towline
from tests.processes.nodes import POOLED, Pair, TestNode, check_nothing_is_left, ending, free_port
from tests.processes.readers.test_stopped_dispatch import damage_behind, put_dispatched, the_length_word
from tests.processes.settings.test_read_only import READ, READ_AND_WRITE, permit
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.metrics.declared import STARTING
from towline.node.supervise.launch import spawn_node
from towline.runtime.failpoints import ENVIRONMENT


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = metered("master", tmp_path_factory.mktemp("health") / "store")
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def await_ready(node: TestNode) -> None:
    await_(lambda: ready(node) == (200, []), WAIT_S, "it is ready")


def check_not_ready(node: TestNode, reason: str, words: str) -> list[dict[str, Any]]:
    """Everybody says so, for this reason alone, in the same sentence; what they say."""
    await_(lambda: ready(node) == (503, [reason]), WAIT_S, f"it is not ready: {reason}")
    assert value(node, "towline_ready") == 0
    assert {name for name, told in values(node, "towline_not_ready", "reason").items() if told} == {reason}
    status, told = towline(node.role, "status", "--store", node.store.root)
    assert (status, told["ready"]) == (1, False)
    assert [each["reason"] for each in told["not_ready"]] == [reason]
    assert words in told["not_ready"][0]["sentence"]
    said: list[dict[str, Any]] = json.loads(ask(node, "/ready")[1])["not_ready"]
    assert words in said[0]["sentence"]
    return said


def check_ready(node: TestNode) -> None:
    await_ready(node)
    assert value(node, "towline_ready") == 1
    status, told = towline(node.role, "status", "--store", node.store.root)
    assert (status, told["ready"], told["not_ready"]) == (0, True, [])


def test_a_node_that_serves_lives_and_is_ready(node: TestNode) -> None:
    assert ask(node, "/live") == (200, '{"live": true}\n')
    check_ready(node)


@pytest.mark.parametrize("label", ["flush", "reput"])
def test_while_a_process_stands_still_it_lives_and_is_not_ready(node: TestNode, label: str) -> None:
    with stopped(node.pids()[label]):
        check_not_ready(node, "standing_still", f"{label} (process {node.pids()[label]})")
        assert value(node, "towline_process_standing_still", process=label) == 1
        assert ask(node, "/live")[0] == 200
    check_ready(node)


def test_while_the_supervisor_stands_still_it_does_not_live(node: TestNode) -> None:
    with stopped(node.pids()["supervisor"]):
        await_(lambda: ask(node, "/live") == (503, '{"live": false}\n'), WAIT_S, "it does not live")
    await_(lambda: ask(node, "/live")[0] == 200, WAIT_S, "it lives")
    await_ready(node)


def test_while_it_is_read_only_puts_are_refused_and_counted(node: TestNode) -> None:
    permit(node, READ)
    (said,) = check_not_ready(node, "puts_refused", "cause=permission")
    assert "broker_permission=6" in said["remedy"]
    assert value(node, "rocketmq_broker_permission") == READ
    before = value(node, "towline_refused_total", cause="permission") or 0
    with Producer(node.endpoint) as producer:
        refused = producer.send_async(Message("t", b"refused"))
        assert "read-only" in str(refused.exception(WAIT_S))
    assert (value(node, "towline_refused_total", cause="permission") or 0) > before
    permit(node, READ_AND_WRITE)
    check_ready(node)


def test_a_master_without_the_slaves_that_it_needs_is_not_ready_nor_a_slave_without_its_master(tmp_path: Path) -> None:
    settings = {"metrics_port": free_port(), "min_in_sync_replicas": 2}
    pair = Pair(tmp_path, **settings)
    pair.slave.flags += ["--set", f"metrics_port={free_port()}"]
    with ending(*pair.nodes):
        pair.master.start()
        check_not_ready(pair.master, "puts_refused", "cause=replicas")
        pair.slave.start()
        pair.await_linked()
        for each in pair.nodes:
            check_ready(each)
        pair.master.stop()
        check_not_ready(pair.slave, "no_master", "it follows nobody: ")
        assert value(pair.slave, "towline_follows_master") == 0
        assert ask(pair.slave, "/live")[0] == 200
        pair.master.start()
        check_ready(pair.slave)


def test_a_node_that_cannot_dispatch_a_record_is_not_ready_and_names_the_remedy(tmp_path: Path) -> None:
    node = metered("master", tmp_path / "store")
    with ending(node):
        node.start()
        put_dispatched(node, 0, 100)
        at, _ = damage_behind(node, 100, the_length_word)
        (said,) = check_not_ready(node, "dispatch_stopped", f"the record at {at} ")
        assert f"--skip {at}" in said["remedy"]
        assert value(node, "towline_dispatch_stopped") == 1
        assert value(node, "towline_flag", flag="logic_queue_error") == 1


def test_while_the_store_is_recovered_it_lives_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start is held up while it commits what a killed node left in its transient pool."""
    node = metered("master", tmp_path / "store", **(POOLED | {"commit_interval_commit_log": 1_000_000}))
    with ending(node):
        node.start()
        with Producer(node.endpoint) as producer:
            assert producer.send(Message("t", b"in the pool")).acknowledged
        node.kill_all(seed=1)
        assert ask(node, "/live") == (0, "")
        monkeypatch.setenv(ENVIRONMENT, "recover.in_salvage=stall:1000000")
        node.launched = spawn_node("master", node.store.root, node.flags, tied=True)
        await_(lambda: ready(node) == (503, ["recovering"]), WAIT_S, "it says that it recovers")
        assert ask(node, "/live")[0] == 200
        assert families(node).keys() == {each.name for each in STARTING}
        node.launched.kill()
