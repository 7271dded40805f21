"""The log of a running node: as JSON, and bounded, whoever writes to it."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.node.process.settings_changes import change_settings

COUNT = 2


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "store", log_format="json", log_file_size_max=20_000, log_file_count=COUNT)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def logs(node: TestNode) -> list[Path]:
    return sorted(node.store.run.glob("node.log*"))


def change(node: TestNode, **settings: object) -> None:
    assert change_settings(node.store.root, settings, keep=False)["waiting"] == []


def lines(node: TestNode) -> dict[str, str]:
    """The last line that says so, of changes of settings."""
    text = node.store.node_log.read_text()
    return {found[0]: line for line in text.splitlines() if (found := re.search(r"settings are changed, [^\"]*", line))}


def standard_error(pid: int) -> str:
    return str(Path(f"/proc/{pid}/fd/2").readlink())


def test_it_is_moved_aside_while_all_write_to_it_and_who_is_forked_then_finds_it(node: TestNode) -> None:
    change(node, log_file_size_max=300)

    def has_gone_round() -> bool:
        change(node, put_waiting_max=10)  # an event
        return len(logs(node)) == COUNT + 1

    await_(has_gone_round, 30.0, "logs were moved aside as often as they are kept")
    change(node, log_file_size_max=0)
    first = {each: each.stat().st_size for each in logs(node)}
    before = node.pids()
    os.kill(before["reput"], signal.SIGKILL)
    node.await_restarted("reput", before)
    assert {
        standard_error(pid) for label, pid in node.pids().items() if label in ("supervisor", "zygote", "reput")
    } == {str(node.store.node_log)}
    change(node, log_level="DEBUG")
    assert [path for path, size in first.items() if path.stat().st_size < size] == [], "it only grows"
    events = [json.loads(line) for path in logs(node) for line in path.read_text().splitlines()]
    said = {(event["process"], event["message"]) for event in events}
    assert ("supervise", "the log goes on here; what came before stands in node.log.1") in said
    assert ("supervise", "settings are changed, until the node ends: log_level = DEBUG") in said


def test_people_can_have_it_as_text_from_now_on(node: TestNode) -> None:
    said = "settings are changed, until the node ends: log_format = "
    change(node, log_format="text")
    assert f"INFO {said}text" in lines(node)[f"{said}text"]
    change(node, log_format="json")
    assert json.loads(lines(node)[f"{said}json"])["process"] == "supervise"
