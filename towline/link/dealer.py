"""The side of a link that connects: one DEALER for one endpoint.

A link lives as long as one connection. When that is lost, the caller closes the link and makes a new one; ZeroMQ's own
reconnection is not used, because frames sent across it vanish without a word (H20).
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.frames import Buffer, Kind, kind_of
from towline.limits import FRAME_SIZE_MAX, LINK_HIGH_WATER, PARTS_MAX

from .context import Context, Socket
from .endpoints import parse
from .greeting import NOT_GREETED, encode_greeting, read_refusal, read_welcome
from .options import set_common

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
    ) -> None:
        """Begins to connect. Raises InvalidEndpoint."""
        self.endpoint = str(parse(endpoint))
        self._facts = dict(facts)
        self._connected = False
        self._greeted = False
        self._lost = False
        self._trouble = "nobody listens there"
        self._socket: Socket = context.socket(zmq.DEALER)
        set_common(self._socket, frame_size_max, high_water)
        self._socket.set(zmq.IMMEDIATE, 1)  # frames are queued only for a peer that is really there
        self._socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | HANDSHAKE_FAILURES
        self._monitor = self._socket.get_monitor_socket(int(events))
        self._monitor.set(zmq.LINGER, 0)
        self._socket.connect(self.endpoint)

    @property
    def sockets(self) -> tuple[Socket, ...]:
        return (self._socket, self._monitor)

    @property
    def lost(self) -> bool:
        """The connection broke, or the server does not know us any more. It never becomes False again."""
        self._watch()
        return self._lost

    def greet(self, timeout_ms: int) -> dict[str, Any]:
        """Waits for the connection, greets, and returns the server's facts. After NoAnswer it may be called again.

        Raises LinkRefused (both sides' values are in its sentence) and NoAnswer after `timeout_ms`.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.lost:
            if self._connected and not self._greeted:
                self._greeted = self.send(encode_greeting(self._facts))
            parts = self._receive() if self._greeted else None
            if parts is not None:
                return self._read_welcome(parts)
            remaining_ms = int((deadline - time.monotonic()) * 1000) + 1
            if remaining_ms <= 0:
                trouble = "it does not answer our greeting" if self._greeted else self._trouble
                raise NoAnswer(self.endpoint, timeout_ms, trouble)
            self._wait(remaining_ms, writable=self._connected and not self._greeted)
        raise NoAnswer(self.endpoint, timeout_ms, "the connection broke during the greeting")

    def send(self, parts: Sequence[Buffer], copy: bool = True) -> bool:
        """False when the peer's queue is full or the connection is gone; then nothing was sent."""
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

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

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
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected = True
            elif event & HANDSHAKE_FAILURES:
                self._trouble = "what listens there does not speak ZeroMQ"
            elif self._connected:
                self._lost = True

    def _wait(self, timeout_ms: int, *, writable: bool) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, int(zmq.POLLIN | zmq.POLLOUT) if writable else int(zmq.POLLIN))
        poller.register(self._monitor, zmq.POLLIN)
        poller.poll(timeout_ms)
