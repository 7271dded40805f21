"""A TCP proxy between nodes, where no network namespace can be made: one thread, one listener for each direction.

A way that is held keeps its connections open and forwards nothing, in one direction or in both, as a network does that
drops packets; what was held goes on when it is opened again, as TCP's own repetition would have it. New connections are
accepted and held too: a peer that cannot be reached looks like a silent one.
"""

import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

CHUNK: Final = 256 << 10
HELD_MAX: Final = 4 << 20  # bytes of one direction that wait; then its reader is not read from
TURN_S: Final = 0.05


@dataclass
class Way:
    """From one node to one port of another. `forth` and `back`: whether bytes pass; `delay_s` of each direction."""

    listen: tuple[str, int]
    target: tuple[str, int]
    forth: bool = True
    back: bool = True
    delay_s: float = 0.0


@dataclass(eq=False)
class Half:
    """One direction of one connection: bytes with the time from which they may go on."""

    source: socket.socket
    target: socket.socket
    way: Way
    forth: bool
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    size: int = 0
    ended: bool = False  # its source says no more
    closed: bool = False

    @property
    def passes(self) -> bool:
        return self.way.forth if self.forth else self.way.back


class Proxy(threading.Thread):
    def __init__(self, ways: list[Way]) -> None:
        super().__init__(name="drill proxy", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._halves: list[Half] = []
        self._stopping = False
        for way in ways:
            listener = socket.create_server(way.listen)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, way)

    def stop(self) -> None:
        self._stopping = True
        self.join(5.0)

    def run(self) -> None:
        try:
            while not self._stopping:
                for key, _ in self._selector.select(self._pause()):
                    if isinstance(key.data, Way):
                        self._accept(key.data, key.fileobj)  # type: ignore[arg-type]
                    else:
                        self._read(key.data)
                for half in list(self._halves):
                    self._forward(half)
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            for half in self._halves:
                half.source.close()
            self._selector.close()

    def _pause(self) -> float:
        """Until delayed bytes are due; a direction that cannot pass is checked every turn."""
        soon = [half.waiting[0][0] for half in self._halves if half.waiting and half.passes]
        return min([TURN_S, *(max(0.001, due - time.monotonic()) for due in soon)])

    def _accept(self, way: Way, listener: socket.socket) -> None:
        near, _ = listener.accept()
        far = socket.socket()
        try:
            far.connect(way.target)  # on this machine: it is refused or made at once
        except OSError:
            near.close()
            far.close()
            return
        for side in (near, far):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        halves = [Half(near, far, way, forth=True), Half(far, near, way, forth=False)]
        self._halves += halves
        for half in halves:
            self._selector.register(half.source, selectors.EVENT_READ, half)

    def _read(self, half: Half) -> None:
        if half.closed:
            return
        if half.size > HELD_MAX or half.ended:
            self._mute(half)
            return
        try:
            data = half.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            half.ended = True
            self._mute(half)
        half.waiting.append((time.monotonic() + half.way.delay_s, data))
        half.size += len(data)

    def _forward(self, half: Half) -> None:
        if half.closed or not half.passes:
            return
        while half.waiting and half.waiting[0][0] <= time.monotonic():
            due, data = half.waiting.popleft()
            if not data:
                self._close(half)
                return
            try:
                sent = half.target.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._close(half)
                return
            half.size -= sent
            if sent < len(data):
                half.waiting.appendleft((due, data[sent:]))
                break
        if half.size <= HELD_MAX and not half.ended and half.source not in self._registered():
            self._selector.register(half.source, selectors.EVENT_READ, half)

    def _registered(self) -> set[object]:
        return {key.fileobj for key in self._selector.get_map().values()}

    def _mute(self, half: Half) -> None:
        if half.source in self._registered():
            self._selector.unregister(half.source)

    def _close(self, half: Half) -> None:
        """Both directions: nobody of ours goes on with half a connection."""
        pair = [one for one in self._halves if one.source in (half.source, half.target)]
        for one in pair:
            one.closed = True
            self._mute(one)
            self._halves.remove(one)
        for one in pair:
            one.source.close()
