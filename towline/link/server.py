"""The side of a link that binds: one ROUTER socket for any number of peers, which greet before they ask.

Nothing here waits. A peer that cannot take an answer is PAUSED or GONE, and the caller decides (H20).
"""

import os
import socket as sockets
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import zmq

from towline.errors import LinkRefused, MalformedFrame
from towline.format.frames import Buffer, Kind, kind_of
from towline.limits import FRAME_SIZE_MAX, LINK_HIGH_WATER, PARTS_MAX, SESSIONS_MAX

from .context import Context, Socket
from .endpoints import parse
from .greeting import MALFORMED, NOT_GREETED, encode_refusal, encode_welcome, read_greeting
from .options import set_common

BACKLOG: Final = 256
UNANSWERED_PER_TURN: Final = 64  # greetings, refusals and strays dealt with in one `receive`
DRAINED_PER_TURN: Final = 1_024  # parts of a flood thrown away in one `receive`
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
    """A peer that greeted: the facts it stated and the protocol version agreed on."""

    peer: bytes
    version: int
    facts: dict[str, Any]


@dataclass(slots=True)
class Request:
    """One message of a greeted peer. `parts[0]` is the head as bytes; the others are views of ZeroMQ's own buffers."""

    peer: bytes
    session: Session
    parts: list[Buffer]
    frame: zmq.Frame  # the head as it came, for `drop`


def welcome_all(_: dict[str, Any]) -> Mapping[str, Any]:
    return {}


class Server:
    """Binds `endpoints` (port 0 lets the kernel choose) and answers greetings.

    `own` are this side's facts (role, cluster, store, name), compared with the peer's and sent in every welcome.
    `greet` gets the facts of a peer that passed, and returns more facts for its welcome or raises LinkRefused.
    Raises InvalidEndpoint, and OSError when an address is taken.
    """

    def __init__(
        self,
        context: Context,
        endpoints: Sequence[str],
        *,
        own: Mapping[str, Any],
        greet: Greet = welcome_all,
        frame_size_max: int = FRAME_SIZE_MAX,
        high_water: int = LINK_HIGH_WATER,
    ) -> None:
        self._own = dict(own)
        self._greet = greet
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._draining = False
        self._socket: Socket = context.socket(zmq.ROUTER)
        set_common(self._socket, frame_size_max, high_water)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)  # an answer that cannot be delivered is an error, never dropped
        self._socket.set(zmq.ROUTER_HANDOVER, 0)  # nobody takes over another's identity
        self._socket.set(zmq.BACKLOG, BACKLOG)
        try:
            self.endpoints = [self._bind(endpoint) for endpoint in endpoints]
        except BaseException:
            self._socket.close(linger=0)
            raise

    @property
    def sockets(self) -> tuple[Socket, ...]:
        return (self._socket,)

    @property
    def sessions(self) -> Mapping[bytes, Session]:
        """Peers that greeted, the one heard of last at the end; at most SESSIONS_MAX."""
        return self._sessions

    def receive(self) -> Request | None:
        """The next request of a greeted peer, or None when there is nothing more to do now."""
        for _ in range(UNANSWERED_PER_TURN):
            if self._draining and not self._drain():
                return None
            try:
                peer = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            parts = self._parts(frame)
            if parts is None:
                self._forget_and_cut(peer, frame)
                self._draining = True
                continue
            session = self._sessions.get(peer)
            if session is not None and kind_of(parts[0]) != Kind.GREETING:
                self._sessions.move_to_end(peer)
                return Request(peer, session, parts, frame)
            self._answer_stranger(peer, parts)
        return None

    def send(self, peer: bytes, parts: Sequence[Buffer], copy: bool = True) -> Sent:
        """Sends one message. With `copy` False large parts are sent from where they stand: keep them unchanged.

        That a full peer is gone, a server notices only while it goes on to `receive`.
        """
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

    def forget(self, peer: bytes) -> None:
        """The peer must greet again before its next request."""
        self._sessions.pop(peer, None)

    def drop(self, request: Request) -> None:
        """Cuts the connection a request came on, just received: its bytes are not ours to understand."""
        self._forget_and_cut(request.peer, request.frame)

    def close(self) -> None:
        self._sessions.clear()
        self._socket.close(linger=0)

    def _bind(self, text: str) -> str:
        endpoint = parse(text)
        if endpoint.scheme == "ipc":
            _unlink_stale(Path(endpoint.path))
        try:
            self._socket.bind(str(endpoint))
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"{endpoint}: {error.strerror}") from None
        bound = self._socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return bound.rstrip(b"\0").decode()

    def _parts(self, frame: zmq.Frame) -> list[Buffer] | None:
        """The parts behind the identity, `frame` being the first, or None when there are more than PARTS_MAX."""
        parts: list[Buffer] = [frame.bytes]
        while frame.more:
            if len(parts) == PARTS_MAX:
                return None
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            parts.append(frame.buffer)
        return parts

    def _drain(self) -> bool:
        """Throws the rest of a flood away, DRAINED_PER_TURN parts at a time. True when a new message comes next."""
        for _ in range(DRAINED_PER_TURN):
            if not self._socket.recv(zmq.NOBLOCK, copy=False).more:
                self._draining = False
                return True
        return False

    def _answer_stranger(self, peer: bytes, parts: list[Buffer]) -> None:
        if kind_of(parts[0]) != Kind.GREETING:
            refused = LinkRefused(NOT_GREETED, "a request came before a greeting; the server may have been restarted")
            self.send(peer, encode_refusal(refused))
            return
        try:
            greeting = read_greeting(parts, self._own)
            welcome = {**self._own, **self._greet(greeting.facts)}
        except MalformedFrame as error:
            self.send(peer, encode_refusal(LinkRefused(MALFORMED, error.describe())))
            return
        except LinkRefused as refused:
            self._sessions.pop(peer, None)
            self.send(peer, encode_refusal(refused))
            return
        self._sessions[peer] = Session(peer, greeting.version, greeting.facts)
        self._sessions.move_to_end(peer)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        self.send(peer, encode_welcome(greeting.version, welcome))

    def _forget_and_cut(self, peer: bytes, frame: zmq.Frame) -> None:
        """ZeroMQ cannot disconnect one peer of a ROUTER, but tells the descriptor a frame came from."""
        self._sessions.pop(peer, None)
        try:
            with sockets.socket(fileno=os.dup(int(frame.get(zmq.SRCFD)))) as connection:
                connection.shutdown(sockets.SHUT_RDWR)
        except (OSError, zmq.ZMQError):
            return  # it is gone already


def _unlink_stale(path: Path) -> None:
    """Removes the socket file of a process that died. Nothing else is ever removed."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    except FileNotFoundError:
        return
