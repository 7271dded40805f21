"""Whom a new master tells of its epoch while the nodes of its group come and go."""

import logging
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from towline.node.peers import epoch_broadcast
from towline.node.peers.epoch_broadcast import EVERY_MS, EpochBroadcast
from towline.runtime.settings import read_settings

EPOCH = 7


class Answering:
    """A peer's request that is answered at once."""

    asked: ClassVar[list[str]] = []

    def __init__(self, link: Any, question: dict[str, Any]) -> None:
        assert question["epoch"] == EPOCH
        self.link, self.is_over, self.answer = link, True, {"granted": True}
        self.asked.append(link.endpoint)

    def advance(self) -> None:
        """Over already."""


class Master:
    """Node 0 of a group; `now` is its clock, in ms."""

    def __init__(self) -> None:
        self.now = 0
        positions = SimpleNamespace(get=lambda _: EPOCH)
        clock = SimpleNamespace(monotonic_ms=lambda: self.now)
        self.node: Any = SimpleNamespace(positions=positions, clock=clock, log=logging.getLogger("master"))
        self.set_peers("0=h:1,1=h:2")
        nothing: Any = None
        self.broadcast = EpochBroadcast(self.node, nothing, nothing)

    def set_peers(self, peers: str) -> None:
        self.node.settings = read_settings(None, {"broker_id": "0", "ha_peers": peers}, {})

    def tells(self) -> set[str]:
        """Endpoints of those who are asked in the next rounds, until nobody is left."""
        Answering.asked.clear()
        for _ in range(10):
            self.now += EVERY_MS
            self.broadcast.poll(self.now, ())
            self.broadcast.poll(self.now, ())
        return set(Answering.asked)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    def link(_: Any, where: str, *__: Any, **___: Any) -> Any:
        return SimpleNamespace(endpoint=where, close=lambda: None)

    monkeypatch.setattr(epoch_broadcast, "Link", link)
    monkeypatch.setattr(epoch_broadcast, "PeerRequest", Answering)
    monkeypatch.setattr(epoch_broadcast, "own_facts", lambda *_: {})
    monkeypatch.setattr(epoch_broadcast, "key_of", lambda _: None)
    return Master()


def test_a_node_that_has_come_is_told_and_who_knows_is_not_told_again(master: Master) -> None:
    assert master.tells() == {"h:2"}
    assert master.tells() == set()
    master.set_peers("0=h:1,1=h:2,2=h:3")
    master.broadcast.adjust()
    assert master.tells() == {"h:3"}


def test_a_node_that_has_another_address_is_told_there(master: Master) -> None:
    assert master.tells() == {"h:2"}
    master.set_peers("0=h:1,1=h:9")
    master.broadcast.adjust()
    assert master.tells() == {"h:9"}


def test_a_node_that_has_gone_is_told_no_more(master: Master) -> None:
    master.set_peers("0=h:1")
    master.broadcast.adjust()
    assert master.tells() == set()


def test_a_node_may_go_while_it_is_asked(master: Master) -> None:
    master.now += EVERY_MS
    master.broadcast.poll(master.now, ())
    master.set_peers("0=h:1,2=h:3")
    master.broadcast.adjust()
    assert "h:3" in master.tells()
