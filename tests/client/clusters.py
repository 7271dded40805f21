"""A cluster of nodes in threads, each the only one of its group, and the file that names them."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tests.client.group.standin import GroupNode
from towline.link.free_port import free_port

NAMES = ("a", "b")
WAIT_S = 20.0

Read = TypeVar("Read", covariant=True)


class Polled(Protocol[Read]):
    def poll(self, timeout_ms: int) -> Sequence[Read]: ...


def read(consumer: Polled[Read], count: int) -> list[Read]:
    """At least so many messages of a Consumer or a GroupConsumer."""
    deadline = time.monotonic() + WAIT_S
    found: list[Read] = []
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += consumer.poll(200)
    return found


class Cluster:
    def __init__(self, root: Path, topics: dict[str, int], names: tuple[str, ...] = NAMES) -> None:
        self.path = root / "cluster.toml"
        self.endpoint = f"cluster:{self.path}"
        self.nodes: dict[str, GroupNode] = {}
        rows = ['name = "c1"']
        ports = free_ports(2 * len(names))
        for number, name in enumerate(names):
            directory = root / name
            directory.mkdir()
            port, ha = ports[2 * number : 2 * number + 2]
            self.nodes[name] = GroupNode(directory, dict(topics), port=port)
            rows += ["[[group]]", f'name = "{name}"', "[[group.node]]", "id = 0", f'store = "{name}/store"']
            rows += [f"listen_port = {port}", f"ha_listen_port = {ha}"]
        self.path.write_text("\n".join(rows))

    def __getitem__(self, name: str) -> GroupNode:
        return self.nodes[name]

    def running(self) -> "Iterator[Cluster]":
        for node in self.nodes.values():
            node.start()
        yield self
        for node in self.nodes.values():
            node.stop()


def free_ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
