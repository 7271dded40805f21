"""The right to use what one thread uses at a time, as a producer's link; an interrupt does not leave it taken.

Python raises KeyboardInterrupt between any two instructions of the main thread, between taking a lock and the `try`
that releases it too. A lock that was left taken so would keep the I/O thread, and `Producer.close`, waiting for ever.
"""

import contextlib
import threading
from typing import Final

FOR_EVER_S: Final = -1.0


class Turn:
    """`give_back` in a `finally` around `take` is right whether it was taken or not. A thread that has it asks
    `is_mine` before: a callback, or a finalizer, does not take it a second time."""

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # which knows, unlike a plain one, whether the caller has it
        self._owner = 0

    @property
    def is_mine(self) -> bool:
        return self._owner == threading.get_ident()

    def take(self, timeout_s: float = 0.0) -> bool:
        """Waits so long for it."""
        taken = self._lock.acquire(timeout=timeout_s) if timeout_s else self._lock.acquire(blocking=False)
        if taken:
            self._owner = threading.get_ident()
        return taken

    def give_back(self) -> None:
        """Does nothing where the caller has not got it."""
        if self.is_mine:
            self._owner = 0
            self._lock.release()
            return
        with contextlib.suppress(RuntimeError):  # it is another's, or nobody's, or an interrupt came as it was taken
            self._lock.release()
