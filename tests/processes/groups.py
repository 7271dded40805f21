"""Nodes of one name that know each other: any of them may be the master."""

from pathlib import Path
from typing import Any

from towline.node.peers.promotion import promote
from towline.runtime.positions import Position

from .nodes import CATCH_UP_S, TestNode, free_port
from .waiting import await_, read_saved


class Group:
    """Node 0 is started as master. PUT_OK means: on the disk of two, unless other settings are given."""

    def __init__(self, root: Path, count: int, **settings: object) -> None:
        ports = [free_port() for _ in range(count)]
        peers = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(ports))
        role = {"broker_role": settings.pop("broker_role", "SYNC_MASTER")}
        given = {"ha_peers": peers, "in_sync_replicas": 2, "min_in_sync_replicas": 2} | settings
        self.nodes = [
            TestNode(
                "master" if number == 0 else "slave",
                root / f"node{number}",
                broker_id=number,
                ha_listen_port=port,
                **(given | (role if number == 0 else {})),
            )
            for number, port in enumerate(ports)
        ]

    def start(self) -> None:
        for node in reversed(self.nodes):
            node.start()
        await_(lambda: self.linked(self.nodes[0]) == len(self.nodes) - 1, CATCH_UP_S, "every slave is linked")

    @staticmethod
    def linked(node: TestNode) -> int:
        """How many slaves it has."""
        return sum(slave.connected for slave in node.positions.slaves())

    def promote(self, number: int, **how: Any) -> dict[str, Any]:
        """What `towline promote` says."""
        done = promote(self.nodes[number].store.root, **how)
        self.nodes[number].forget()
        return done

    def role(self, number: int) -> str:
        return str(self.nodes[number].facts["role"])

    def await_role(self, number: int, role: str) -> None:
        node = self.nodes[number]

        def has() -> bool:
            return node.store.node.exists() and node.facts["role"] == role

        await_(has, CATCH_UP_S, f"node {number} is a {role}")
        node.forget()

    def await_in_sync(self, number: int, count: int) -> None:
        """Until this node, the master, has recorded an in-sync set of so many."""
        node = self.nodes[number]

        def known() -> bool:
            node.forget()
            return node.at(Position.IN_SYNC).bit_count() == count

        await_(known, CATCH_UP_S, f"node {number} has {count} in sync")

    def await_topic(self, name: str) -> None:
        """Until every node that runs has the topic in its file: a slave hears of it a moment after the first put."""

        def known() -> bool:
            paths = [node.store.config / "topics.json" for node in self.nodes if node.launched is not None]
            return all(f'"{name}"'.encode() in read_saved(path) for path in paths)

        await_(known, 60.0, f"every node has the topic {name}")

    def await_level(self, *numbers: int) -> int:
        """Until these nodes hold, sync and dispatch the same; the end of their logs."""
        nodes = [self.nodes[number] for number in numbers]
        parts = (Position.APPENDED, Position.FLUSHED, Position.DISPATCHED)

        def level() -> bool:
            found = {node.now(part) for node in nodes for part in parts}
            return len(found) == 1 and None not in found

        await_(level, CATCH_UP_S, f"nodes {numbers} are level")
        return nodes[0].at(Position.APPENDED)
