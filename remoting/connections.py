"""TCP connections of remoting clients: whole frames out of what arrives, answers until the client takes them.

No connection is waited for. One that sends what is no frame, or takes no answers while more than OUT_MAX bytes wait for
it, is closed; one that says nothing for SILENT_S is too, as RocketMQ does.
"""

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from towline.errors import MalformedFrame
from towline.format.remoting.command import Command, decode, encode, frame_size
from towline.limits import KIB, MIB

READ_MAX: Final = 256 * KIB  # of one connection before it is another's turn
PARTS_MAX: Final = 64  # of one sendmsg
OUT_MAX: Final = 32 * MIB
SILENT_S: Final = 120.0
CONNECTIONS_MAX: Final = 16_384


class Connection:
    """One client. `peer` is host and port, as it is logged and told."""

    def __init__(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        self.peer = peer
        self.heard = time.monotonic()
        self.sock = sock
        self.client_ids: set[str] = set()
        self._in = bytearray()
        self._out: deque[memoryview] = deque()
        self._out_size = 0
        self.is_open = True

    @property
    def waits(self) -> bool:
        """Whether the client has not taken everything that was sent."""
        return bool(self._out)

    def receive(self) -> Iterator[Command]:
        """The commands that are whole. Raises MalformedFrame, ConnectionError where it has ended."""
        try:
            data = self.sock.recv(READ_MAX)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the client has closed")
        self.heard = time.monotonic()
        self._in += data
        at = 0
        view = bytes(self._in)
        try:
            while (size := frame_size(view, at)) and at + size <= len(view):
                yield decode(view[at : at + size])
                at += size
        finally:
            del self._in[:at]

    def send(self, command: Command) -> None:
        """Queues a command; `flush` sends it."""
        for part in encode(command):
            self._out.append(memoryview(part))
            self._out_size += len(part)

    def flush(self) -> None:
        """Sends what the client takes now. Raises ConnectionError, also where too much waits for it."""
        while self._out:
            try:
                sent = self.sock.sendmsg([self._out[number] for number in range(min(PARTS_MAX, len(self._out)))])
            except BlockingIOError:
                break
            self._out_size -= sent
            while sent:
                first = self._out[0]
                if sent < len(first):
                    self._out[0] = first[sent:]
                    break
                sent -= len(first)
                self._out.popleft()
        if self._out_size > OUT_MAX:
            raise ConnectionAbortedError(f"{self._out_size} bytes wait for a client that does not read")

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.sock.close()


class Connections:
    """All of them, and the sockets that are listened on. `handle` gets each command; what it raises closes that one."""

    def __init__(self, addresses: list[tuple[str, int]], handle: Callable[[Connection, Command], None]) -> None:
        """Listens. Raises OSError."""
        self._handle = handle
        self._selector = selectors.EpollSelector()
        self._listening: list[socket.socket] = []
        self._open: set[Connection] = set()
        self._changed: set[Connection] = set()
        self.dropped: deque[tuple[Connection, str]] = deque()
        for address in addresses:
            sock = socket.create_server(address, backlog=1024, reuse_port=False)
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, None)
            self._listening.append(sock)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def fileno(self) -> int:
        """Readable when `cycle` has something to do."""
        return self._selector.fileno()

    def cycle(self) -> int:
        """Takes what has arrived; returns how many sockets were ready."""
        events = self._selector.select(0)
        for key, mask in events:
            connection = key.data
            if connection is None:
                self._accept(key.fileobj)
                continue
            if mask & selectors.EVENT_READ:
                self._receive(connection)
            if mask & selectors.EVENT_WRITE and connection.is_open:
                self._changed.add(connection)
        return len(events)

    def answer(self, connection: Connection, command: Command) -> None:
        """Sends a command at the end of the turn; of a client that has gone nothing is kept."""
        if connection.is_open:
            connection.send(command)
            self._changed.add(connection)

    def flush(self) -> None:
        """Sends what was answered in this turn."""
        for connection in self._changed:
            if not connection.is_open:
                continue
            waited = connection.waits
            try:
                connection.flush()
            except OSError as error:
                self._drop(connection, str(error))
                continue
            if connection.waits != waited or connection.waits:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.waits else 0)
                self._selector.modify(connection.sock, events, connection)
        self._changed.clear()

    def drop_silent(self, now: float) -> None:
        for connection in [each for each in self._open if now - each.heard > SILENT_S]:
            self._drop(connection, f"nothing was heard of it for {SILENT_S:.0f} s")

    def close(self) -> None:
        for connection in list(self._open):
            self._drop(connection, "the node stops")
        for sock in self._listening:
            sock.close()
        self._selector.close()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError):
            sock, peer = listening.accept()
            if len(self._open) >= CONNECTIONS_MAX:
                sock.close()
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, (peer[0], peer[1]))
            self._open.add(connection)
            self._selector.register(sock, selectors.EVENT_READ, connection)

    def _receive(self, connection: Connection) -> None:
        try:
            for command in connection.receive():
                self._handle(connection, command)
        except (OSError, MalformedFrame) as error:
            self._drop(connection, str(error))

    def _drop(self, connection: Connection, why: str) -> None:
        self._open.discard(connection)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.close()
        self.dropped.append((connection, why))
