"""A node with a port for RocketMQ's clients, started once for each file of tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ending, free_port
from towline.format.remoting.codes import ResponseCode
from towline.runtime.remoting_counts import Ending, RemotingCounts

from .raw import RawClient


class RemotingNode(TestNode):
    """A master that listens to RocketMQ's clients on `port`, and as a name server on `names` too."""

    port: int
    names: int

    @property
    def address(self) -> str:
        """By which our own clients come."""
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def counts(self) -> RemotingCounts:
        return RemotingCounts(self.positions)

    def ended(self, ending: Ending) -> int:
        """Connections that were ended for this cause since the node's start."""
        return self.counts.endings()[ending][0]

    def refused(self, code: ResponseCode | None) -> int:
        """Requests that were refused by this code since the node's start."""
        return self.counts.refusals()[code][0]


Kind = TypeVar("Kind", bound=RemotingNode)


def remoting_node(store: Path, **settings: object) -> RemotingNode:
    return remoting_node_of(RemotingNode, store, **settings)


def remoting_node_of(kind: type[Kind], store: Path, **settings: object) -> Kind:
    port, names = free_port(), free_port()
    made = kind(
        "master",
        store,
        flush_disk_type="ASYNC_FLUSH",
        listen_port=port,
        name_server_port=names,
        transaction_time_out=500,
        transaction_check_interval=500,
        timer_max_delay_sec=60,
        enable_property_filter=True,
        **settings,
    )
    made.port, made.names = port, names
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotingNode]:
    made = remoting_node(tmp_path_factory.mktemp("remoting") / "store")
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture
def client(node: RemotingNode) -> Iterator[RawClient]:
    with RawClient(node.port) as made:
        yield made
