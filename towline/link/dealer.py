"""The connecting side of a link: one DEALER socket for one endpoint.

A link lives as long as one connection. When that is lost, the caller closes the link and makes a new one; ZeroMQ's own
reconnection is not used, because frames sent across it are lost without an error (H20).
"""

import select
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import zmq

from towline.errors import InvalidEndpoint, LinkRefused, MalformedFrame, NoAnswer
from towline.format.wire.frames import Buffer, Kind, kind_of
from towline.limits import FRAME_SIZE_MAX, LINK_HIGH_WATER, PARTS_MAX

from . import wire
from .context import Context, Socket, close_socket, new_poller, next_event, set_common
from .endpoints import parse
from .handshake import NOT_GREETED, encode_greeting, read_refusal, read_welcome
from .keys import Key

KEY_REFUSED: Final = "KEY"
NOBODY: Final = "nobody listens there"
SILENCE: Final = "the host does not even refuse a connection: it is down, or packets are lost on the way"
MUTE: Final = "whoever listens there says nothing"
RECONNECT_MS: Final = 10  # until the first connection stands
RECONNECT_MS_MAX: Final = 200
HANDSHAKE_FAILURES: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Link:
    """A connection to one server. Used by one thread.

    `facts` say who we are (see `greeting`). `greet` comes first; after it `send` and `receive` never wait.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        facts: Mapping[str, Any],
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        high_water: int = LINK_HIGH_WATER,
        key: Key | None = None,
    ) -> None:
        """Begins to connect, with a `key` where the endpoint is not local. Raises InvalidEndpoint."""
        parsed = parse(endpoint)
        if parsed.scheme not in ("ipc", "tcp"):
            raise InvalidEndpoint(endpoint, f"{parsed.scheme}:// is for clients at a remoting port, and not here")
        self.endpoint = str(parsed)
        self._facts = dict(facts)
        self._connected = False
        self._greeted = False
        self._lost = False
        self._refused = False
        self.greeted_at = 0.0  # monotonic seconds
        self.own_port = 0  # clients come over sockets of the node alone
        self._trouble = SILENCE
        self._context = context  # with it the sockets would go
        self._socket: Socket = context.socket(zmq.DEALER)
        set_common(self._socket, frame_size_max, high_water)
        self._key_refused = ""
        self._has_key = key is not None and parsed.scheme == "tcp"
        if key is not None and self._has_key:
            self._socket.set(zmq.CURVE_SERVERKEY, key.public.encode())  # nodes have one for all
            self._socket.set(zmq.CURVE_PUBLICKEY, key.public.encode())
            self._socket.set(zmq.CURVE_SECRETKEY, key.secret.encode())
        self._socket.set(zmq.IMMEDIATE, 1)  # frames are queued only for a peer that is really there
        self._socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        events = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        events |= zmq.EVENT_CONNECT_RETRIED
        self._monitor = self._socket.get_monitor_socket(int(events | HANDSHAKE_FAILURES))
        self._monitor.set(zmq.LINGER, 0)
        self._socket.connect(self.endpoint)

    @property
    def takes_turns(self) -> bool:
        return False  # a socket of ZeroMQ's is one thread's

    @property
    def sockets(self) -> tuple[Socket, ...]:
        return (self._socket, self._monitor)

    @property
    def lost(self) -> bool:
        """Whether the connection broke, or the server does not know us any more. It never becomes False again."""
        self._watch()
        return self._lost

    @property
    def has_ended(self) -> bool:
        return self._lost

    @property
    def refused(self) -> bool:
        """Whether nobody listens there now: an attempt to connect failed, and none succeeded. ZeroMQ goes on trying."""
        self._watch()
        return self._refused and not self._connected

    @property
    def trouble(self) -> str:
        """The reason why there is no welcome yet, as far as is known."""
        return "it does not answer our greeting" if self._greeted else self._trouble

    def greet(self, timeout_ms: int) -> dict[str, Any]:
        """Waits for the connection, greets, and returns the server's facts. After NoAnswer it may be called again.

        Raises LinkRefused (both sides' values are in its sentence) and NoAnswer after `timeout_ms`.
        """
        return greet(self, timeout_ms)

    def try_greet(self) -> dict[str, Any] | None:
        """Greets like `greet`, without waiting: None while there is no welcome. Raises the same.

        A key that the server does not accept is a LinkRefused too.
        """
        lost = self.lost
        if self._key_refused:
            self._lost = True
            raise LinkRefused(KEY_REFUSED, f"{self.endpoint}: {self._key_refused}")
        if lost:
            raise NoAnswer(self.endpoint, 0, "the connection broke during the greeting")
        if self._connected and not self._greeted:
            self.greeted_at = time.monotonic()
            self._greeted = self.send(encode_greeting(self._facts))
        parts = self._receive() if self._greeted else None
        return None if parts is None else self._read_welcome(parts)

    def send(self, parts: Sequence[Buffer], copy: bool = True) -> bool:
        """Sends a message; False, and nothing is sent, when the peer's queue is full or the connection is gone."""
        if self._lost:
            return False
        try:
            self._socket.send_multipart(parts, zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[Buffer] | None:
        """The parts of the next message, the head as bytes and the others as views; None when there is none.

        Raises LinkRefused when the server ends the link for a reason; a server that merely forgot us makes it `lost`.
        """
        parts = self._receive()
        if parts is None:
            self._watch()
            return None
        if kind_of(parts[0]) != Kind.REFUSAL:
            return parts
        refused = read_refusal(parts)
        self._lost = True
        if refused.code == NOT_GREETED:
            return None
        raise refused

    def tend(self) -> None:
        return

    def close(self, linger_ms: int = 0) -> None:
        """Closes the link; frames sent last may still leave within `linger_ms`."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        close_socket(self._socket, linger_ms)

    def _receive(self) -> list[Buffer] | None:
        try:
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        parts: list[Buffer] = [frame.bytes]
        while frame.more:
            frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            if len(parts) < PARTS_MAX:
                parts.append(frame.buffer)
            else:
                self._lost = True  # no server of ours does this; what it sends is not read any further
        return parts

    def _read_welcome(self, parts: list[Buffer]) -> dict[str, Any]:
        try:
            return read_welcome(parts, self._facts).facts
        except LinkRefused:
            self._lost = True
            raise
        except MalformedFrame as error:
            self._lost = True
            raise NoAnswer(self.endpoint, 0, f"what listens there is no Towline server: {error.describe()}") from None

    def _watch(self) -> None:
        """Reads what ZeroMQ reports about the connection. One connection is all a link has."""
        while int(self._monitor.get(zmq.EVENTS)) & zmq.POLLIN:
            event, value = next_event(self._monitor)
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected = True
            elif event == zmq.EVENT_CONNECT_RETRIED:
                self._refused = True
                self._trouble = NOBODY if self._trouble == SILENCE else self._trouble
            elif event == zmq.EVENT_CONNECTED:
                self._trouble = MUTE if self._trouble in (SILENCE, NOBODY) else self._trouble
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._key_refused = "our key is not accepted: it is not the one of the nodes there"
            elif event & HANDSHAKE_FAILURES and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
                ours = (
                    "no key is wanted there, and we show one"
                    if self._has_key
                    else "the nodes' own key is wanted: set keys_dir"
                )
                self._key_refused = f"one side uses keys (CURVE) and the other does not; {ours}"
            elif event & HANDSHAKE_FAILURES:
                self._trouble = "what listens there does not speak ZeroMQ"
            elif self._connected:
                self._lost = True
            elif event == zmq.EVENT_DISCONNECTED:
                keyed = ", or our key is for other nodes" if self._has_key else ""
                self._trouble = f"what listens there breaks the connection off{keyed}"

    def watch(self, poller: zmq.Poller) -> None:
        """Registers what wakes a link that is being greeted."""
        writable = self._connected and not self._greeted
        poller.register(self._socket, int(zmq.POLLIN | zmq.POLLOUT) if writable else int(zmq.POLLIN))
        poller.register(self._monitor, zmq.POLLIN)


def greet(link: wire.Link, timeout_ms: int) -> dict[str, Any]:
    """Waits until a link is greeted; the server's facts. Raises LinkRefused, and NoAnswer after `timeout_ms`."""
    deadline = time.monotonic() + timeout_ms / 1000
    while (welcome := link.try_greet()) is None:
        remaining_ms = int((deadline - time.monotonic()) * 1000) + 1
        if remaining_ms <= 0:
            raise NoAnswer(link.endpoint, timeout_ms, link.trouble)
        await_any((link,), remaining_ms)
    return welcome


def await_any(links: Iterable[wire.Link], timeout_ms: int) -> None:
    """Waits until one of these links, which are being greeted, can go on; without any link it waits all the same.

    A link that was refused has nothing to wait for, and goes on at once: it says so.
    """
    greeted = tuple(links)
    if not greeted:  # pyzmq would not wait at all, and who searches for a node that is down would spin
        select.select([], [], [], timeout_ms / 1000)
        return
    poller = new_poller()
    for link in greeted:
        link.watch(poller)
    poller.poll(timeout_ms)
