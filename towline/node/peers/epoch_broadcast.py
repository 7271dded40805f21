"""A master's broadcast of its epoch to peers that are not its slaves, until each has promised to follow no older one.

So an old master that was cut off learns of the new one as soon as it can be reached, and is fenced (H16, H18).
"""

from collections.abc import Collection
from typing import Any, Final

from towline.errors import DiskFull, StoreNotWritable, SyncFailed
from towline.limits import MIB
from towline.link.context import Context
from towline.link.dealer import Link
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_of
from towline.runtime.positions import Position

from .handshake import own_facts
from .peer_client import ASK_MS, PeerRequest
from .peer_server import PEER, PeerServer, promise_question

EVERY_MS: Final = 1000


class EpochBroadcast:
    """`poll` never waits; one peer after the other has ASK_MS to answer."""

    def __init__(self, node: Node, context: Context, server: PeerServer) -> None:
        self._node, self._context, self._server = node, context, server
        self._epoch = node.positions.get(Position.EPOCH)
        self._facts = own_facts(node, PEER) | {"node": node.settings.broker_id}
        self._key = key_of(node)
        self._known: dict[int, str] = {}
        self._left: dict[int, str] = {}  # of those known, who has not promised yet
        self._due_ms = node.clock.monotonic_ms() + EVERY_MS  # most peers join as slaves by then
        self._waiting: list[int] = []
        self._asked: PeerRequest | None = None
        self._peer = node.settings.broker_id
        self._deadline_ms = 0
        self.adjust()

    def adjust(self) -> None:
        """Goes by the peers of `node.settings` as they are now: who has come is asked too, who has gone no more."""
        own = self._node.settings.broker_id
        known = {peer: where for peer, where in self._node.settings.peers.items() if peer != own}
        new = {peer: where for peer, where in known.items() if self._known.get(peer) != where}
        self._left = {peer: where for peer, where in self._left.items() if peer in known} | new
        self._known, self._waiting = known, []

    def poll(self, now_ms: int, slaves: Collection[int]) -> int:
        """`slaves`: the nodes that are linked, and so know the epoch. Returns how many answers came."""
        if self._asked is not None:
            return self._advance(self._asked, now_ms)
        if not self._waiting:
            if not self._left or now_ms < self._due_ms:
                return 0
            self._due_ms = now_ms + EVERY_MS
            self._waiting = [peer for peer in self._left if peer not in slaves]
            if not self._waiting:
                return 0
        self._peer = self._waiting.pop()
        question = promise_question(self._epoch, self._node.settings)
        link = Link(self._context, self._left[self._peer], self._facts, frame_size_max=MIB, key=self._key)
        self._asked, self._deadline_ms = PeerRequest(link, question), now_ms + ASK_MS
        return 0

    def close(self) -> None:
        if self._asked is not None:
            self._asked.link.close()

    def _advance(self, asked: PeerRequest, now_ms: int) -> int:
        asked.advance()
        if not asked.is_over and now_ms < self._deadline_ms:
            return 0
        asked.link.close()
        self._asked = None
        if asked.answer is None:
            return 0
        if asked.answer.get("granted") is True:
            self._left.pop(self._peer, None)
            self._node.log.info("node %d knows of epoch %d", self._peer, self._epoch)
        else:
            self._check_answer(asked.answer)
        return 1

    def _check_answer(self, facts: dict[str, Any]) -> None:
        """A peer that follows or has promised a higher epoch fences this master."""
        for epoch in (facts.get("epoch"), facts.get("promised")):
            if isinstance(epoch, int) and epoch > self._epoch:
                self._node.log.warning("node %d knows epoch %d, ours is %d", self._peer, epoch, self._epoch)
                try:
                    self._server.observe_epoch(epoch)
                except (DiskFull, StoreNotWritable, SyncFailed) as error:  # it is asked again
                    self._node.log.error("what it says cannot be kept: %s", error)
