"""TCP connections of remoting clients: whole frames out of what arrives, answers until the client takes them.

No connection is waited for. Nothing more is taken from one for which more than PAUSE_AT bytes of answers wait, so a
client that does not read cannot ask for more; it is closed when it takes none of them for UNREAD_S, or when more than
OUT_MAX wait for it all the same. One that sends what is no frame is closed; one that says nothing for SILENT_S is too,
as RocketMQ does. Where CONNECTIONS_MAX are open, or as many as the process may have descriptors for, the next one is
closed at once; where all together hold more than HELD_MAX, the one that holds most.
"""

import ipaddress
import os
import resource
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count, islice
from typing import Final

from towline.errors import CannotListen, MalformedFrame
from towline.format.record.record import Host
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import ONE_WAY, Command, encode, frame_size
from towline.format.wire.frames import Buffer
from towline.limits import KIB, MIB
from towline.link.keys import Key
from towline.link.log_files import FileRegion
from towline.link.memory_limit import NO_ROOM
from towline.link.permissions import Act, NotPermitted, Permit
from towline.runtime.remoting_counts import Ending, RemotingCounts, Total

from .seats import Seats
from .tls import BeginsWrong, Security, Tls

READ_MAX: Final = 256 * KIB  # of one connection before it is another's turn
PARTS_MAX: Final = 64  # of one sendmsg
PAUSE_AT: Final = 4 * MIB
UNREAD_S: Final = 15.0
OUT_MAX: Final = 32 * MIB
HELD_MAX: Final = 128 * MIB  # for all of them; above it, who holds most is closed
SILENT_S: Final = 120.0
CONNECTIONS_MAX: Final = 16_384
BACKLOG: Final = 1_024
# Seconds of silence before a probe, seconds between two, how many without an answer end a connection.
_PROBES: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
OTHER_FILES: Final = 128  # descriptors of this process that are no clients
TUNNELS_MAX: Final = 1_024  # clients of ours, with links behind them (`tunnels`)
TUNNEL_FILES: Final = 15  # descriptors of one, besides its connection


class Unread(ConnectionAbortedError):
    """Too much waits for a client."""


