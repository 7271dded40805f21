"""Wakes a thread out of its poll: an eventfd where the system has them (Linux), else a pair of sockets."""

import contextlib
import os
import socket
import threading
from typing import Final

from .unclosed import call_in_child, renew

_DRAINED: Final = 4096  # bytes read at once from the pair


class Waker:
    """Wakes who polls its descriptor. Any thread may wake; calls after `close` are ignored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if hasattr(os, "eventfd"):
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._pair = near, far = socket.socketpair()
            near.setblocking(False)
            far.setblocking(False)
            self._descriptor = near.fileno()
        call_in_child(self)

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        with self._lock:
            if self._descriptor < 0:
                return
            if self._pair is None:
                os.eventfd_write(self._descriptor, 1)
                return
            with contextlib.suppress(BlockingIOError):  # full of calls that nobody has drained: it wakes all the same
                self._pair[1].send(b"\0")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if self._pair is None:
                os.eventfd_read(self._descriptor)
            else:
                while len(self._pair[0].recv(_DRAINED)) == _DRAINED:
                    pass

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor < 0:
                return
            if self._pair is None:
                os.close(descriptor)
            else:
                for end in self._pair:
                    end.close()

    def forked(self) -> None:
        """Closes the child's copy, with which it would wake the parent's thread."""
        renew(self._lock)
        self.close()
