"""Waiting for several links and doorbells at once.

ZeroMQ sockets are polled through ZeroMQ, never by their raw descriptor: that one only tells of edges (H12).
"""

from typing import Final, Protocol

import zmq

from .context import Socket


class Pollable(Protocol):
    """A Server or a Link: sockets that become readable when it has something to `receive`."""

    @property
    def sockets(self) -> tuple[Socket, ...]: ...


_READ: Final = int(zmq.POLLIN)


class Poller:
    """Wakes when a source has something to read. Sources are links, or descriptors such as a doorbell's FIFO.

    The caller drains every source before it polls again: `receive` until None, a FIFO until EAGAIN.
    """

    def __init__(self, *sources: Pollable | int) -> None:
        self._poller = zmq.Poller()
        self._ready: dict[object, int] = {}
        self._silent = False
        for source in sources:
            self.add(source)

    def add(self, source: Pollable | int) -> None:
        for item in _items(source):
            self._poller.register(item, _READ)

    def remove(self, source: Pollable | int) -> None:
        """Before the source is closed."""
        for item in _items(source):
            self._poller.unregister(item)
            self._ready.pop(item, None)

    def poll(self, timeout_ms: int) -> bool:
        """True as soon as a source is readable, False after `timeout_ms`. 0 looks and does not wait."""
        assert timeout_ms >= 0, "an endless wait would miss a lost wake-up"
        found = self._poller.poll(timeout_ms)
        self._silent = not found
        self._ready = dict(found)
        return bool(found)

    def was_silent(self) -> bool:
        """True once after a `poll` that found nothing: to look at a socket again costs more than all else of such a
        turn, and what has arrived since wakes the next poll."""
        silent, self._silent = self._silent, False
        return silent

    def ready(self, source: Pollable | int) -> bool:
        """Whether the last `poll` found this source readable."""
        return any(item in self._ready for item in _items(source))


def _items(source: Pollable | int) -> tuple[Socket | int, ...]:
    return (source,) if isinstance(source, int) else source.sockets
