"""The memory fence between publishing a position and reading who sleeps."""

import threading

_lock = threading.Lock()


def fence() -> None:
    """No load after this line is made before a store above it (x86 lets a load pass an earlier store, H12).

    Taking an uncontended lock is a locked instruction, which is a full fence.
    """
    with _lock:
        pass
