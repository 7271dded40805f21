"""Waits for several links and doorbells at once.

ZeroMQ sockets are polled through ZeroMQ, never by their raw descriptor, which shows edges only (H12).
"""

import select
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import zmq

from .context import Socket, new_poller
from .memory_limit import FreedMemory


@dataclass(frozen=True, slots=True)
class Writing:
    """A descriptor that wakes who waits for it also when more can be written to it."""

    descriptor: int


Source: TypeAlias = Socket | int | Writing


class Pollable(Protocol):
    """A Server or a Link: sockets that become readable when it has something to `receive`."""

    @property
    def sockets(self) -> tuple[Source, ...]: ...

    def tend(self) -> None:
        """Does what is due by the clock; `sockets` may be others afterwards."""
        ...


class Rest(Protocol):
    """Sleeps until one of these sockets and descriptors is readable, or as long as it likes."""

    def __call__(self, sources: Iterable[Socket | int], /) -> int:
        """Milliseconds that it slept for nothing."""
        ...


_READ: Final = int(zmq.POLLIN)
_BOTH: Final = int(zmq.POLLIN | zmq.POLLOUT)
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
        self._tended: dict[Pollable, tuple[Source, ...]] = {}
        self._epoll: Any = None  # of `descriptors`
        self._by_descriptor: dict[int, Socket | int] = {}
        for source in sources:
            self.add(source)

    def add(self, source: Pollable | int) -> None:
        if isinstance(source, int):
            self._register((source,))
        else:
            self._tended[source] = sockets = source.sockets
            self._register(sockets)

    def remove(self, source: Pollable | int) -> None:
        """Removes a source, before it is closed."""
        self._unregister((source,) if isinstance(source, int) else self._tended.pop(source))

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
            for item, events in self._poller.sockets:
                self._show(item, events)
        return int(self._epoll.fileno())

    def shown(self, descriptors: Iterable[int]) -> None:
        """Has these of `descriptors` be `ready`, as if `poll` had found them."""
        self._silent = self._looked = False
        self._ready = {self._by_descriptor[each] for each in descriptors if each in self._by_descriptor}

    def _idle(self) -> None:
        busy = self._found >= BUSY
        if self.busy and not busy:
            FreedMemory.release()
        self.busy, self._waited_ms, self._found = busy, 0, 0

    def _replace(self, source: Pollable, sockets: tuple[Source, ...]) -> None:
        self._unregister(sockets)
        self._tended[source] = sockets = source.sockets
        self._register(sockets)

    def _register(self, sockets: tuple[Source, ...]) -> None:
        for item in sockets:
            events = _BOTH if isinstance(item, Writing) else _READ
            self._poller.register(_polled(item), events)
            if self._epoll is not None:
                self._show(_polled(item), events)

    def _unregister(self, sockets: tuple[Source, ...]) -> None:
        for item in map(_polled, sockets):
            self._poller.unregister(item)
            self._ready.discard(item)
            for descriptor in [each for each, shown in self._by_descriptor.items() if shown == item]:
                del self._by_descriptor[descriptor]
                self._epoll.unregister(descriptor)

    def _show(self, item: Socket | int, events: int) -> None:
        descriptor = item if isinstance(item, int) else int(item.get(zmq.FD))
        self._by_descriptor[descriptor] = item
        self._epoll.register(descriptor, select.EPOLLIN | (select.EPOLLOUT if events & int(zmq.POLLOUT) else 0))

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
        return source in ready if isinstance(source, int) else not ready.isdisjoint(map(_polled, source.sockets))


def _polled(source: Source) -> Socket | int:
    return source.descriptor if isinstance(source, Writing) else source
