"""A put that waits for its turn, wherever it came from."""

from dataclasses import dataclass

from towline.format.frames import Buffer, Group
from towline.link.put_ring import NodeRing

Peer = bytes | NodeRing  # of the socket, or the ring that it came through


@dataclass(slots=True)
class Arrived:
    """A put that waits for its turn since `arrived_ms` (monotonic). `deadline` is ms since 1970, `memory` bytes.

    `trusted`: a piece of this node sent it. `row` holds it, of those that came off the socket.
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
