"""Access of tools to a store: with no node on it, or beside a running one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from towline.errors import DutyTaken, HolderSilent, NotInLog, PositionsUnusable, StoreNotWritable, StoreTaken
from towline.log.repair.verify import Verified
from towline.log.repair.verify_report import Place
from towline.node.process.context import runtime_of
from towline.places import Store
from towline.runtime.locks import StoreLock, holder_of
from towline.runtime.positions import Duty, Position, Positions, State

ATTEMPTS: Final = 5


@contextmanager
def exclusive_access(store: Store) -> Iterator[None]:
    """No node runs on the store, and none starts meanwhile."""
    lock = StoreLock(store.lock)
    try:
        for duty in Duty:
            path = store.duty_lock(duty.label)
            if pid := holder_of(path):
                raise DutyTaken(duty.label, pid, str(path))
        yield
    finally:
        lock.release()


def verify_beside_node(attempt: Callable[[], Verified]) -> Verified:
    """A running node deletes and writes what is being read, and that looks like damage: then it is read again.

    What is damaged is found each time; what is not found again is left out. Two attempts that agree are enough.
    Raises NotInLog or FileNotFoundError when deleting never pauses.
    """
    places: set[Place] | None = None
    for left in reversed(range(ATTEMPTS)):
        try:
            found = attempt()
        except (NotInLog, FileNotFoundError):
            if not left and places is None:
                raise
            continue
        if found.limit is None:
            return found
        before, last = places, found
        places = found.findings.places() if before is None else before & found.findings.places()
        if not places or places == before:
            break
    last.findings.keep(places or set())
    return last


@contextmanager
def node_kept_away(store: Store) -> Iterator[int | None]:
    """Keeps nodes away meanwhile. Yields None, or the dispatched end of a node that runs already (H24)."""
    lock = None
    try:
        lock = StoreLock(store.lock)
    except StoreTaken as taken:
        yield _dispatched(runtime_of(store.root).positions, taken.pid)
        return
    except StoreNotWritable:
        pass  # a copy on a medium that cannot be written: nobody starts a node on it
    try:
        yield None
    finally:
        if lock is not None:
            lock.release()


def _dispatched(path: Path, holder: int) -> int:
    positions = positions_of_holder(path, holder)
    try:
        return positions.get(Position.DISPATCHED)
    finally:
        positions.close()


def positions_of_holder(path: Path, holder: int) -> Positions:
    """Of the node whose supervisor holds the store. Raises HolderSilent for any other holder, as a real broker."""
    try:
        positions = Positions.open(path, writable=False)
    except PositionsUnusable:
        raise HolderSilent(str(path), holder) from None
    supervisor = positions.duty(Duty.SUPERVISE)
    if supervisor.pid != holder or supervisor.state is not State.RUNNING:
        positions.close()
        raise HolderSilent(str(path), holder)
    return positions
