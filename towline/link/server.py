"""The binding side of a link: one ROUTER socket for any number of peers, which greet before their first request.

Nothing here waits. A peer that cannot receive an answer is PAUSED or GONE, and the caller decides (H20).
"""

import errno
import logging
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import zmq

from towline.errors import CannotListen, LinkRefused, MalformedFrame
from towline.format.wire.frames import Buffer, Kind, kind_of
from towline.limits import FRAME_SIZE_MAX, LINK_HIGH_WATER, MIB, PARTS_MAX, SESSIONS_MAX

from .context import Context, Socket, close_socket, set_common
from .curve_auth import CurveAuth
from .endpoints import Endpoint, parse
from .handshake import MALFORMED, NOT_GREETED, compare, encode_refusal, encode_welcome, parse_greeting
from .keys import AuthorizedKeys
from .memory_limit import anonymous_bytes, trim_memory
from .native import ReceivedPart
from .shares import Connection, PeerShares, size_on_the_wire

log = logging.getLogger(__name__)

BACKLOG: Final = 256
UNANSWERED_PER_TURN: Final = 64  # greetings, refusals and strays dealt with in one `receive`
STRAYS_MAX: Final = 256  # requests of one connection that nobody greeted on; each is answered
DROPPED_S: Final = 1.0  # at least: what a peer that was cut has left is thrown away for so long
LEFT_PER_TURN: Final = 4_096  # messages of dropped peers thrown away in one `receive`
DRAINED_PER_TURN: Final = 1_024  # parts of a flood thrown away in one `receive`
# Linux lets a stream within the machine grow to several MiB on its way, and each byte leaves the CPU's caches before it
# is read: 3 GB/s, against 6 with this. Over a network it is left to Linux, as the way there may hold more.
LOOPBACK_SEND_BUFFER: Final = MIB
SYSTEM_CHOOSES: Final = -1
NAME_MAX: Final = 100  # characters of what a peer calls itself, in the log
AGAIN_S: Final = 0.02  # between two attempts to bind again
TEND_S: Final = 1.0  # between two checks of the memory
_GIVEN: Final = b"\0"  # how names begin that ZeroMQ gave
_LAST: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)

Greet = Callable[[dict[str, Any]], Mapping[str, Any]]


class Sent(Enum):
    """What became of an answer."""

    SENT = "handed to ZeroMQ"
    PAUSED = "the peer's queue is full: keep the answer and try later, or drop the peer"
    GONE = "the peer is not connected any more"


@dataclass(slots=True)
class Session:
    """A peer that greeted: its facts, the agreed version, and the connection that the greeting came on."""

    peer: bytes
    version: int
    facts: dict[str, Any]
    connection: Connection | None = None


@dataclass(slots=True)
class Request:
    """One message of a greeted peer. `parts[0]` is the head as bytes; the others are views of ZeroMQ's own buffers."""

    peer: bytes
    session: Session
    parts: list[Buffer]
    frame: ReceivedPart  # the head as it came, for `drop`


def welcome_all(_: dict[str, Any]) -> Mapping[str, Any]:
    return {}


def ignore_refusal(facts: Mapping[str, Any], refused: LinkRefused) -> None:
    return


def ignore_count() -> None:
    return


