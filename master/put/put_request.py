"""A put request as it waits in the request queue, whether it came through the socket or a ring."""

from dataclasses import dataclass

from towline.format.wire.frames import Buffer, Group
from towline.link.put_ring import NodeRing

Peer = bytes | NodeRing  # of the socket, or the ring that it came through


@dataclass(slots=True)
class PutRequest:
    """A put that was received at `received_ms` (monotonic). `deadline` is ms since 1970, `memory` bytes.

    `trusted`: a process of this node sent it. `row`: its row in the socket table, -1 for a request of a ring.
    `written_ms`: when its client wrote it into a ring, for statistics.
    """

    peer: Peer
    request_id: int
    deadline: int
    groups: list[Group]
    records: Buffer
    received_ms: int
    memory: int
    trusted: bool
    row: int = -1
    written_ms: int | None = None

    @property
    def latency_from_ms(self) -> int:
        """The time from which its latency is measured."""
        return self.received_ms if self.written_ms is None else self.written_ms
