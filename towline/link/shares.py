"""Memory that each peer occupies in a server's process, and the disconnection of peers that exceed their share (H21).

libzmq reads all that a peer sends, finished messages or not, and keeps it until it is received, without a bound. So a
thread watches the connections. Its sources are libzmq's monitor, which names the descriptor of each connection, and an
edge-triggered epoll on these descriptors: a connection on which nothing comes costs nothing. Bytes that the kernel has
received on a connection, less those that the server has received, wait in libzmq. The connection of a peer that exceeds
its share is shut down, which libzmq takes for a peer that has left.

Local (ipc) connections have no such count. They are cut only where the process holds too much and no other peer does:
the one with most bytes unread.
"""

import array
import contextlib
import ctypes
import fcntl
import os
import select
import socket as sockets
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import zmq

from towline.limits import KIB, LINK_MEMORY_MAX, LINK_PEERS_MAX, LINK_SHARE_MAX, MIB

from .context import Socket, new_poller, next_event
from .memory_limit import anonymous_bytes, trim_memory

STRANGER_MAX: Final = MIB  # bytes from who has not greeted
OWED_MAX: Final = LINK_SHARE_MAX // 3  # bytes of answers that were copied for one peer, and that it has not read
LOOK_S: Final = 0.01  # between two checks while something comes; a flood brings some 10 MiB meanwhile
HELD_LOOK_MS: Final = 100  # and while something is held
FREED_S: Final = 0.2  # libzmq needs so long to free what a peer left
LEFTOVERS_S: Final = 3.0  # for so long what a peer that was cut has left is thought to be what is held
PARTING_S: Final = 1.0  # libzmq closes a connection in the call in which it reports its end
CALM_S: Final = 1.0  # without anything held, before what the process holds counts as its own
BEING_FREED_MAX: Final = LINK_PEERS_MAX // 2  # held beyond the limit while libzmq frees what a peer left
FRAME_HEADER: Final = 2  # ZMTP 3.1: flags, and the size in one byte,
LONG_FRAME_HEADER: Final = 9  # or in eight
SHORT_FRAME_MAX: Final = 255
CURVE_MESSAGE: Final = 33  # ZMTP-CURVE adds to each frame: its command's name, a nonce, the authenticator and flags
FORGIVEN: Final = 256  # bytes a second: heartbeats
GUILTY_FROM: Final = 256 * KIB  # nobody is cut for less than this where the process holds too much
GUILTY_BESIDE: Final = 2 * MIB  # nor for less than this while there are leftovers of others
READ_SOON: Final = 64 * KIB
KEPT_MAX: Final = 8 * MIB  # that the allocator may keep where nothing is held
_EVENTS: Final = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
_TCP_INFO_SIZE: Final = 136
_COUNTS: Final = struct.Struct("@QQ")  # bytes acknowledged, bytes received
_COUNTS_AT: Final = _TCP_INFO_SIZE - _COUNTS.size
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def size_on_the_wire(sizes: Iterable[int], encrypted: bool) -> int:
    """The bytes that a message with frames of these sizes takes on a connection: exactly, or what waits of a peer that
    sends small messages would be forgiven with each that is received."""
    total = 0
    for size in sizes:
        sent = size + CURVE_MESSAGE if encrypted else size
        total += sent + (FRAME_HEADER if sent <= SHORT_FRAME_MAX else LONG_FRAME_HEADER)
    return total


