"""A link as a client uses it, whatever it speaks outside: to a node over TCP or ZeroMQ, or to a broker of RocketMQ."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import zmq

from towline.format.wire.frames import Buffer

from .poller import Source, Writing

Poller: TypeAlias = zmq.Poller


class Link(Protocol):
    """Used by one thread. A greeting comes first; after it `send` and `receive` never wait."""

    endpoint: str
    greeted_at: float  # monotonic seconds

    @property
    def own_port(self) -> int:
        """Of our end of a TCP connection."""
        ...

    @property
    def takes_turns(self) -> bool:
        """Whether any thread may use it in its turn, while another polls it."""
        ...

    @property
    def sockets(self) -> tuple[Source, ...]: ...

    @property
    def lost(self) -> bool:
        """Whether the connection broke. It never becomes False again."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the other side has closed it, as far as is seen without reading. Any thread may ask."""
        ...

    @property
    def refused(self) -> bool:
        """Whether nobody listens there now."""
        ...

    @property
    def trouble(self) -> str:
        """The reason why there is no welcome yet, as far as is known."""
        ...

    def try_greet(self) -> dict[str, Any] | None:
        """The welcome; None while there is none. Raises NoAnswer, LinkRefused."""
        ...

    def send(self, parts: Sequence[Buffer], copy: bool = True) -> bool:
        """Sends a message; False, and nothing is sent, when there is no room for it or the connection is gone."""
        ...

    def receive(self) -> list[Buffer] | None:
        """The parts of the next message; None when there is none. Raises LinkRefused."""
        ...

    def tend(self) -> None:
        """Does what is due by the clock."""
        ...

    def close(self, linger_ms: int = 0) -> None: ...

    def watch(self, poller: Poller) -> None:
        """Registers what wakes a link that is being greeted."""
        ...


def watch_sources(poller: Poller, sources: Sequence[int | Writing]) -> None:
    """Registers descriptors that wake when there is something to do."""
    for each in sources:
        if isinstance(each, Writing):
            poller.register(each.descriptor, int(zmq.POLLIN | zmq.POLLOUT))
        else:
            poller.register(each, int(zmq.POLLIN))
