"""Clean-up of objects with threads, locks or sockets that were dropped without `close`, or inherited by a fork.

The garbage collector, on whatever thread it runs, only starts the clean-up and waits for nothing. Where the program
ends, what was sent gets a moment. A child of a fork has its parent's objects without the parent's threads: such an
object raises when it is used, and touches nothing shared.
"""

import atexit
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, ParamSpec, Protocol, TypeVar

log = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")
Each = TypeVar("Each")


class Forkable(Protocol):
    def forked(self) -> None:
        """Is called in the child, which has one thread."""
        ...


class Leaving(Protocol):
    def leave(self, deadline: float) -> None:
        """Is called at the end of the program, and waits until `deadline` (monotonic seconds) at most."""
        ...


EXIT_S: Final = 2.0  # what was sent has so long to be stored, where nobody waited for it

_leaving: Final[weakref.WeakSet[Leaving]] = weakref.WeakSet()
_living: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_told_multiprocessing: Final[set[int]] = set()  # the process that has


def call_in_child(each: Forkable) -> None:
    """Registers `each`: its `forked` is called in every child of this process, in no certain order."""
    _living.add(each)


def on_drop(owner: object, do: Callable[Arguments, object], *args: Arguments.args, **named: Arguments.kwargs) -> None:
    """Calls `do` when `owner` is collected, but not at the end of the program.

    `do` must neither wait nor hold `owner`.
    """
    finalizer: Any = weakref.finalize(owner, do, *args, **named)
    finalizer.atexit = False


def call_at_exit(each: Leaving) -> None:
    """Registers `each`: its `leave` is called when the program ends, and all of them together take EXIT_S at most."""
    _leaving.add(each)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None and not _told_multiprocessing:
        # Its children end by os._exit, without atexit, but not without their own finalizers.
        _told_multiprocessing.add(os.getpid())
        sys.modules["multiprocessing.util"].Finalize(None, _leave, exitpriority=0)


def renew(*locks: Any) -> None:
    """Resets locks, conditions and events that a thread of the parent may have held at the fork."""
    for lock in locks:
        lock._at_fork_reinit()


def _in_child() -> None:
    for each in _all(_living):
        try:
            each.forked()
        except Exception:
            log.exception("a %s is not ended in the child of a fork", type(each).__name__)
    _living.clear()
    _leaving.clear()
    _told_multiprocessing.clear()


@atexit.register
def _leave() -> None:
    deadline = time.monotonic() + EXIT_S
    while leaving := _all(_leaving):
        _leaving.difference_update(leaving)  # others may have been registered meanwhile
        for each in leaving:
            try:
                each.leave(deadline)
            except Exception:
                log.exception("a %s is not ended with the program", type(each).__name__)


def _all(registered: "weakref.WeakSet[Each]") -> list[Each]:
    while True:
        try:
            return list(registered)
        except RuntimeError:  # a thread has registered one meanwhile
            continue


os.register_at_fork(after_in_child=_in_child)
