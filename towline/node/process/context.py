"""The context of a node's process: directories, settings, positions, doorbells of the other processes."""

import json
import logging
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from towline.clock import Clock, SystemClock
from towline.errors import NodeNotRunning, PositionsUnusable
from towline.places import Runtime, Store
from towline.runtime.doorbell import Ringer
from towline.runtime.positions import Duty, DutyLine, Position, Positions, Writer
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings


def runtime_base() -> Path:
    """A private directory in memory: below XDG_RUNTIME_DIR, else /dev/shm, else the temporary directory.

    In memory, because a mapped page of a disk file is write-protected at every write-back, and the next store of a
    position would wait for the file system's journal (docs/decisions/0002).
    """
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given) / "towline"
    shm = Path("/dev/shm")
    base = shm if os.access(shm, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"towline-{os.getuid()}"


def runtime_of(store: Path) -> Runtime:
    """The runtime directory of a store; it need not exist."""
    return Runtime.of(store.resolve(), runtime_base())


def runtime_in_use(store: Path) -> Runtime:
    """Where the node that runs on a store says it is: its XDG_RUNTIME_DIR need not be ours."""
    try:
        facts = json.loads(Store(store.resolve()).node.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return runtime_of(store)
    return Runtime(Path(facts["runtime"]))


def make_private(directory: Path) -> None:
    """Create `directory` with mode 0700, its parents too; an existing one must be ours alone."""
    for path in (directory.parent, directory):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{path} must belong to this user alone (mode 0700)")


@dataclass(eq=False)
class Node:
    """One process's view of its node. Built in the process itself, after the fork.

    `settings` are replaced between two cycles where they change while the node runs (`live_settings`); `taken` is the
    number of the change that they have.
    """

    store: Store
    runtime: Runtime
    settings: Settings
    positions: Positions
    duty: Duty
    generation: int
    log: logging.Logger
    clock: Clock
    taken: int = 0

    @classmethod
    def of(cls, store_root: Path, duty: Duty) -> "Node":
        """Raises PositionsUnusable when no node was started on the store."""
        store = Store(store_root.resolve())
        runtime = runtime_of(store.root)
        positions = Positions.open(runtime.positions)
        taken = positions.get(Position.SETTINGS)  # before the file is read, which is written first
        settings = Settings.from_json(store.settings.read_text(encoding="utf-8"))
        log = logging.getLogger(duty.label)
        return cls(store, runtime, settings, positions, duty, positions.generation, log, SystemClock(), taken)

    @property
    def line(self) -> DutyLine:
        return self.positions.duty(self.duty)

    def writer(self, position: Position) -> Writer:
        return self.positions.writer(position, self.duty)

    def ringer(self, *duties: Duty) -> Ringer:
        return Ringer(self.positions, {duty: self.runtime.bell(duty.label) for duty in duties})

    def queue_ends(self, *, writable: bool = False) -> QueueEnds:
        return QueueEnds.open(self.runtime.queue_ends, writable=writable)


def open_node(store_root: Path) -> Node:
    """A reader's view of a running node: its positions are mapped read-only. Raises NodeNotRunning."""
    store = Store(store_root.resolve())
    runtime = runtime_in_use(store.root)
    try:
        positions = Positions.open(runtime.positions, writable=False)
        settings = Settings.from_json(store.settings.read_text(encoding="utf-8"))
    except (PositionsUnusable, FileNotFoundError):
        raise NodeNotRunning(str(store.root)) from None
    log = logging.getLogger("status")
    return Node(store, runtime, settings, positions, Duty.SUPERVISE, positions.generation, log, SystemClock())