class Server:
    """Binds `endpoints` (port 0 lets the kernel choose) and answers greetings.

    `own` are this side's facts (role, cluster, store, name), compared with the peer's and sent in every welcome.
    `greet` gets the facts of a peer that passed, and returns more facts for its welcome or raises LinkRefused.
    `refused` hears of every greeting that is refused: its facts, if they could be read, and why.
    `counted` is called for each peer that was cut because it took more than its share.
    With `keys`, TCP endpoints accept nodes of that ring alone, and are encrypted.
    Raises InvalidEndpoint, and CannotListen when an address is taken.
    """

    def __init__(
        self,
        context: Context,
        endpoints: Sequence[str],
        *,
        own: Mapping[str, Any],
        greet: Greet = welcome_all,
        refused: Callable[[Mapping[str, Any], LinkRefused], None] = ignore_refusal,
        counted: Callable[[], None] = ignore_count,
        frame_size_max: int = FRAME_SIZE_MAX,
        high_water: int = LINK_HIGH_WATER,
        keys: AuthorizedKeys | None = None,
    ) -> None:
        self._context = context
        self._limits = frame_size_max, high_water
        self._curve = CurveAuth(context, keys) if keys is not None else None
        self._tend_at = 0.0
        self._counted = counted
        self._dropped: dict[bytes, float] = {}  # what is left of these is thrown away, since when
        self._vanished: dict[bytes, float] = {}  # their connection has ended
        self.unheard: tuple[bytes, ...] = ()  # both: nobody is there to hear an answer
        self._own = dict(own)
        self._greet = greet
        self._refused = refused
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._draining = False
        self._cut = False  # every peer was, and the memory was not checked since
        self._unbound = False  # between a cut of every peer and the next bind
        self._make_socket()
        try:
            self.endpoints = self._bind_all(endpoints)
        except BaseException as error:
            self._shares.close()
            close_socket(self._socket)
            if isinstance(error, OSError):
                raise CannotListen(error.filename, error.errno or 0, error.strerror or "") from None
            raise

    @property
    def sockets(self) -> tuple[Socket, ...]:
        return (self._socket,) if self._curve is None else (self._socket, self._curve.socket)

    @property
    def sessions(self) -> Mapping[bytes, Session]:
        """Peers that greeted, the one heard of last at the end; at most SESSIONS_MAX."""
        return self._sessions

    def receive(self) -> Request | None:
        """The next request of a greeted peer, or None when there is nothing more to do now."""
        self._tend_in_time()
        for _ in range(UNANSWERED_PER_TURN):
            if self._draining and not self._drain():
                return None
            try:
                peer = self._next_sender()
            except zmq.Again:
                if self.has_more():
                    continue
                self.emptied()
                return None
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            request = self.meet(peer, [frame.bytes], frame, more=frame.more)
            if request is not None:
                return request
        return None

    def _next_sender(self) -> bytes:
        """Of the next message, the rest of which is still in the socket. Raises zmq.Again.

        Requests that a dropped peer left are thrown away, LEFT_PER_TURN at a time.
        """
        peer = self._socket.recv(zmq.NOBLOCK)
        for _ in range(LEFT_PER_TURN if peer in self._dropped else 0):
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            while frame.more:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            peer = self._socket.recv(zmq.NOBLOCK)
            if peer not in self._dropped:
                break
        return peer

    def begin(self) -> int:
        """The address of the socket for a kernel that receives in place of `receive`, valid for this cycle.

        0 while there is nothing to be received. What the kernel does not understand goes to `meet`.
        """
        self._tend_in_time()
        return 0 if self._draining and not self._drain() else self.address

    @property
    def address(self) -> int:
        """The address of libzmq's own socket, valid until the next `tend`."""
        return int(self._socket.underlying)

    def has_more(self) -> bool:
        """After nothing was received: whether a new peer was authenticated meanwhile, so that there may be more."""
        return self._curve is not None and self._curve.answer()

    def meet(self, peer: bytes, parts: list[Buffer], frame: ReceivedPart, *, more: bool = False) -> Request | None:
        """The request in a received message, if its peer has greeted; a stranger is answered here.

        `frame` is the first part.

        With `more` the rest of the message is still in the socket.
        """
        if more and not self._receive_rest(parts):
            self._evict_and_cut(peer, frame)
            self._draining = True
            return None
        if peer in self._dropped:
            return None
        session = None if kind_of(parts[0]) == Kind.GREETING else self.greeted(peer, map(len, parts))
        if session is None:
            self._answer_stranger(peer, parts, frame)
            return None
        return Request(peer, session, parts, frame)

    def greeted(self, peer: bytes, sizes: Iterable[int]) -> Session | None:
        """The session of a peer of which a message with parts of these sizes was taken just now."""
        session = self._sessions.get(peer)
        if session is None:
            return None
        self._sessions.move_to_end(peer)
        if session.connection is not None:
            session.connection.taken += size_on_the_wire(sizes, self._curve is not None)
        return session

    def emptied(self) -> None:
        """Notes that the socket is empty: nothing is left of peers that have gone some time ago."""
        if self.unheard:
            self._shares.leftovers = False
            until = time.monotonic() - DROPPED_S
            self._dropped = {peer: since for peer, since in self._dropped.items() if since > until}
            self._vanished = {peer: since for peer, since in self._vanished.items() if since > until}
            self._list_unheard()

    def _list_unheard(self) -> None:
        self.unheard = (*self._dropped, *self._vanished)

    def handle_ended(self) -> None:
        """Handles the peers that were cut for exceeding their share, and those that left."""
        shares = self._shares
        while shares.cut:
            connection, why = shares.cut.popleft()
            log.warning("%s is cut off: %s", connection.who, why)
            self._counted()
            self._drop_rest(connection)
        while shares.left:
            connection = shares.left.popleft()
            if connection.is_cut:
                self._drop_rest(connection)
            elif connection.name and self._is_on(connection):
                self._vanished[connection.peer] = time.monotonic()
                self._list_unheard()

    def _is_on(self, connection: Connection) -> bool:
        """Whether its peer has not greeted on another one since."""
        session = self._sessions.get(connection.peer)
        return session is None or session.connection is connection

    def _drop_rest(self, connection: Connection) -> None:
        if connection.peer and self._is_on(connection):
            self._drop(connection.peer)

    def _drop(self, peer: bytes) -> None:
        self._sessions.pop(peer, None)
        self._dropped[peer] = time.monotonic()
        self._shares.leftovers = True
        self._list_unheard()

    def send(self, peer: bytes, parts: Sequence[Buffer], copy: bool = True) -> Sent:
        """Sends one message. With `copy` False large parts are sent from where they stand: keep them unchanged.

        That a full peer is gone, a server notices only while it goes on to `receive`.
        """
        session = self._sessions.get(peer)
        sent = self._send(peer, parts, copy)
        if session is not None and session.connection is not None and sent is Sent.SENT:
            size = sum(map(len, parts))
            session.connection.handed += size
            session.connection.copied += size if copy else 0
        return sent

    def _send(self, peer: bytes, parts: Sequence[Buffer], copy: bool = True) -> Sent:
        send = self._socket.send
        try:
            send(peer, _MORE)  # whatever stands in the way shows here, before anything is sent
            for part in parts[:-1]:
                send(part, _MORE, copy)
            send(parts[-1], _LAST, copy)
        except zmq.Again:
            return Sent.PAUSED
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._sessions.pop(peer, None)
            return Sent.GONE
        return Sent.SENT

    def evict(self, peer: bytes) -> None:
        """Forgets the peer's session: it must greet again before its next request."""
        self._sessions.pop(peer, None)

    def cut(self, peer: bytes) -> None:
        """Ends the connection on which a peer greeted, so that ZeroMQ frees what it keeps for it.

        A peer that names itself may have come back on another: then it only has to greet again.
        """
        session = self._sessions.pop(peer, None)
        if session is not None and session.connection is not None and session.connection.cut():
            self._drop(peer)

    def cut_unread(self, peer: bytes) -> None:
        """Cuts a peer that does not read its answers (H20)."""
        session = self._sessions.get(peer)
        if session is not None and session.connection is not None:
            log.warning("%s is cut off: it does not read its answers", session.connection.who)
            self._counted()
        self.cut(peer)

    def drop(self, request: Request) -> None:
        """Cuts the connection of a request that was just received and cannot be understood."""
        self._evict_and_cut(request.peer, request.frame)

    def refuse(self, request: Request, refused: LinkRefused) -> None:
        """Ends a peer's session with the reason: it has to greet again before anything else.

        Its connection is left to it, as ZeroMQ would lose the words together with that.
        """
        self._sessions.pop(request.peer, None)
        if self._send(request.peer, encode_refusal(refused)) is not Sent.SENT:
            self.drop(request)

    def tend(self) -> None:
        """Once a second: cuts every peer when the process holds too much memory.

        The `sockets` may be others afterwards.
        """
        now = time.monotonic()
        if now < self._tend_at:
            return
        if self._unbound:
            self._bind_again(now)
            return
        self._tend_at = now + TEND_S
        if self._curve is not None:
            for _ in range(UNANSWERED_PER_TURN):  # requests that never end must not keep new peers out
                if not self._curve.answer():
                    break
        if self._cut:
            trim_memory()
            self._cut = False
        held, memory_max = anonymous_bytes(), self._shares.memory_max
        if held <= memory_max:
            return
        log.error("%d bytes of memory where %d are allowed: every peer is cut off, may come again", held, memory_max)
        self._cut = True
        self._sessions.clear()
        self._dropped.clear()
        self._vanished.clear()
        self._list_unheard()
        self._draining = False
        self._shares.close()
        close_socket(self._socket)
        self._make_socket()
        self._unbound = True
        self._bind_again(now)

    def _tend_in_time(self) -> None:
        """Whoever is busy does not poll."""
        if self._shares.cut or self._shares.left:
            self.handle_ended()
        if time.monotonic() >= self._tend_at:
            self.tend()

    def close(self) -> None:
        self._sessions.clear()
        self._shares.close()
        close_socket(self._socket)
        if self._curve is not None:
            self._curve.close()

    def _make_socket(self) -> None:
        self._socket: Socket = self._context.socket(zmq.ROUTER)
        set_common(self._socket, *self._limits)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)  # an answer that cannot be delivered is an error, never dropped
        self._socket.set(zmq.ROUTER_HANDOVER, 0)  # nobody takes over another's identity
        self._socket.set(zmq.BACKLOG, BACKLOG)
        self._shares = PeerShares(self._socket)

    def _bind_all(self, endpoints: Sequence[str]) -> list[str]:
        """libzmq takes the options as they stand at each bind: local sockets first, then the lock."""
        bound = {endpoint: self._bind(endpoint) for endpoint in endpoints if parse(endpoint).scheme == "ipc"}
        if self._curve is not None:
            self._curve.protect(self._socket)
        bound |= {endpoint: self._bind(endpoint) for endpoint in endpoints if endpoint not in bound}
        return [bound[endpoint] for endpoint in endpoints]

    def _bind_again(self, now: float) -> None:
        """On another socket where it fails: libzmq frees an address a moment after its socket was closed."""
        try:
            self._bind_all(self.endpoints)
            self._unbound = False
        except OSError:
            self._shares.close()
            close_socket(self._socket)
            self._make_socket()
            self._tend_at = now + AGAIN_S

    def _bind(self, text: str) -> str:
        endpoint = parse(text)
        if endpoint.scheme == "ipc":
            _unlink_stale(endpoint)
        within = endpoint.is_local and endpoint.scheme == "tcp"
        self._socket.set(zmq.SNDBUF, LOOPBACK_SEND_BUFFER if within else SYSTEM_CHOOSES)
        try:
            self._socket.bind(str(endpoint))
        except zmq.ZMQError as error:
            number = error.errno or 0
            raise OSError(number, zmq.strerror(number), str(endpoint)) from None
        bound = self._socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return bound.rstrip(b"\0").decode()

    def _receive_rest(self, parts: list[Buffer]) -> bool:
        """Adds the other parts of a message, or False when there are more than PARTS_MAX."""
        while len(parts) < PARTS_MAX:
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            parts.append(frame.buffer)
            if not frame.more:
                return True
        return False

    def _drain(self) -> bool:
        """Throws the rest of a flood away, DRAINED_PER_TURN parts at a time. True when a new message comes next."""
        for _ in range(DRAINED_PER_TURN):
            if not self._socket.recv(zmq.NOBLOCK, copy=False).more:
                self._draining = False
                return True
        return False

    def _answer_stranger(self, peer: bytes, parts: list[Buffer], frame: ReceivedPart) -> None:
        connection = self._connection_of(frame)
        if connection is None or connection.is_cut or not self._belongs_to(connection, peer):
            self._drop(peer)  # it has gone, and this is what it left
            return
        connection.taken += size_on_the_wire(map(len, parts), self._curve is not None)
        if kind_of(parts[0]) != Kind.GREETING:
            if self._strays(connection):
                return
            refused = LinkRefused(NOT_GREETED, "a request came before a greeting; the server may have been restarted")
            self._send(peer, encode_refusal(refused))
            return
        facts: Mapping[str, Any] = {}
        try:
            greeting = parse_greeting(parts)
            facts = greeting.facts
            compare(facts, self._own)
            welcome = {**self._own, **self._greet(greeting.facts)}
        except MalformedFrame as error:
            refused = LinkRefused(MALFORMED, error.describe())
            self._refused(facts, refused)
            self._send(peer, encode_refusal(refused))
            return
        except LinkRefused as refused:
            self._refused(facts, refused)
            self._sessions.pop(peer, None)
            self._send(peer, encode_refusal(refused))
            return
        if self._vanished.pop(peer, None) is not None:  # a name of its own, on another connection
            self._list_unheard()
        connection.name = f"{facts.get('role')} {facts.get('name')!r}"[:NAME_MAX]
        self._sessions[peer] = Session(peer, greeting.version, greeting.facts, connection)
        self._sessions.move_to_end(peer)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        self._send(peer, encode_welcome(greeting.version, welcome))

    def _belongs_to(self, connection: Connection, peer: bytes) -> bool:
        """Whether this is the peer of that connection. Two names came on one descriptor: it was another connection's
        before, of whose peer something is left. Names that ZeroMQ gives are counted up."""
        known = connection.peer
        if known not in (b"", peer):
            if peer[:1] == known[:1] == _GIVEN and _number(peer) < _number(known):
                return False
            self._drop(known)
        connection.peer = peer
        return True

    def _strays(self, connection: Connection) -> bool:
        """Whether a peer goes on without a greeting, and is cut for it: an answer to each costs more than it does."""
        connection.strays += 1
        if connection.strays <= STRAYS_MAX:
            return False
        log.warning("%s is cut off: it sends requests and does not greet", connection.who)
        self._counted()
        connection.cut()
        self._drop_rest(connection)
        return True

    def _evict_and_cut(self, peer: bytes, frame: ReceivedPart) -> None:
        """ZeroMQ cannot disconnect one peer of a ROUTER, but names the descriptor a frame came from."""
        self._sessions.pop(peer, None)
        connection = self._connection_of(frame)
        if connection is not None:
            connection.peer = peer
            connection.cut()
            self._drop_rest(connection)

    def _connection_of(self, frame: ReceivedPart) -> Connection | None:
        """None when it is gone already."""
        try:
            return self._shares.find(int(frame.get(zmq.SRCFD)))
        except zmq.ZMQError:
            return None


def _number(name: bytes) -> int:
    return int.from_bytes(name[1:], "big")


def _unlink_stale(endpoint: Endpoint) -> None:
    """Removes the socket file of a process that died. Raises OSError for any other file, which libzmq would remove."""
    path = Path(endpoint.path)
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "a file that is no socket is there", str(endpoint))
        path.unlink()
    except FileNotFoundError:
        return
