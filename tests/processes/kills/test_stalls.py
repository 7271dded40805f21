"""`status` names a process that does no turn, with the call it is in, and says so with its exit status."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import POOLED, ZYGOTE, Pair, TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.cli.main import run
from towline.client.message import Message
from towline.client.producer import Producer

DEADLINE_S: Final = 90.0
MASTER: Final = ("supervisor", ZYGOTE, "put", "schedule", "send", "allocate", "flush", "reput", "serve")
SLAVE: Final = ("supervisor", ZYGOTE, "receive", "follow", "allocate", "flush", "reput", "serve")


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]):
    """(exit status, what stands still by duty, what is printed) of a node."""

    def look(node: TestNode) -> tuple[int, dict[str, dict[str, Any]], str]:
        command = [node.role, "status", "--store", str(node.store.root)]
        capsys.readouterr()
        exit_status = run([*command, "--json"])
        still = {each["duty"]: each for each in json.loads(capsys.readouterr().out)["standing_still"]}
        assert exit_status == bool(still)
        run(command)
        return exit_status, still, " ".join(capsys.readouterr().out.split())

    return look


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def check_stopped(status: Any, node: TestNode, label: str) -> None:
    await_(lambda: status(node)[0] == 0, DEADLINE_S, "nothing stands still")
    duty = "supervise" if label == "supervisor" else label
    pid = node.pids()[label]
    with stopped(pid):
        still = await_(lambda: status(node)[1].get(duty), DEADLINE_S, f"{label} is named")
        assert still["pid"] == pid
        assert f"(process {pid})" in still["sentence"]
        assert f"`kill -CONT {pid}`" in still["sentence"]
        assert label == ZYGOTE or still["still_ms"] >= 2_000
        assert f"(process {pid})" in status(node)[2]
    await_(lambda: status(node)[0] == 0, DEADLINE_S, f"{label} goes on")


@pytest.mark.parametrize("label", MASTER)
def test_a_stopped_process_of_a_master_is_named(pair: Pair, status: Any, label: str):
    check_stopped(status, pair.master, label)


@pytest.mark.parametrize("label", SLAVE)
def test_a_stopped_process_of_a_slave_is_named(pair: Pair, status: Any, label: str):
    check_stopped(status, pair.slave, label)


def test_every_process_of_a_node_is_looked_at(pair: Pair):
    assert set(MASTER) == pair.master.pids().keys()
    assert set(SLAVE) == pair.slave.pids().keys()


@pytest.mark.parametrize("settings", [{}, POOLED], ids=["log", "pool"])
def test_a_sync_that_does_not_return_is_named(
    settings: dict[str, object], status: Any, tmp_path, arming: Arming, monkeypatch: pytest.MonkeyPatch
):
    """With the pool a thread syncs, and the process beats beside it."""
    arming.announce(monkeypatch)
    node = TestNode("master", tmp_path, ha_listen_port=0, **settings)
    with ending(node):
        node.start()
        with Producer(node.endpoint) as producer:
            assert producer.send(Message("t", b"the first")).acknowledged
            await_(lambda: status(node)[0] == 0, DEADLINE_S, "nothing stands still")
            arming.arm("flush.before_sync=stall:1000000")
            future = producer.send_async(Message("t", b"is not synced"))
            arming.await_fired(DEADLINE_S)
            still = await_(lambda: status(node)[1].get("flush"), DEADLINE_S, "flush is named")
            assert (still["state"], still["pid"]) == ("SYNCING", node.pids()["flush"])
            assert "in a sync of the disk" in still["sentence"]
            assert settings or not future.done() or not future.result().acknowledged
            os.kill(still["pid"], signal.SIGKILL)  # its place is taken by one that syncs
            await_(lambda: status(node)[0] == 0, DEADLINE_S, "flush goes on")
            assert future.result(DEADLINE_S).acknowledged
        assert node.stop()
        check_nothing_is_left(node)


def test_a_process_that_is_gone_is_named(pair: Pair, status: Any):
    """Its supervisor is stopped, so nobody starts it again."""
    await_(lambda: status(pair.master)[0] == 0, DEADLINE_S, "nothing stands still")
    pids = pair.master.pids()
    with stopped(pids["supervisor"]), stopped(pids[ZYGOTE]):
        os.kill(pids["reput"], signal.SIGKILL)
        still = await_(lambda: status(pair.master)[1].get("reput"), DEADLINE_S, "reput is named")
        assert still["pid"] == pids["reput"]
    pair.master.await_restarted("reput", pids)
    await_(lambda: status(pair.master)[0] == 0, DEADLINE_S, "reput is back")
