"""The connecting side of a link over a node's remoting port: TCP, plain or with TLS, used on the caller's thread.

A port of ZeroMQ's says so by its first byte, before it is asked anything (RFC 23): it is for other nodes.
"""

import contextlib
import errno
import selectors
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import zmq

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.remoting.wire_message import HEAD_SIZE, decode_message, encode_message, message_size
from towline.format.wire.frames import Buffer, Kind, kind_of
from towline.limits import KIB, MIB

from .dealer import MUTE, NOBODY, SILENCE
from .endpoints import parse
from .handshake import NOT_GREETED, encode_greeting, read_refusal, read_welcome
from .keys import Key
from .poller import Writing
from .signature import sign
from .tls import SHAKE_S, TLS_REFUSED, ClientTls, TlsRefused
from .wire import watch_sources

READ_SIZE: Final = 64 * KIB  # read at once; a longer message is read into memory of its own
OUT_MAX: Final = 16 * MIB  # bytes that wait for the node to take them: beyond it a send fails
BROKEN_OFF: Final = "what listens there breaks the connection off"
FOR_NODES: Final = "what listens there speaks ZeroMQ, as nodes do with each other: clients come to its listen_port"
PARTS_AT_ONCE: Final = 64  # of one sendmsg
JOINED_MAX: Final = 64 * KIB  # bytes of a message that TLS gets at once
PROBE_S: Final = 2  # a node that vanished without closing is noticed: after so many idle seconds it is asked,
PROBES: Final = 4  # this many times
_ZEROMQ: Final = 0xFF


