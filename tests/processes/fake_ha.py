"""Both ends of an HA link as a test plays them, over real sockets: what no honest master or slave would say."""

import json
from collections.abc import Callable
from typing import Any

from towline.errors import LinkRefused
from towline.format.wire.frames import HA_ACK, HA_DATA, Buffer, Kind, expect, expect_set, kind_of
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.handshake import LEFT, encode_refusal, read_refusal
from towline.link.poller import Poller
from towline.link.server import Request, Server

from .nodes import SEGMENT, TestNode
from .waiting import await_

WINDOW = 1 << 25


class FakeSlave:
    """Greets a running master."""

    def __init__(self, master: TestNode, **facts: Any) -> None:
        identity = json.loads(master.store.identity.read_text())
        honest = {
            "role": "slave",
            "cluster": identity["cluster"],
            "store": identity["store_id"],
            "name": "fake",
            "node": 5,
            "instance": 1,
            "epochs": [],
            "end": 0,
            "empty": True,
            "segment_size": SEGMENT,
            "promised": 0,
        }
        self._context = new_context()
        self.link = Link(self._context, f"ipc://{master.runtime}/ha.sock", honest | facts)
        self._poller = Poller(self.link)

    def greet(self) -> dict[str, Any]:
        """The welcome. Raises LinkRefused."""
        return self.link.greet(10_000)

    def acknowledge(self, epoch: int, appended: int, flushed: int, limit: int = WINDOW) -> None:
        assert self.link.send([HA_ACK.pack(Kind.HA_ACK, epoch, appended, flushed, limit)])

    def slice(self) -> tuple[int, int, bytes]:
        """(epoch, offset, bytes) of the next frame with data."""
        return await_(self._data, 60.0, "a slice comes")

    def await_cut(self) -> str:
        """What it is told when its link ends."""
        said = ""

        def cut() -> bool:
            nonlocal said
            self._poller.poll(1)
            try:
                while self.link.receive() is not None:
                    pass
            except LinkRefused as refused:
                said = refused.sentence
            return self.link.lost

        await_(cut, 60.0, "the link is cut")
        return said

    def leave(self, why: str) -> None:
        assert self.link.send(encode_refusal(LinkRefused(LEFT, why)))

    def close(self) -> None:
        self.link.close()
        close_context(self._context)

    def _data(self) -> tuple[int, int, bytes] | None:
        self._poller.poll(1)
        while (parts := self.link.receive()) is not None:
            if kind_of(parts[0]) == Kind.HA_DATA and len(parts) == 2:
                _, _, epoch, offset, _ = expect(HA_DATA, parts[0])
                return epoch, offset, bytes(parts[1])
        return None


class FakeMaster:
    """Welcomes a running slave with `facts`; `greetings` are what it said of itself, one for each link."""

    def __init__(self, port: int, store: str) -> None:
        own = {"role": "ha", "cluster": "DefaultCluster", "store": store, "name": "fake"}
        self._context = new_context()
        self.server = Server(self._context, [f"tcp://127.0.0.1:{port}"], own=own, greet=self._greet)
        self._poller = Poller(self.server)
        self.facts: dict[str, Any] = {}
        self.greetings: list[dict[str, Any]] = []
        self.told: list[str] = []  # why the slave ended a link

    def await_greeting(self) -> dict[str, Any]:
        """The next greeting of the slave's receiver, answered with `facts`."""
        count = len(self.greetings)

        def greeted() -> bool:
            self._turn()
            return len(self.greetings) > count

        await_(greeted, 60.0, "the slave greets")
        return self.greetings[-1]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Greetings are answered meanwhile."""
        await_(lambda: self._turn() is None and condition(), 20.0, what)

    def await_ack(self) -> tuple[Request, int, int]:
        """(request, epoch, appended) of its next acknowledgement."""

        def acked() -> tuple[Request, int, int] | None:
            request = self._turn()
            if request is None or kind_of(request.parts[0]) != Kind.HA_ACK:
                return None
            _, epoch, appended, _, _ = expect(HA_ACK, request.parts[0])
            return request, epoch, appended

        return await_(acked, 60.0, "the slave acknowledges")

    def await_recorded(self, count: int) -> list[int]:
        """Versions of the next in-sync sets that the slave says it has recorded."""
        versions: list[int] = []

        def told() -> bool:
            request = self._turn()
            if request is not None and kind_of(request.parts[0]) == Kind.HA_SET_ACK:
                versions.append(expect_set(request.parts[0])[2])
            return len(versions) == count

        await_(told, 60.0, "the slave says what it has recorded")
        return versions

    def send(self, peer: bytes, parts: list[Buffer]) -> None:
        self.server.send(peer, parts)

    def data(self, peer: bytes, epoch: int, offset: int, data: bytes, confirmed: int = 0) -> None:
        self.send(peer, [HA_DATA.pack(Kind.HA_DATA, len(data), epoch, offset, confirmed), data])

    def close(self) -> None:
        self.server.close()
        close_context(self._context)

    def _turn(self) -> Request | None:
        self._poller.poll(1)
        request = self.server.receive()
        if request is not None and kind_of(request.parts[0]) == Kind.REFUSAL:
            self.told.append(read_refusal(request.parts).sentence)
        return request

    def _greet(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts["role"] == "slave":
            self.greetings.append(facts)
        return self.facts
