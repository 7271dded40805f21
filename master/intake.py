"""Requests as they come off the socket: questions are answered at once, puts are stamped and wait for their turn."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedFrame
from towline.format.frames import Buffer, Group, Kind, decode_put, encode_put_refusal, kind_of
from towline.format.refusals import Cause
from towline.limits import MIB, PARTS_MAX, REQUEST_GROUPS_MAX
from towline.link.server import Request, Sent, Server
from towline.node.context import Node
from towline.runtime.positions import Counter

from .admission import Refusal

# Beyond these, requests wait in ZeroMQ and are stamped late. What waits longer than wait_time_mills_in_send_queue is
# refused anyway: at 200 ms these are 160 MiB and 20,000 requests a second, less than put takes.
WAITING_MAX: Final = 4096
WAITING_BYTES_MAX: Final = 32 * MIB
GROUP_MEMORY: Final = 256  # bytes that a decoded group takes beside its topic: a request may be all groups, no records
TAKEN_PER_TURN: Final = 256  # so that answers are not kept back by what comes in


@dataclass(slots=True)
class Arrived:
    """A put that waits for its turn since `arrived_ms` (monotonic). `deadline` is ms since 1970, `memory` bytes."""

    peer: bytes
    request_id: int
    deadline: int
    groups: list[Group]
    records: Buffer
    arrived_ms: int
    memory: int


class Intake:
    """The socket's requests in the order of their arrival. Used by whoever holds the front's lock."""

    def __init__(self, node: Node, server: Server, ask: Callable[[Request], None]) -> None:
        self._node = node
        self._server = server
        self._ask = ask
        self._line = node.line
        self._refused = node.positions.refused
        self._waiting: deque[Arrived] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= WAITING_MAX or self._bytes >= WAITING_BYTES_MAX

    def take(self) -> int:
        """Takes what the socket has, within bounds; how many requests that were."""
        done = 0
        now_ms = time.monotonic_ns() // 1_000_000
        while done < TAKEN_PER_TURN and not self.full:
            request = self._server.receive()
            if request is None:
                break
            done += 1
            self._sort(request, now_ms)
        return done

    def next(self) -> Arrived:
        """The oldest request that waits."""
        arrived = self._waiting.popleft()
        self._bytes -= arrived.memory
        return arrived

    def refuse(self, arrived: Arrived, refusal: Refusal) -> None:
        self._count(refusal.cause)
        answer = encode_put_refusal(
            arrived.request_id,
            refusal.status,
            refusal.rule,
            refusal.record,
            refusal.retry_after_ms,
            refusal.sentence,
        )
        if self._server.send(arrived.peer, [answer]) is Sent.PAUSED:
            self._server.forget(arrived.peer)  # it does not read its answers: it has to greet again (H20)

    def _sort(self, request: Request, now_ms: int) -> None:
        try:
            kind = kind_of(request.parts[0])
            if kind == Kind.PUT and len(request.parts) == 2:
                head, records = request.parts
                request_id, _epoch, deadline, groups = decode_put(head, REQUEST_GROUPS_MAX)
                memory = len(head) + len(records) + GROUP_MEMORY * len(groups)
                self._waiting.append(Arrived(request.peer, request_id, deadline, groups, records, now_ms, memory))
                self._bytes += memory
            elif kind == Kind.ASK and len(request.parts) == 2:
                self._ask(request)
            else:
                raise MalformedFrame(
                    f"kind {kind} in {len(request.parts)} parts is no request to put ({PARTS_MAX} at most)"
                )
        except MalformedFrame as error:
            self._count(Cause.MALFORMED)
            self._node.log.warning("a peer is dropped: %s", error)
            self._server.drop(request)

    def _count(self, cause: Cause) -> None:
        self._line.count(Counter.REFUSED)
        self._refused.add(cause, time.monotonic_ns())
