"""What other threads hand to an I/O thread: questions, and a bell that wakes it."""

import contextlib
import os
import threading
from dataclasses import dataclass, field
from typing import Any

from towline.errors import TowlineError
from towline.link.unclosed import renew, tell_child

from .rpc import Reply


@dataclass(slots=True, eq=False)
class Asking:
    """A question of another thread, and its answer."""

    op: str
    facts: dict[str, Any]
    timeout_ms: int
    deadline: float
    request_id: int = 0
    asked_at: float = 0.0
    answered: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None
    error: TowlineError | None = None

    def finish(self, reply: Reply | None, error: TowlineError | None) -> None:
        self.reply, self.error = reply, error
        self.answered.set()


class Bell:
    """Wakes the I/O thread out of its poll. Rings after `close` are ignored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        tell_child(self)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def forked(self) -> None:
        """The parent's thread would wake."""
        renew(self._lock)
        self.close()
