"""The two kinds of link of a client: over a node's remoting port, or over ZeroMQ."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import zmq

from towline.format.wire.frames import Buffer
from towline.link.context import Context, Socket
from towline.link.dealer import Link
from towline.link.endpoints import parse
from towline.link.keys import Key
from towline.link.tcp_link import TcpLink


class ClientLink(Protocol):
    """A connection to one node, as `towline.link.dealer.Link` describes it."""

    endpoint: str
    greeted_at: float
    own_port: int

    @property
    def takes_turns(self) -> bool:
        """Whether any thread may use it in its turn, while another polls it."""
        ...

    @property
    def sockets(self) -> tuple[Socket | int, ...]: ...

    @property
    def lost(self) -> bool: ...

    @property
    def refused(self) -> bool: ...

    @property
    def trouble(self) -> str: ...

    def try_greet(self) -> dict[str, Any] | None: ...

    def send(self, parts: Sequence[Buffer], copy: bool = True) -> bool: ...

    def receive(self) -> list[Buffer] | None: ...

    def tend(self) -> None: ...

    def watch(self, poller: zmq.Poller) -> None: ...

    def close(self, linger_ms: int = 0) -> None: ...


def new_link(context: Context, endpoint: str, facts: Mapping[str, Any], key: Key | None, *, zeromq: bool) -> ClientLink:
    """Begins to connect: to a remoting port, unless the port is known to be `zeromq`'s. Raises InvalidEndpoint."""
    if zeromq or parse(endpoint).scheme != "tcp":
        return Link(context, endpoint, facts, key=key)
    return TcpLink(endpoint, facts, key=key)