class Connection:
    """One client. `peer` is host and port, as it is logged and told; `host` the same, as it stands in records."""

    def __init__(self, sock: socket.socket, peer: tuple[str, int], number: int, security: Security) -> None:
        self.number = number  # never that of another
        self._security: Security | None = security  # until the first byte has come
        self._tls: Tls | None = None
        address = ipaddress.ip_address(peer[0].partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        self.peer = str(address), peer[1]
        self.host = Host(address.packed, peer[1])
        self.heard = time.monotonic()
        self.sock = sock
        self.client_ids: set[str] = set()
        self.half_groups: set[str] = set()  # producer groups of halves that it was the last to send
        self.keeps_silent = False
        self.puts = False  # it may send puts of ours (`tunnels`)
        self.key: Key | None = None  # by which it was let in last
        self.permit: Permit | None = None  # what that key may do, where keys are asked for
        self.has_greeted = False  # it speaks our own protocol (`tunnels`), and has no other key
        self._in = bytearray()
        self._out: deque[memoryview | FileRegion] = deque()
        self._out_size = 0
        self.counted = 0  # of `held`, in the sum of all
        self.seat: tuple[bool, bool] = (False, False)  # whether the kernel serves it, and takes puts of ours
        self.events = selectors.EVENT_READ  # that are waited for
        self.taken = 0  # bytes of answers that it has taken
        self.is_open = True

    @property
    def held(self) -> int:
        """Bytes of unfinished frames, and of answers that it has not taken."""
        return len(self._in) + self._out_size

    @property
    def waits(self) -> bool:
        """Whether the client has not taken everything that was sent."""
        return bool(self._out)

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are what they seem, and none of them waits here."""
        return self._security is None and self._tls is None and not self._in and not self._out

    def received(self, data: Buffer) -> None:
        """Takes what a kernel has received."""
        self._in += data

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the client that nothing more is to be taken from it."""
        return self._out_size > PAUSE_AT

    def receive(self) -> None:
        """Adds what has come to `whole`. Raises ConnectionError where the client has ended it."""
        try:
            data = self.sock.recv(READ_MAX)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the client has closed")
        self.heard = time.monotonic()
        if self._security is not None:
            self._tls = self._begin(self._security, data)
            self._security = None
        if self._tls is None:
            self._in += data
            return
        try:
            self._in += self._tls.decrypt(data)
        finally:
            self._queue(self._tls.outgoing())  # of the handshake; an alert too, before the connection is closed

    def _begin(self, security: Security, data: bytes) -> Tls | None:
        try:
            return security.begin(data)
        except BeginsWrong as wrong:
            self._queue(wrong.answer)
            raise

    def whole(self) -> bytes:
        """What has come and was not taken, if it begins with a whole frame: a large one comes in many parts. Raises
        MalformedFrame."""
        size = frame_size(self._in)
        return bytes(self._in) if 0 < size <= len(self._in) else b""

    def take(self, size: int) -> None:
        """Takes so many bytes of `whole` away."""
        del self._in[:size]

    def send(self, command: Command) -> None:
        """Queues a command; `flush` sends it."""
        for part in encode(command):
            self.send_bytes(part)

    def send_bytes(self, data: Buffer | FileRegion) -> None:
        """Queues whole frames, or parts of them; `flush` sends them. Regions where it `sends_files`."""
        if isinstance(data, FileRegion):
            assert self.sends_files
            self._out.append(data)
            self._out_size += len(data)
        elif self._tls is None:
            self._queue(data)
        else:
            with suppress(ssl.SSLError):  # the client has ended TLS: so it will the connection
                self._tls.encrypt(bytes(data))
            self._queue(self._tls.outgoing())

    def _queue(self, data: Buffer) -> None:
        if len(data):
            self._out.append(memoryview(data))
            self._out_size += len(data)

    @property
    def sends_files(self) -> bool:
        """Whether the system may send bytes of files as they stand there."""
        return self._tls is None

    def hold_files(self) -> None:
        """Reads what waits in files, so that who does not read keeps none from being deleted. Raises OSError."""
        for at, part in enumerate(self._out):
            if isinstance(part, FileRegion):
                self._out[at] = memoryview(part.read())
                part.close()

    def flush(self) -> None:
        """Sends what the client takes now. Raises ConnectionError, Unread where too much waits for it."""
        while self._out:
            try:
                sent = self._send_first()
            except BlockingIOError:
                break
            self._out_size -= sent
            self.taken += sent
        if self._out_size > OUT_MAX:
            raise Unread(f"{self._out_size} bytes wait for a client that does not read")

    def _send_first(self) -> int:
        """Sends a region of a file, or what stands before the next one. Raises OSError, BlockingIOError."""
        first = self._out[0]
        if isinstance(first, FileRegion):
            sent = first.send(self.sock)
            if not len(first):
                first.close()
                self._out.popleft()
            return sent
        parts: list[memoryview] = []
        for part in islice(self._out, PARTS_MAX):
            if isinstance(part, FileRegion):
                break
            parts.append(part)
        sent = left = self.sock.sendmsg(parts, (), socket.MSG_MORE if len(parts) < len(self._out) else 0)
        for part in parts:
            if left < len(part):
                self._out[0] = part[left:]
                break
            left -= len(part)
            self._out.popleft()
        return sent

    def keep_alive(self) -> None:
        """Has the system probe a client that may be silent for long."""
        self.keeps_silent = True
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            self.sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.sock.close()
            for part in self._out:
                if isinstance(part, FileRegion):
                    part.close()


class Answer:
    """The way back to who asked: called with a code, fields, a body, a remark. Nothing is sent to who wants none."""

    def __init__(self, connections: "Connections", connection: Connection, request: Command) -> None:
        self._connections, self._connection, self._request = connections, connection, request
        self._permit: Permit | None = None

    def judged_by(self, permit: Permit | None) -> None:
        """Keeps what its key may do: a later request may show another one."""
        self._permit = permit

    @property
    def is_wanted(self) -> bool:
        """Whether who asked is still connected."""
        return self._connection.is_open

    @property
    def permit(self) -> Permit | None:
        """What who asked may do by now; None where that has no limits."""
        found = self._newest
        return found if found is not None and found.is_limited else None

    @property
    def _newest(self) -> Permit | None:
        found, newest = self._permit, self._connection.permit
        return newest if found is not None and newest is not None and newest.key == found.key else found

    def check(self, act: Act, *names: str) -> None:
        """Raises RequestRefused for a topic or a group that who asked may not do this with by now: the key may have
        lost its role, too."""
        permit = self._newest
        if permit is None:
            return
        try:
            for name in names:
                permit.check(act, name)
        except NotPermitted as refused:
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(refused)) from None

    def __call__(
        self, code: int, fields: Mapping[str, str] | None = None, body: Buffer = b"", remark: str = ""
    ) -> None:
        if code:
            self._connections.counts.refused(code)
        if self._request.is_one_way:
            return
        try:
            self._connections.send(self._connection, self._request.answer(code, fields, body, remark))
        except MalformedFrame as error:  # more than a frame holds was found
            self._connections.counts.refused(ResponseCode.SYSTEM_ERROR)
            self._connections.send(
                self._connection, self._request.answer(ResponseCode.SYSTEM_ERROR, remark=error.describe())
            )

    def refuse(self, refused: RequestRefused) -> None:
        self(refused.code, remark=refused.sentence)


