"""When a slave that has lost its master looks again, and at whom."""

import logging
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.etcd_server import free_port
from towline.limits import SLEEP_MAX_MS
from towline.node.peers.master_link import RETRY_MS, MasterLink
from towline.places import Runtime
from towline.runtime.settings import read_settings


class Slave:
    """Of a group whose other nodes are down. `now` is the clock, in ms."""

    def __init__(self, root: Any) -> None:
        self.now = 1_000
        peers = ",".join(f"{number}=127.0.0.1:{free_port()}" for number in range(3))
        settings = read_settings(None, {"broker_role": "SLAVE", "broker_id": "2", "ha_peers": peers}, {})
        clock = SimpleNamespace(monotonic_ms=lambda: self.now)
        self.node: Any = SimpleNamespace(
            settings=settings, clock=clock, log=logging.getLogger("slave"), runtime=Runtime(root)
        )
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        bell: Any = SimpleNamespace(fileno=lambda: self.bell)
        self.link = MasterLink(self.node, bell)

    def change(self, peers: str) -> None:
        given = {"broker_role": "SLAVE", "broker_id": "2", "ha_peers": peers}
        self.node.settings = read_settings(None, given, {})
        self.link.adjust()

    def looks(self) -> str:
        """At the node whose turn it is."""
        address = self.link.address
        assert self.link.due(self.now)
        assert not self.link.connect({"role": "slave", "cluster": "", "store": "", "name": ""}, lambda _: None)
        return address

    def sleeps(self) -> int:
        return self.link.due_ms(self.now)


@pytest.fixture
def slave(tmp_path) -> Iterator[Slave]:
    made = Slave(tmp_path)
    yield made
    made.link.close()
    os.close(made.bell)


def test_the_next_node_is_looked_at_at_once_and_after_all_there_is_a_pause(slave):
    first = slave.looks()
    assert slave.sleeps() == 0
    assert slave.looks() != first
    assert not slave.link.due(slave.now)
    slave.now += RETRY_MS
    assert slave.sleeps() == 0
    assert slave.looks() == first


def test_a_pause_is_never_slept_through(slave):
    slave.looks()
    slave.looks()
    for later in range(0, RETRY_MS, 10):
        slave.now += 10
        assert slave.sleeps() == min(SLEEP_MAX_MS, RETRY_MS - later - 10)


def test_an_address_that_has_come_is_tried_too_and_one_that_has_gone_is_not(slave):
    tried = slave.looks()
    other = slave.link.address
    assert other != tried
    new = f"127.0.0.1:{free_port()}"
    slave.change(f"0={other},1={new},2=127.0.0.1:1")
    slave.now += RETRY_MS
    assert {slave.looks(), slave.looks()} == {other, new}


def test_a_group_that_this_node_is_alone_in_has_nobody_to_try(slave):
    slave.looks()
    slave.change("2=127.0.0.1:1")
    assert slave.link.address == ""
    assert not slave.link.due(slave.now + RETRY_MS)


def test_a_change_of_other_settings_leaves_whose_turn_it_is(slave):
    slave.looks()
    turn = slave.link.address
    slave.link.adjust()
    assert slave.link.address == turn