class TcpLink:
    """A connection to a node's remoting port. Used by one thread at a time.

    `facts` say who we are (see `handshake`). `try_greet` comes first; after it `send` and `receive` never wait.
    """

    def __init__(self, endpoint: str, facts: Mapping[str, Any], *, key: Key | None = None) -> None:
        """Begins to connect; the greeting is signed with a `key`. Raises InvalidEndpoint."""
        parsed = parse(endpoint)
        self.endpoint = str(parsed)
        self._facts = dict(facts) if key is None else sign(facts, key)
        self._given = facts
        self.greeted_at = 0.0  # monotonic seconds
        self.own_port = 0
        self._connected = self._greeted = self._heard = self._lost = False
        self._trouble = SILENCE
        self._out: deque[memoryview] = deque()
        self._out_size = 0
        self._in = memoryview(bytearray(READ_SIZE))
        self._begin = self._end = 0  # of what is in `_in`
        self._large: memoryview | None = None  # a long message, and how much of it is there
        self._filled = 0
        self._tls = ClientTls.begun(parsed, key)
        self._shaken = self._tls is None
        self._shake_until = 0.0
        self._failed: OSError | None = None  # why the connection was lost
        self._addresses = self._resolve(parsed.host, parsed.port)
        self._socket = self._connect()

    @property
    def takes_turns(self) -> bool:
        return True

    @property
    def sockets(self) -> tuple[int | Writing, ...]:
        if self._socket is None:
            return ()
        descriptor = self._socket.fileno()
        return (Writing(descriptor) if self._out else descriptor,)

    @property
    def lost(self) -> bool:
        """Whether the connection broke, or the node does not know us any more. It never becomes False again."""
        return self._lost

    @property
    def has_ended(self) -> bool:
        """Whether the node has closed the connection. Any thread may ask: nothing is taken from the socket."""
        if self._lost or self._socket is None:
            return self._lost
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    @property
    def refused(self) -> bool:
        """Whether nobody listens there."""
        return self._socket is None

    @property
    def trouble(self) -> str:
        """The reason why there is no welcome yet, as far as is known."""
        return "it does not answer our greeting" if self._greeted else self._trouble

    def try_greet(self) -> dict[str, Any] | None:
        """Connects and greets, without waiting: the node's facts, None while there is no welcome.

        Raises LinkRefused (both sides' values are in its sentence), NoAnswer.
        """
        if not self._connected:
            self._finish_connecting()
        if self._connected and not self._shaken:
            self._shake()
        if self._connected and self._shaken and not self._greeted:
            self.greeted_at = time.monotonic()
            self._greeted = self.send(encode_greeting(self._facts))
            if self._lost:
                self._break_off(BROKEN_OFF)
        if not self._greeted:
            return None
        try:
            parts = self._next_message()
        except MalformedFrame as error:
            self._lost = True
            raise NoAnswer(self.endpoint, 0, f"what listens there is no Towline node: {error.describe()}") from None
        if parts is not None:
            return self._read_welcome(parts)
        if self._lost:
            self._greeted = False
            self._break_off(BROKEN_OFF)
        return None

    def send(self, parts: Sequence[Buffer], copy: bool = True) -> bool:
        """Sends a message; False, and nothing is sent, when too much waits already or the connection is gone.

        With `copy` False the parts are to stay as they are until they are sent.
        """
        if self._lost or self._out_size > OUT_MAX:
            return False
        encoded = encode_message(parts, from_node=False)
        if self._tls is None and not self._out and sum(map(len, encoded)) <= READ_SIZE:
            return self._send_at_once(b"".join(encoded))
        if self._tls is None:
            for part in encoded:
                self._queue(part)
        else:
            self._encrypt(self._tls, encoded)
        self._flush()
        if self._out and copy and self._tls is None:
            self._copy_last(len(encoded))
        return not self._lost

    def _copy_last(self, count: int) -> None:
        """Copies what waits of the `count` parts that were queued last: those before them are copies already."""
        for at in range(max(0, len(self._out) - count), len(self._out)):
            self._out[at] = memoryview(bytes(self._out[at]))

    def _send_at_once(self, data: bytes) -> bool:
        """Sends a short message while nothing waits."""
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost = True
            return False
        if sent < len(data):
            self._queue(memoryview(data)[sent:])
        return True

    def receive(self) -> list[Buffer] | None:
        """The parts of the next message, the head as bytes and the others as views; None when there is none.

        Raises LinkRefused when the node ends the link for a reason, MalformedFrame for what is no message; a node that
        merely forgot us makes it `lost`.
        """
        if self._out:
            self._flush()
        parts = None if self._lost else self._next_message()
        if parts is None or kind_of(parts[0]) != Kind.REFUSAL:
            return parts
        refused = read_refusal(parts)
        self._lost = True
        if refused.code == NOT_GREETED:
            return None
        raise refused

    def tend(self) -> None:
        """Sends what waits, as far as the node takes it."""
        if self._out:
            self._flush()

    def watch(self, poller: zmq.Poller) -> None:
        """Registers what wakes a link that is being greeted."""
        if self._socket is not None:
            descriptor = self._socket.fileno()
            watch_sources(poller, (Writing(descriptor) if not self._connected or self._out else descriptor,))

    def close(self, linger_ms: int = 0) -> None:
        """Closes the link at once."""
        if self._socket is not None:
            if self._tls is not None and self._shaken and not self._lost and not self._out:
                self._tls.end()
                self._say_tls()
            self._socket.close()

    # --- connecting

    def _resolve(self, host: str, port: int) -> deque[tuple[Any, ...]]:
        try:
            return deque(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            self._trouble = f"the host {host!r} has no address: {error.strerror or error}"
            return deque()

    def _connect(self) -> socket.socket | None:
        """Begins to connect to the next address; None where there is none that does not fail at once."""
        while self._addresses:
            family, kind, number, _, address = self._addresses.popleft()
            with contextlib.suppress(OSError):
                made = socket.socket(family, kind, number)
                made.setblocking(False)
                failed = made.connect_ex(address)
                if failed in (0, errno.EINPROGRESS):
                    return made
                self._note(failed)
                made.close()
        return None

    def _note(self, failed: int) -> None:
        self._trouble = NOBODY if failed == errno.ECONNREFUSED else SILENCE

    def _finish_connecting(self) -> None:
        """Raises NoAnswer where no address is left."""
        if self._socket is None:
            raise NoAnswer(self.endpoint, 0, self._trouble)
        if not _is_writable(self._socket):
            return
        failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self._note(failed)
            self._socket.close()
            self._socket = self._connect()
            return
        self._connected, self._trouble = True, MUTE
        self._shake_until = time.monotonic() + SHAKE_S
        self.own_port = int(self._socket.getsockname()[1])
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _probe(self._socket)

    def _shake(self) -> None:
        """Goes on with TLS. Raises TlsRefused, NoAnswer."""
        assert self._tls is not None
        assert self._socket is not None
        self._trouble = "what listens there does not go on with TLS"
        self._flush()
        try:
            self._shaken = not self._lost and self._tls.shake(self._socket)
        except OSError as error:
            self._lost, self._failed = True, error
        self._say_tls()
        if self._lost:
            self._break_off("what listens there breaks TLS off before it has begun")
        if not self._shaken and time.monotonic() > self._shake_until:
            self._lost = True
            raise NoAnswer(self.endpoint, 0, f"{self._trouble}, for {SHAKE_S:.0f} s")

    def _break_off(self, trouble: str) -> NoReturn:
        """Raises TlsRefused where TLS says why, else NoAnswer."""
        refused = None if self._tls is None or self._failed is None else self._tls.refusal(self._failed)
        raise refused or NoAnswer(self.endpoint, 0, trouble)

    def _read_welcome(self, parts: list[Buffer]) -> dict[str, Any]:
        try:
            return read_welcome(parts, self._given).facts
        except LinkRefused as refused:
            self._lost = True
            raise (TlsRefused(*refused.args) if refused.code == TLS_REFUSED else refused) from None
        except MalformedFrame as error:
            self._lost = True
            raise NoAnswer(self.endpoint, 0, f"what listens there is no Towline node: {error.describe()}") from None

    # --- bytes

    def _queue(self, data: Buffer) -> None:
        self._out.append(memoryview(data).cast("B"))
        self._out_size += len(data)

    def _encrypt(self, tls: ClientTls, parts: Sequence[Buffer]) -> None:
        """Queues them; small ones become one record of TLS."""
        whole = sum(map(len, parts)) <= JOINED_MAX
        try:
            for part in (b"".join(parts),) if whole else parts:
                tls.encrypt(part)
        except OSError as error:
            self._lost, self._failed = True, error
            return
        self._queue(tls.outgoing())

    def _say_tls(self) -> None:
        """Sends what TLS has to say by itself: also when the connection is lost, since an alert says why."""
        said = b"" if self._tls is None else self._tls.outgoing()
        if not said:
            return
        if self._lost:
            with contextlib.suppress(OSError):
                if self._socket is not None and not self._out:
                    self._socket.send(said)
        else:
            self._queue(said)
            self._flush()

    def _flush(self) -> None:
        assert self._socket is not None
        while self._out and not self._lost:
            try:
                sent = self._socket.sendmsg([self._out[at] for at in range(min(PARTS_AT_ONCE, len(self._out)))])
            except BlockingIOError:
                return
            except OSError:
                self._lost = True
                return
            self._out_size -= sent
            while sent:
                first = self._out[0]
                if sent < len(first):
                    self._out[0] = first[sent:]
                    break
                sent -= len(first)
                self._out.popleft()

    def _next_message(self) -> list[Buffer] | None:
        """Raises MalformedFrame; NoAnswer at a port for nodes."""
        while True:
            if self._large is not None:
                if self._filled == len(self._large):
                    whole, self._large = self._large, None
                    return decode_message(whole[HEAD_SIZE:])
            elif self._end > self._begin:
                size = self._measure()
                if 0 < size <= self._end - self._begin:
                    body = bytes(self._in[self._begin + HEAD_SIZE : self._begin + size])
                    self._begin += size
                    return decode_message(body)
                self._make_room(size)
            if not self._read():
                return None

    def _measure(self) -> int:
        came = self._in[self._begin : self._end]
        if self._tls is None and not self._heard and came[0] == _ZEROMQ:
            self._lost = True
            raise NoAnswer(self.endpoint, 0, FOR_NODES)
        size = message_size(came)
        self._heard = self._heard or size > 0
        return size

    def _make_room(self, size: int) -> None:
        """For the rest of a message of `size` bytes, 0 where that is not known yet."""
        came = self._in[self._begin : self._end]
        if size > READ_SIZE:
            self._large = np.empty(size, np.uint8).data
            self._large[: len(came)] = came
            self._filled = len(came)
            self._begin = self._end = 0
        elif self._begin:
            count = len(came)
            self._in[:count] = bytes(came)
            self._begin, self._end = 0, count

    def _read(self) -> bool:
        """Reads what has come; False where that is nothing."""
        assert self._socket is not None
        large = self._large
        if large is None and self._begin == self._end:
            self._begin = self._end = 0
        room = self._in[self._end :] if large is None else large[self._filled :]
        try:
            count = self._socket.recv_into(room) if self._tls is None else self._tls.recv_into(self._socket, room)
        except BlockingIOError:
            count = -1
        except OSError as error:
            count, self._failed = 0, error
        self._lost = self._lost or count == 0
        if self._tls is not None:
            self._say_tls()
        if count <= 0:
            return False
        if large is None:
            self._end += count
        else:
            self._filled += count
        return True


def _is_writable(sock: socket.socket) -> bool:
    """By epoll or the like where the system has it: select() refuses descriptors from 1024 on."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_WRITE)
        return bool(selector.select(0))


def _probe(sock: socket.socket) -> None:
    """Has the system notice a peer that vanished."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", PROBE_S), ("TCP_KEEPINTVL", PROBE_S), ("TCP_KEEPCNT", PROBES)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