class Connections:
    """All of them, and the sockets that are listened on. `handle` gets each command; what it raises closes that one.

    Nothing is taken from clients while `is_full` says so.
    """

    def __init__(
        self,
        addresses: list[tuple[str, int]],
        take: Callable[[Connection, bytes], int],
        is_full: Callable[[], bool],
        security: Security,
        counts: RemotingCounts,
    ) -> None:
        """Listens. Raises CannotListen."""
        self._security, self.counts = security, counts
        self.seats = Seats()
        counts.begin()
        self._take, self._is_full = take, is_full
        self._opaque = count(1)
        self._numbers = count(1)
        self._by_number: dict[int, Connection] = {}
        self._stalled: set[Connection] = set()  # they have whole frames that are taken next
        self._paused: dict[Connection, tuple[int, float]] = {}  # how much they had taken when, of those that are behind
        self._held = self._held_told = 0
        self._most, self.tunnels_max = capacity()
        self._selector = selectors.EpollSelector()
        self._listening: list[socket.socket] = []
        self._deaf: list[socket.socket] = []  # of those, where somebody waits for whom there is no descriptor
        self._open: set[Connection] = set()
        self._changed: set[Connection] = set()
        self.dropped: deque[tuple[Connection, str]] = deque()
        for address in addresses:
            try:
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                sock = socket.create_server((address[0].strip("[]"), address[1]), family=family, backlog=BACKLOG)
            except OSError as error:
                self.close()
                why = os.strerror(error.errno) if error.errno else str(error)  # its own text says the address again
                raise CannotListen(f"tcp://{address[0]}:{address[1]}", error.errno or 0, why) from None
            sock.setblocking(False)
            self._listening.append(sock)
            self._listen_to(sock)

    def _listen_to(self, listening: socket.socket) -> None:
        self._selector.register(listening, selectors.EVENT_READ, listening)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    @property
    def are_stalled(self) -> bool:
        """Whether `cycle` has something to do, of which `fileno` says nothing."""
        return bool(self._stalled)

    def fileno(self) -> int:
        """Readable when `cycle` has something to do."""
        return self._selector.fileno()

    def received(self, descriptor: int, came: Callable[[], bytes], taken: int) -> None:
        """Takes what a kernel has received of a client but for the first `taken` bytes: of its carry, else `came`."""
        connection = self._selector.get_key(descriptor).data
        connection.received((self.seats.empty(descriptor) or came())[taken:])
        self._serve(connection)

    def cycle(self) -> int:
        """Takes what has arrived; returns how many sockets were ready."""
        stalled, self._stalled = self._stalled, set()
        for connection in stalled:
            self._serve(connection)
        events = self._selector.select(0)
        for key, mask in events:
            connection = key.data
            if isinstance(connection, socket.socket):
                self._accept(connection)
                continue
            may_read = connection.is_open and connection not in self._stalled and not self._is_full()
            if mask & selectors.EVENT_READ and may_read:
                self._receive(connection)
            if mask & selectors.EVENT_WRITE and connection.is_open:
                self._changed.add(connection)
        return len(events) + len(stalled)

    def deliver(self, number: int, frames: Buffer) -> None:
        """Sends whole frames at the end of the turn, to the connection of this number if it is still there."""
        connection = self._by_number.get(number)
        if connection is not None:
            connection.send_bytes(frames)
            self._changed.add(connection)

    def send(self, connection: Connection, command: Command) -> None:
        """Sends a command at the end of the turn; of a client that has gone nothing is kept."""
        if connection.is_open:
            connection.send(command)
            self._changed.add(connection)

    def send_parts(self, connection: Connection, parts: Iterable[Buffer | FileRegion]) -> None:
        """Sends the parts of whole frames at the end of the turn."""
        if connection.is_open:
            for part in parts:
                connection.send_bytes(part)
            self._changed.add(connection)

    def hold_files(self) -> None:
        """Has nobody keep a file of the log that is to be deleted."""
        for connection in list(self._open):
            try:
                connection.hold_files()
            except OSError as error:
                self._drop(connection, Ending.AWAY, str(error))

    def lose(self, number: int) -> None:
        """Closes the connection of this number, whose client then sends again what has no answer."""
        connection = self._by_number.get(number)
        if connection is not None:
            self.end(connection, Ending.AWAY, "put has ended: what becomes of its last records is not known")

    def end(self, connection: Connection, ending: Ending, why: str) -> None:
        """Closes a connection, with what it takes of its answers at once."""
        if connection.is_open:
            with suppress(OSError):
                connection.flush()
            self._drop(connection, ending, why)

    def ask(
        self, connection: Connection, code: int, fields: Mapping[str, str], body: bytes, *, one_way: bool = False
    ) -> int:
        """Sends a request to a client; returns the number that its answer has, if one comes."""
        opaque = next(self._opaque) & 0x7FFF_FFFF
        self.send(connection, Command(code, opaque, ONE_WAY if one_way else 0, "", fields, body))
        return opaque

    def flush(self) -> None:
        """Sends what was answered in this turn."""
        for connection in self._changed:
            if not connection.is_open:
                continue
            try:
                connection.flush()
            except OSError as error:
                self._drop(connection, Ending.UNREAD if isinstance(error, Unread) else None, str(error))
                continue
            self._count(connection)
            if not connection.is_open:
                continue
            events = 0 if connection.is_behind else selectors.EVENT_READ
            events |= selectors.EVENT_WRITE if connection.waits else 0
            if events != connection.events:
                connection.events = events
                self._selector.modify(connection.sock, events, connection)
            if connection.is_behind or connection in self._paused:
                self._pause(connection)
        self._changed.clear()
        if self._held != self._held_told:
            self._held_told = self._held
            self.counts.set(Total.HELD, self._held)

    def _pause(self, connection: Connection) -> None:
        """Notes whether it is behind; once it is not any more, what came of it before is taken."""
        if connection.is_behind:
            if connection not in self._paused:
                self._paused[connection] = connection.taken, time.monotonic()
        elif self._paused.pop(connection, None) is not None:
            self._stalled.add(connection)

    def drop_silent(self, now: float) -> None:
        """Drops who has said or, for one that is behind, read nothing for long; then there may be room for others."""
        for connection in self._open:
            if connection.seat[0]:
                connection.heard = max(connection.heard, self.seats.heard_ms(connection.sock.fileno()) / 1_000)
        for connection, (taken, since) in list(self._paused.items()):
            if connection.taken != taken:
                self._paused[connection] = connection.taken, now
                connection.heard = now  # it reads, and what it says waits
            elif now - since > UNREAD_S and not connection.keeps_silent:
                self._drop(connection, Ending.UNREAD, f"it has read nothing for {UNREAD_S:.0f} s, and answers wait")
        for connection in [each for each in self._open if now - each.heard > SILENT_S and not each.keeps_silent]:
            self._drop(connection, Ending.SILENT, f"nothing was heard of it for {SILENT_S:.0f} s")
        while self._deaf:
            self._listen_to(self._deaf.pop())

    def close(self) -> None:
        for connection in list(self._open):
            self._drop(connection, Ending.RESTART, "the node stops")
        for sock in self._listening:
            sock.close()
        self._selector.close()

    def _accept(self, listening: socket.socket) -> None:
        """One that waits. It may have gone already; where the machine has no descriptor for it, it waits until
        `drop_silent`."""
        with suppress(OSError):
            try:
                sock, peer = listening.accept()
            except OSError as error:
                if error.errno in NO_ROOM:
                    self._selector.unregister(listening)
                    self._deaf.append(listening)
                return
            if len(self._open) >= self._most:
                sock.close()
                self.counts.ended(Ending.FULL)
                return
            sock.setblocking(False)
            connection = Connection(sock, (peer[0], peer[1]), next(self._numbers), self._security)
            self._open.add(connection)
            self._by_number[connection.number] = connection
            self.counts.add(Total.ACCEPTED)
            self.counts.set(Total.OPEN, len(self._open))
            self._selector.register(sock, selectors.EVENT_READ, connection)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _receive(self, connection: Connection) -> None:
        if connection.seat[0]:
            connection.received(self.seats.empty(connection.sock.fileno()))
        try:
            connection.receive()
        except OSError as error:
            with suppress(OSError):  # TLS says why it ends
                connection.flush()
            is_tls = isinstance(error, BeginsWrong | ssl.SSLError)
            self._drop(connection, Ending.TLS if is_tls else None, str(error))
            return
        if connection.waits:
            self._changed.add(connection)
        self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        """Takes whole frames, as many as there is room for and as are its share of a turn."""
        if not connection.is_open:
            return
        try:
            data = connection.whole()
            if data and not connection.is_behind:
                taken = self._take(connection, data)
                connection.take(taken)
                if taken < len(data) and connection.whole():
                    self._stalled.add(connection)
            elif data:
                self._pause(connection)
        except MalformedFrame as error:
            self._drop(connection, Ending.MALFORMED, str(error))
        self._count(connection)

    def _count(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        seat = (connection.is_plain and connection not in self._stalled, connection.puts)
        if seat != connection.seat:
            connection.seat, descriptor = seat, connection.sock.fileno()
            if seat[0]:
                self.seats.give(descriptor, connection.number, connection.host, puts=connection.puts)
            else:
                connection.received(self.seats.take(descriptor))
        self._held += connection.held - connection.counted
        connection.counted = connection.held
        if self._held > HELD_MAX:
            most = max(self._open, key=lambda each: each.counted)
            self._drop(
                most, Ending.MEMORY, f"it holds {most.counted} of the {self._held} bytes that are kept for all clients"
            )

    def _drop(self, connection: Connection, ending: Ending | None, why: str) -> None:
        """`ending` is None where the client has ended it."""
        if ending is None:
            self.counts.add(Total.LEFT)
        else:
            self.counts.ended(ending)
        self._open.discard(connection)
        self._paused.pop(connection, None)
        self._stalled.discard(connection)
        self.counts.set(Total.OPEN, len(self._open))
        self._by_number.pop(connection.number, None)
        self._held -= connection.counted
        connection.counted = 0
        if connection.is_open:
            self.seats.take(connection.sock.fileno())
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.close()
        self.dropped.append((connection, why))


def capacity() -> tuple[int, int]:
    """How many connections this process can have, with its limit of descriptors raised as far as it may be; and how
    many clients of ours."""
    wanted = CONNECTIONS_MAX + OTHER_FILES + TUNNELS_MAX * TUNNEL_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    tunnels = max(1, min(TUNNELS_MAX, limit // 4 // TUNNEL_FILES))
    return max(1, min(CONNECTIONS_MAX, limit - OTHER_FILES - tunnels * TUNNEL_FILES)), tunnels
