"""Waits for several links and doorbells at once.

ZeroMQ sockets are polled through ZeroMQ, never by their raw descriptor, which shows edges only (H12).
"""

import select
from collections.abc import Iterable
from typing import Any, Final, Protocol

import zmq

from .context import Socket, new_poller
from .memory_limit import FreedMemory


class Pollable(Protocol):
    """A Server or a Link: sockets that become readable when it has something to `receive`."""

    @property
    def sockets(self) -> tuple[Socket | int, ...]: ...

    def tend(self) -> None:
        """Does what is due by the clock; `sockets` may be others afterwards."""
        ...


class Rest(Protocol):
    """Sleeps until one of these sockets and descriptors is readable, or as long as it likes."""

    def __call__(self, sources: Iterable[Socket | int], /) -> int:
        """Milliseconds that it slept for nothing."""
        ...


_READ: Final = int(zmq.POLLIN)
REST_MS: Final = 5_000  # of waiting in vain; whoever found something less than BUSY times meanwhile is at rest
BUSY: Final = 100


class Poller:
    """Wakes when a source has something to read. Sources are links, or descriptors such as a doorbell's FIFO.

    The caller drains every source before it polls again: `receive` until None, a FIFO until EAGAIN.
    """

    def __init__(self, *sources: Pollable | int) -> None:
        self._poller = new_poller()
        self._ready: set[object] = set()
        self._silent = self._looked = False
        self._waited_ms = self._found = 0
        self.busy = False  # since what was freed was given back
        self._tended: dict[Pollable, tuple[Socket | int, ...]] = {}
        self._epoll: Any = None  # of `descriptors`
        self._by_descriptor: dict[int, Socket | int] = {}
        for source in sources:
            self.add(source)

    def add(self, source: Pollable | int) -> None:
        for item in _items(source):
            self._register(item)
        if not isinstance(source, int):
            self._tended[source] = source.sockets

    def remove(self, source: Pollable | int) -> None:
        """Removes a source, before it is closed."""
        items = (source,) if isinstance(source, int) else self._tended.pop(source)
        for item in items:
            self._unregister(item)

    def poll(self, timeout_ms: int, rest: Rest | None = None) -> bool:
        """True as soon as a source is readable, False after `timeout_ms`. 0 checks and does not wait.

        With `rest` it waits for as long as that does.
        """
        assert timeout_ms >= 0, "an endless wait would miss a lost wake-up"
        for source, sockets in self._tended.items():
            source.tend()
            if source.sockets != sockets:  # another poller, or `receive`, may have tended it
                self._replace(source, sockets)
        waited_ms = timeout_ms if rest is None else rest(item for item, _ in self._poller.sockets)
        found = self._poller.poll(timeout_ms if rest is None else 0)
        self._silent = not found
        self._looked = True
        self._ready.clear()
        if found:
            self._ready.update([item for item, _ in found])
            self._found += 1
        else:
            self._waited_ms += waited_ms
            if self._waited_ms >= REST_MS:
                self._idle()
        return bool(found)

    @property
    def descriptors(self) -> int:
        """The descriptor of an epoll on all sources by their own descriptors, for sleeps of a few ms without the
        interpreter.

        A link may have something and not show it (H12), so no `poll` is left out for long. Linux.
        """
        if self._epoll is None:
            self._epoll = select.epoll()
            for item, _ in self._poller.sockets:
                self._show(item)
        return int(self._epoll.fileno())

    def shown(self, descriptors: Iterable[int]) -> None:
        """Has these of `descriptors` be `ready`, as if `poll` had found them."""
        self._silent = self._looked = False
        self._ready = {self._by_descriptor[each] for each in descriptors if each in self._by_descriptor}

    def _register(self, item: Socket | int) -> None:
        self._poller.register(item, _READ)
        if self._epoll is not None:
            self._show(item)

    def _unregister(self, item: Socket | int) -> None:
        self._poller.unregister(item)
        self._ready.discard(item)
        for descriptor in [each for each, shown in self._by_descriptor.items() if shown is item or shown == item]:
            del self._by_descriptor[descriptor]
            self._epoll.unregister(descriptor)

    def _show(self, item: Socket | int) -> None:
        descriptor = item if isinstance(item, int) else int(item.get(zmq.FD))
        self._by_descriptor[descriptor] = item
        self._epoll.register(descriptor, select.EPOLLIN)

    def _idle(self) -> None:
        busy = self._found >= BUSY
        if self.busy and not busy:
            FreedMemory.release()
        self.busy, self._waited_ms, self._found = busy, 0, 0

    def _replace(self, source: Pollable, sockets: tuple[Socket | int, ...]) -> None:
        for socket in sockets:
            self._unregister(socket)
        for socket in source.sockets:
            self._register(socket)
        self._tended[source] = source.sockets

    def was_silent(self, source: Pollable | None = None) -> bool:
        """True once after a `poll` that found nothing, or nothing of `source`: to check a socket again costs more
        than all else of such a turn, and what has arrived since wakes the next poll."""
        silent = self._silent or (source is not None and self._looked and not self.ready(source))
        self._silent = self._looked = False
        return silent

    def ready(self, source: Pollable | int) -> bool:
        """Whether the last `poll` found this source readable."""
        ready = self._ready
        if not ready:
            return False
        return source in ready if isinstance(source, int) else not ready.isdisjoint(source.sockets)


def _items(source: Pollable | int) -> tuple[Socket | int, ...]:
    return (source,) if isinstance(source, int) else source.sockets