@dataclass(slots=True, eq=False)
class Connection:
    """One connection of a peer.

    The server counts the bytes it receives and sends; all other fields are the thread's.
    """

    descriptor: int
    inode: int
    counted: bool  # the kernel counts its bytes
    where: str
    peer: bytes = b""
    name: str = ""  # of who has greeted
    strays: int = 0  # requests that came without a greeting
    taken: int = 0
    handed: int = 0
    copied: int = 0  # of that, what libzmq keeps a copy of
    waits: int = 0  # bytes it sent that were not taken, as they were seen last
    owed: int = 0  # bytes of answers that it has not read
    seen: float = 0.0
    _taken_base: int = 0
    _handed_base: int = 0
    _copied_base: int = 0
    is_cut: bool = False

    @property
    def holds(self) -> int:
        return self.waits + self.owed

    @property
    def who(self) -> str:
        return f"{self.name or 'a stranger'} at {self.where}"

    @property
    def is_open(self) -> bool:
        """Whether the descriptor is still this connection's: libzmq may have closed it, and another have its number."""
        try:
            return os.fstat(self.descriptor).st_ino == self.inode
        except OSError:
            return False

    def update(self, now: float) -> bool:
        """Reads the kernel's counts; False when the connection is not this one any more."""
        if not self.is_open:
            return False
        try:
            counts = _counts_of(self.descriptor) if self.counted else None
        except OSError:
            return False
        if counts is None:
            return True
        taken, handed, copied = self.taken, self.handed, self.copied
        acknowledged, received = counts
        forgiven = int(FORGIVEN * (now - self.seen)) if self.seen else 0
        self.seen = now
        self.waits = max(0, received - taken - self._taken_base - forgiven)
        self._taken_base = received - taken - self.waits
        unread = max(0, handed - acknowledged - self._handed_base)
        self._handed_base = handed - acknowledged - unread
        if unread < READ_SOON:
            self._copied_base = copied
        self.owed = min(unread, copied - self._copied_base)
        return True

    def unread(self) -> int:
        """Bytes that the kernel has of it and libzmq has not, or that it does not read."""
        with contextlib.suppress(OSError):
            return max(_queued(self.descriptor, termios.FIONREAD), _queued(self.descriptor, termios.TIOCOUTQ))
        return 0

    def cut(self) -> bool:
        """Shuts it down. False where libzmq has closed the descriptor, and another connection may have its number."""
        with contextlib.suppress(OSError), sockets.socket(fileno=os.dup(self.descriptor)) as connection:
            if os.fstat(connection.fileno()).st_ino == self.inode:
                self.is_cut = True
                connection.shutdown(sockets.SHUT_RDWR)
        return self.is_cut


