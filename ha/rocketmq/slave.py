"""One connected slave: its reports in, frames of the log out, from the page cache straight to the socket.

A frame is i8 offset, i4 size, and so many bytes of the log, which end at a segment's end at the latest; without bytes
it is a heartbeat. A frame that was begun is finished, so what a slow slave takes is what it gets next.
"""

import os
import socket
import struct
from pathlib import Path
from typing import Final

from towline.limits import KIB, MIB
from towline.log.files.segment_files import segment_name
from towline.replication.flow_control import FlowControl

from .reports import Refusal, Rule, newest

HEAD: Final = struct.Struct(">qi")
BODY_MAX: Final = 128 * KIB  # a slave has room for 4 MiB
TURN_BYTES: Final = 2 * MIB  # to one slave before it is another's turn
READ_MAX: Final = 64 * KIB
_NO_FILE: Final = -1


class Ended(Exception):
    """A slave cannot go on."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Slave:
    """A connection. Offsets are bytes of the log: `sent` the end of what is in frames, `reported` of what it has.

    Until it has reported for the first time `start` is -1, and nothing is sent.
    """

    def __init__(self, sock: socket.socket, peer: tuple[str, int], commitlog: Path, segment_size: int) -> None:
        self.sock, self.peer = sock, peer
        self.start, self.sent, self.reported = -1, 0, 0
        self.heard_ms = self.sent_ms = self.busy_ms = 0  # busy: when it was sent bytes of the log last
        self.taken_ms = 0  # when the socket took something, or nothing waited
        self.frames = 0
        self.place = -1
        self.flow = FlowControl(0)
        self.is_blocked = False  # until the socket takes more
        self._carry = b""
        self._commitlog, self._segment_size = commitlog, segment_size
        self._file, self._base = _NO_FILE, 0
        self._head, self._at, self._left = b"", 0, 0  # of the frame that is under way

    @property
    def address(self) -> str:
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def has_begun(self) -> bool:
        return self.start >= 0

    @property
    def held(self) -> int:
        """The end of what it has of the log; where it begins while it is empty."""
        return max(self.reported, self.start)

    @property
    def is_sending(self) -> bool:
        """Whether a frame is under way."""
        return bool(self._head) or bool(self._left)

    def read(self) -> int | None:
        """The newest report that has come; None for none. Raises ConnectionError where the slave has closed."""
        try:
            data = self.sock.recv(READ_MAX)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError("the slave has closed")
        reported, self._carry = newest(self._carry, data)
        return reported

    def begin(self, start: int, reported: int, now_ms: int) -> None:
        """Where the stream begins; the first frame is due at once, so that the slave hears of us."""
        self.start = self.sent = start
        self.reported = reported
        self.sent_ms = 0
        self.taken_ms = now_ms

    def stream(self, end: int, now_ms: int) -> int:
        """Sends what it takes now of the log before `end`, TURN_BYTES at most; how many bytes are in frames since.
        Raises OSError, Ended where the log does not have its next byte any more."""
        begun = 0
        while self._finish(now_ms) and begun < TURN_BYTES:
            size = min(end - self.sent, BODY_MAX, self.flow.room(now_ms), self._left_of_segment())
            if size <= 0:
                break
            self._open()
            self._put(size, now_ms)
            self._left, self.busy_ms = size, now_ms
            self.sent += size
            self.flow.spent(size)
            begun += size
        return begun

    def heartbeat(self, now_ms: int) -> None:
        """Raises OSError."""
        if self._finish(now_ms):
            self._put(0, now_ms)
            self._finish(now_ms)

    def close(self) -> None:
        self.sock.close()
        self._close_file()

    def _put(self, size: int, now_ms: int) -> None:
        self._head, self._at = HEAD.pack(self.sent, size), self.sent % self._segment_size
        self.frames += 1
        self.sent_ms = now_ms

    def _finish(self, now_ms: int) -> bool:
        """Sends of the frame that is under way what the socket takes; whether that is all of it."""
        if self.is_blocked:
            return False
        try:
            while self._head:
                done = self.sock.send(self._head, socket.MSG_MORE if self._left else 0)
                self._head, self.taken_ms = self._head[done:], now_ms
            while self._left:
                done = os.sendfile(self.sock.fileno(), self._file, self._at, self._left)
                if not done:
                    raise OSError("the segment's file ends within what is to be sent")
                self._at, self._left, self.taken_ms = self._at + done, self._left - done, now_ms
        except BlockingIOError:
            self.is_blocked = True
            return False
        self.taken_ms = now_ms
        return True

    def _left_of_segment(self) -> int:
        return self._segment_size - self.sent % self._segment_size

    def _open(self) -> None:
        """Opens the segment of the next byte. It stays readable when its file is deleted meanwhile."""
        base = self.sent - self.sent % self._segment_size
        if self._file != _NO_FILE and base == self._base:
            return
        self._close_file()
        try:
            self._file = os.open(self._commitlog / segment_name(base), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            why = f"the segment at {base} is gone, it has all before {self.held}"
            raise Ended(Refusal(Rule.CLEANED, why)) from None
        self._base = base

    def _close_file(self) -> None:
        if self._file != _NO_FILE:
            os.close(self._file)
            self._file = _NO_FILE
