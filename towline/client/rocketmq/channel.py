"""One TCP connection to a name server or broker: commands out, commands in, without waiting for either."""

import contextlib
import errno
import os
import socket
import ssl
from collections import deque
from dataclasses import replace
from typing import Final

from towline.errors import MalformedFrame
from towline.format.remoting.command import Command, decode, encode, frame_size
from towline.format.remoting.signing import signed
from towline.link.poller import Writing

from .endpoint import Credentials

READ_BYTES: Final = 256 * 1024
TURN_BYTES: Final = 8 << 20  # read in one turn at most
OUT_MAX: Final = 64 << 20  # bytes that wait to be written
_UNDER_WAY: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Channel:
    """Used by one thread. `trouble` says why it is of no use any more, "" while it is."""

    def __init__(
        self,
        host: str,
        port: int,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.trouble = ""
        self.is_open = False  # connected, and greeted where it is TLS
        self._credentials, self._tls = credentials, tls
        self._came = bytearray()
        self._commands: deque[Command] = deque()
        self._out: deque[memoryview] = deque()
        self._waiting = 0
        self._writes = True  # whether there is something to do when there is room
        self._connected = False
        self._socket: socket.socket | None = None
        try:
            family, kind, number, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            made = socket.socket(family, kind, number)
        except OSError as error:
            self.trouble = str(error)
            return
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex(place)
        self._socket = made
        if code not in _UNDER_WAY:
            self._end(os.strerror(code))

    @property
    def source(self) -> int | Writing | None:
        """What to wait for before the next `turn`; None where there is nothing any more."""
        if self._socket is None:
            return None
        descriptor = self._socket.fileno()
        return Writing(descriptor) if self._writes else descriptor

    @property
    def own_port(self) -> int:
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    @property
    def has_room(self) -> bool:
        """Whether more may be sent."""
        return not self.trouble and self._waiting < OUT_MAX

    def send(self, command: Command) -> None:
        """Takes a command on its way. Raises MalformedFrame for one that is too large."""
        if self._credentials is not None:
            given = self._credentials
            fields = signed(command, given.access_key, given.secret_key)
            command = replace(command, fields=fields)
        for part in encode(command):
            self._out.append(memoryview(part))
            self._waiting += len(part)
        if self.is_open:
            self._write()

    def turn(self) -> list[Command]:
        """Writes and reads what can be; the commands that came."""
        if not self.is_open and not self.trouble:
            self._open()
        if self.is_open:
            self._write()
            self._read()
        found = list(self._commands)
        self._commands.clear()
        return found

    def close(self) -> None:
        self._end("it was closed")

    # --- inside

    def _open(self) -> None:
        made = self._socket
        assert made is not None
        try:
            if not self._connected:
                code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    self._end(os.strerror(code))
                    return
                with contextlib.suppress(OSError):
                    made.getpeername()
                    self._connected = True
                if not self._connected:
                    return
                if self._tls is not None:
                    self._socket = made = self._tls.wrap_socket(made, do_handshake_on_connect=False)
            if isinstance(made, ssl.SSLSocket):
                made.do_handshake()
        except ssl.SSLWantWriteError:
            self._writes = True
        except _AGAIN:
            self._writes = False
        except OSError as error:
            self._end(str(error))
        else:
            self.is_open = True

    def _write(self) -> None:
        made = self._socket
        assert made is not None
        try:
            while self._out:
                sent = made.send(self._out[0])
                self._waiting -= sent
                self._out[0] = self._out[0][sent:]
                if not self._out[0]:
                    self._out.popleft()
        except _AGAIN:
            pass
        except OSError as error:
            self._end(str(error))
            return
        self._writes = bool(self._out)

    def _read(self) -> None:
        made, count = self._socket, 0
        if made is None:
            return
        try:
            while count < TURN_BYTES:
                data = made.recv(READ_BYTES)
                if not data:
                    self._end("the other side has closed the connection")
                    break
                self._came += data
                count += len(data)
                if len(data) < READ_BYTES and not isinstance(made, ssl.SSLSocket):
                    break
        except _AGAIN:
            pass
        except OSError as error:
            self._end(str(error))
        try:
            self._parse()
        except MalformedFrame as error:
            self._end(error.describe())

    def _parse(self) -> None:
        at = 0
        while (size := frame_size(self._came, at)) and at + size <= len(self._came):
            self._commands.append(decode(bytes(memoryview(self._came)[at : at + size])))
            at += size
        if at:
            del self._came[:at]

    def _end(self, trouble: str) -> None:
        self.trouble = self.trouble or trouble
        self.is_open = False
        made, self._socket = self._socket, None
        if made is not None:
            made.close()
