"""How far the slaves of this node are, as RocketMQ's tools ask a master for it."""

import time

from towline.format.remoting.broker_bodies import SlaveFacts, ha_status
from towline.format.remoting.codes import ResponseCode
from towline.format.remoting.command import Command
from towline.limits import ROCKETMQ_SLAVES_MAX
from towline.node.process.context import Node
from towline.runtime.positions import Position

from .connections import Answer


class HaStatus:
    """Handles GET_BROKER_HA_STATUS."""

    def __init__(self, node: Node) -> None:
        self._node, self._positions = node, node.positions
        self._looked_at = time.monotonic()
        self._ends: dict[int, int] = {}  # of the slaves' logs, by place
        self._rates: dict[int, int] = {}  # bytes a second
        self._reported = self._rocketmq_rates = [0] * ROCKETMQ_SLAVES_MAX

    def look(self) -> None:
        """Notes what slaves got since the look before."""
        now = time.monotonic()
        ends = {place: line.appended for place, line in enumerate(self._positions.slaves()) if line.connected}
        span = max(now - self._looked_at, 1e-3)
        self._rates = {place: max(0, int((end - self._ends.get(place, end)) / span)) for place, end in ends.items()}
        self._ends, self._looked_at = ends, now
        reported = [line.reported if line.connected else 0 for line in self._positions.rocketmq_slaves()]
        pairs = zip(reported, self._reported, strict=True)
        self._rocketmq_rates = [int(max(0, end - before) / span) if before else 0 for end, before in pairs]
        self._reported = reported

    def tell(self, _: Command, answer: Answer) -> None:
        end, members = self._positions.get(Position.APPENDED), self._positions.get(Position.IN_SYNC)
        peers = self._node.settings.peers
        slaves = [
            SlaveFacts(
                peers.get(line.node, f"node {line.node}"),
                line.appended,
                max(0, end - line.appended),
                bool(members >> line.node & 1),
                self._rates.get(place, 0),
            )
            for place, line in enumerate(self._positions.slaves())
            if line.connected
        ]
        slaves += [
            SlaveFacts(line.address, line.reported, max(0, end - line.reported), in_sync=False, per_second=rate)
            for line, rate in zip(self._positions.rocketmq_slaves(), self._rocketmq_rates, strict=True)
            if line.connected
        ]
        answer(ResponseCode.SUCCESS, body=ha_status(end, slaves))
