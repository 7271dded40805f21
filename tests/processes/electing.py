"""A group of nodes whose leadership is a lease in a real etcd."""

import json
from pathlib import Path
from typing import Final

from tests.etcd_server import EtcdServer
from towline.errors import PositionsUnusable
from towline.ha.leader.leadership import GroupView, Leadership
from towline.log.state.in_sync_file import ids_of
from towline.route.etcd import Access, Etcd
from towline.runtime.positions import Duty, Position, State

from .groups import Group
from .waiting import await_

LEASE_MS: Final = 3000
APPEARS_S: Final = 30.0


class ElectingGroup(Group):
    """PUT_OK: on the disk of all nodes in sync, two at least. `cluster` keeps groups in one etcd apart."""

    def __init__(
        self, root: Path, count: int, etcd: EtcdServer, access: Access | None = None, **settings: object
    ) -> None:
        self.cluster = f"{root.name}-{count}"
        given = {
            "etcd_endpoints": etcd.url,
            "lease_ms": LEASE_MS,
            "broker_cluster_name": self.cluster,
            "total_replicas": count,
        }
        super().__init__(root, count, **(given | settings))
        self._etcd = Etcd([etcd.url], 5.0, access or Access())

    @property
    def endpoint(self) -> str:
        """For a client: of every node."""
        return ",".join(node.endpoint for node in self.nodes)

    def start(self) -> None:
        """Slaves first, as `cluster up` does."""
        for node in reversed(self.nodes):
            node.start()
        assert self.await_master(*range(len(self.nodes))) == 0, "the node that was started as master is the first"
        self.await_in_sync(*range(len(self.nodes)))

    def recorded(self) -> GroupView:
        """What etcd has."""
        return Leadership(self._etcd, self.cluster, "towline").read()

    def master(self) -> int | None:
        """The node whose put process runs now; of two, one of which is paused or was replaced, the later one."""
        found = []
        for number, node in enumerate(self.nodes):
            node.forget()
            if node.launched is None:
                continue
            try:
                if json.loads(node.store.node.read_text())["role"] != "master":
                    continue
                if node.positions.duty(Duty.PUT).state is State.RUNNING:
                    found.append((node.at(Position.EPOCH), number))
            except (FileNotFoundError, PositionsUnusable):  # killed, or between two generations
                continue
        return max(found)[1] if found else None

    def await_master(self, *among: int) -> int:
        """The first of these nodes that is master."""

        def found() -> list[int]:
            return [number for number in [self.master()] if number in among]

        return await_(found, APPEARS_S, f"one of {among} is master")[0]

    def await_in_sync(self, *numbers: int) -> None:
        """Until master and etcd have this set recorded."""

        def agreed() -> bool:
            master, view = self.master(), self.recorded()
            if master is None or view.in_sync is None:
                return False
            ours = self.nodes[master].at(Position.IN_SYNC)
            return ids_of(view.in_sync.members) == ids_of(ours) == list(numbers)

        await_(agreed, APPEARS_S, f"in sync are {numbers}")
