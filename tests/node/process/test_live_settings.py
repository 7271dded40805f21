"""A process takes a change of settings between two cycles, and says so."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.clock import SystemClock
from towline.node.process.context import Node
from towline.node.process.live_settings import LiveSettings
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import read_settings


class Limited:
    """An agent that has made a number of its settings."""

    duty = Duty.PUT

    def __init__(self, node: Node) -> None:
        self._node = node
        self.adjusted: list[int] = []

    def adjust(self) -> None:
        self.adjusted.append(self._node.settings.put_waiting_max)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.run, runtime.root):
        directory.mkdir(parents=True)
    positions = Positions.create(runtime.positions, 7)
    before = logging.getLogger().level
    yield Node(
        store, runtime, read_settings(None, {}, {}), positions, Duty.PUT, 7, logging.getLogger("put"), SystemClock()
    )
    logging.getLogger().setLevel(before)


def change(node: Node, **settings: object) -> None:
    """As the supervisor does it."""
    node.store.settings.write_text(read_settings(None, settings, {}).to_json())
    position = node.positions.writer(Position.SETTINGS, Duty.SUPERVISE)
    position.advance(position.get() + 1)


def test_a_change_is_taken_once(node: Node) -> None:
    agent = Limited(node)
    live = LiveSettings(node, agent)
    live.look()
    assert (agent.adjusted, node.line.taken) == ([], 0)
    change(node, put_waiting_max=5, log_level="ERROR")
    assert node.line.taken == 0
    for _ in range(3):
        live.look()
    assert (agent.adjusted, node.line.taken) == ([5], 1)
    assert logging.getLogger().level == logging.ERROR


def test_a_process_that_starts_meanwhile_has_the_change(node: Node) -> None:
    node.taken = 3
    node.positions.writer(Position.SETTINGS, Duty.SUPERVISE).advance(3)
    agent = Limited(node)
    LiveSettings(node, agent).look()
    assert (agent.adjusted, node.line.taken) == ([], 3)


def test_one_that_has_made_nothing_of_its_settings_takes_it_too(node: Node) -> None:
    live = LiveSettings(node, object())
    change(node, put_waiting_max=5)
    live.look()
    assert (node.settings.put_waiting_max, node.line.taken) == (5, 1)


def test_what_cannot_be_read_is_said_once_and_not_called_taken(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    live = LiveSettings(node, Limited(node))
    change(node)
    node.store.settings.write_text("{}{")
    for _ in range(3):
        live.look()
    assert len([record for record in caplog.records if "is not taken" in record.message]) == 1
    assert node.line.taken == 0
    change(node, put_waiting_max=6)
    live.look()
    assert (node.settings.put_waiting_max, node.line.taken) == (6, 2)