class PeerShares:
    """The shares of all peers of one server. The thread fills `cut` and `left`, the server's thread empties them."""

    def __init__(self, monitored: Socket) -> None:
        self.own = anonymous_bytes()  # what the process holds for reasons of its own
        self.cut: deque[tuple[Connection, str]] = deque()  # whom the thread has cut, and why
        self.left: deque[Connection] = deque()  # connections that have ended
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._holding: set[Connection] = set()
        self._closing: dict[Connection, float] = {}  # libzmq reported the end of one of this descriptor; kept until
        self.leftovers = False  # the server has not come to the end of what those that were cut had sent
        self._free_at = self._cut_at = 0.0
        self._held_at = time.monotonic()
        self._epoll = select.epoll()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._monitored = monitored
        self._monitor: Socket = monitored.get_monitor_socket(_EVENTS)
        self._monitor.set(zmq.LINGER, 0)
        self._thread = threading.Thread(target=self._run, name="shares", daemon=True)
        self._thread.start()

    def find(self, descriptor: int) -> Connection | None:
        """The connection that has this descriptor now; None when it is gone."""
        with self._lock:
            known = self._connections.get(descriptor)
            try:
                inode = os.fstat(descriptor).st_ino
                if known is None or known.inode != inode:
                    if known is not None:
                        self._end(known)
                    known = self._connections[descriptor] = _connection(descriptor, inode)
                    with contextlib.suppress(FileExistsError):
                        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)
            except OSError:
                return None
            return known

    def close(self) -> None:
        """Ends the thread, before the socket is closed."""
        if self._stop < 0:
            return
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        self._monitored.disable_monitor()
        self._monitor.close(linger=0)
        self._epoll.close()
        os.close(self._stop)
        self._stop = -1

    # --- the thread

    def _run(self) -> None:
        """Ends with the server, or with its context: then there is nobody left to look at."""
        try:
            self._watch_over()
        except zmq.ZMQError as error:
            if error.errno not in (zmq.ETERM, zmq.ENOTSOCK):
                raise

    def _watch_over(self) -> None:
        poller = new_poller()
        for source in (self._monitor, self._epoll.fileno(), self._stop):
            poller.register(source, zmq.POLLIN)
        stopped = select.poll()  # select() takes no descriptor above 1023
        stopped.register(self._stop, select.POLLIN)
        while True:
            busy = self._holding or self._free_at or self._closing
            found = dict(poller.poll(HELD_LOOK_MS if busy else None))
            if self._stop in found:
                return
            self._watch()
            now = time.monotonic()
            self._remove_closed(now)
            self._check(now, self._woken())
            self._check_total(now)
            if found:
                stopped.poll(LOOK_S * 1000)

    def _watch(self) -> None:
        """Who came and who left."""
        while int(self._monitor.get(zmq.EVENTS)) & zmq.POLLIN:
            event, descriptor = next_event(self._monitor)
            if event == zmq.EVENT_ACCEPTED:
                self.find(descriptor)
            elif event == zmq.EVENT_DISCONNECTED:
                with self._lock:
                    if descriptor in self._connections:
                        self._closing[self._connections[descriptor]] = time.monotonic() + PARTING_S

    def _remove_closed(self, now: float) -> None:
        """Ends the connections that have closed. An event may be older than the connection that has its descriptor now,
        and libzmq reports it before it closes: the descriptor itself says what became of it."""
        for connection, until in list(self._closing.items()):
            with self._lock:
                known = self._connections.get(connection.descriptor) is connection
                if known and not connection.is_open:
                    del self._connections[connection.descriptor]
                    self._end(connection)
                if not known or not connection.is_open or now >= until:
                    self._closing.pop(connection, None)

    def _woken(self) -> list[Connection]:
        """Those on which something came."""
        with self._lock:
            found = [self._connections.get(descriptor) for descriptor, _ in self._epoll.poll(0)]
        return [connection for connection in found if connection is not None]

    def _end(self, connection: Connection) -> None:
        self._holding.discard(connection)
        self.left.append(connection)
        if connection.holds >= GUILTY_FROM:
            self._free_at = time.monotonic() + FREED_S

    def _check(self, now: float, woken: Iterable[Connection]) -> None:
        for connection in self._holding.union(woken):
            if connection.is_cut or not connection.update(now):
                self._holding.discard(connection)
            elif connection.waits > (LINK_SHARE_MAX if connection.name else STRANGER_MAX):
                self._cut(connection, f"{connection.waits} bytes that it sent wait")
            elif connection.owed > OWED_MAX:
                self._cut(connection, f"{connection.owed} bytes of answers were not read by it")
            elif connection.holds >= READ_SOON:
                self._holding.add(connection)
            else:
                self._holding.discard(connection)

    def _check_total(self, now: float) -> None:
        """All of them together: where it is too much, who holds most is cut."""
        held = anonymous_bytes()
        if self._free_at and now >= self._free_at:
            trim_memory()
            self._free_at, held = 0.0, anonymous_bytes()
        if self._holding or self._free_at:
            self._held_at = now
        elif now - self._held_at >= CALM_S or held < self.own:
            self._update_own(held)
        most = LINK_PEERS_MAX + (BEING_FREED_MAX if self._free_at else 0)
        if max(held - self.own, sum(each.holds for each in self._holding)) <= most:
            return
        guilty = max(self._holding, key=lambda each: each.holds, default=None)
        waits = self.leftovers and now - self._cut_at < LEFTOVERS_S
        if guilty is None or guilty.holds < (GUILTY_BESIDE if waits else GUILTY_FROM):
            if waits or self._free_at:
                return
            with self._lock:
                local = [each for each in self._connections.values() if not (each.counted or each.is_cut)]
            guilty = max(local, key=Connection.unread, default=None)
            if guilty is None or not guilty.unread():
                return
        self._cut(guilty, f"peers hold {max(held - self.own, 0)} bytes of this process, and it most of them")

    def _update_own(self, held: int) -> None:
        """Nothing is held for anybody: what there is, less what the allocator keeps of what was, is our own."""
        if held > self.own + KEPT_MAX:
            trim_memory()
            held = anonymous_bytes()
        self.own = held

    def _cut(self, connection: Connection, why: str) -> None:
        self._holding.discard(connection)
        connection.cut()
        self.cut.append((connection, why))
        self._cut_at = time.monotonic()
        self._free_at = self._cut_at + FREED_S

    @property
    def memory_max(self) -> int:
        """Bytes of the process above which every connection has to be ended."""
        return self.own + LINK_MEMORY_MAX


def _connection(descriptor: int, inode: int) -> Connection:
    """Raises OSError."""
    with sockets.socket(fileno=os.dup(descriptor)) as connection:
        counted = connection.family in (sockets.AF_INET, sockets.AF_INET6)
        where = "this machine"
        if counted:
            host, port = connection.getpeername()[:2]
            where = f"{host.removeprefix('::ffff:')}:{port}"
    return Connection(descriptor, inode, counted, where)


def _counts_of(descriptor: int) -> tuple[int, int]:
    """Bytes that the peer has acknowledged, and that it has sent. Raises OSError."""
    buffer = ctypes.create_string_buffer(_TCP_INFO_SIZE)
    size = ctypes.c_uint32(_TCP_INFO_SIZE)
    if _LIBC.getsockopt(descriptor, sockets.IPPROTO_TCP, sockets.TCP_INFO, buffer, ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), "TCP_INFO")
    if size.value < _TCP_INFO_SIZE:
        return 0, 0
    acknowledged, received = _COUNTS.unpack_from(buffer, _COUNTS_AT)
    return acknowledged, received


def _queued(descriptor: int, request: int) -> int:
    """Bytes in one of the kernel's queues. Raises OSError."""
    found = array.array("i", [0])
    fcntl.ioctl(descriptor, request, found)
    return found[0]
