"""Objects with threads, locks or sockets that nobody closes: dropped by their program, or left behind by a fork.

A collection, on whatever thread it runs, only tells what is left to end, and waits for nothing. A child of a fork has
its parent's objects without the parent's threads: they say so when they are used, and touch nothing that both have.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, ParamSpec, Protocol

Arguments = ParamSpec("Arguments")


class Forkable(Protocol):
    def forked(self) -> None:
        """In the child, which has one thread now."""
        ...


_living: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()


def tell_child(each: Forkable) -> None:
    """From here on `forked` is called in every child of this process, in no certain order."""
    _living.add(each)


def on_drop(owner: object, do: Callable[Arguments, object], *args: Arguments.args, **named: Arguments.kwargs) -> None:
    """Calls `do` when `owner` is collected, but not at the end of the program. It must not wait, nor know `owner`."""
    finalizer: Any = weakref.finalize(owner, do, *args, **named)
    finalizer.atexit = False


def renew(*locks: Any) -> None:
    """Locks, conditions and events that a thread of the parent may have held in the moment of the fork."""
    for lock in locks:
        lock._at_fork_reinit()


def _in_child() -> None:
    for each in list(_living):
        each.forked()
    _living.clear()


os.register_at_fork(after_in_child=_in_child)
