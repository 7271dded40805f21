"""A put that waits for its turn, wherever it came from."""

from dataclasses import dataclass

from towline.format.wire.frames import Buffer, Group
from towline.link.put_ring import NodeRing

Peer = bytes | NodeRing  # of the socket, or the ring that it came through


@dataclass(slots=True)
class Arrived:
    """A put that waits for its turn since `arrived_ms` (monotonic). `deadline` is ms since 1970, `memory` bytes.

    `trusted`: a piece of this node sent it. `row` holds it, of those that came off the socket. `written_ms`: when its
    client wrote it into a ring, for statistics.
    """

    peer: Peer
    request_id: int
    deadline: int
    groups: list[Group]
    records: Buffer
    arrived_ms: int
    memory: int
    trusted: bool
    row: int = -1
    written_ms: int | None = None

    @property
    def came_ms(self) -> int:
        """From when on it counts, as far as that is known."""
        return self.arrived_ms if self.written_ms is None else self.written_ms
