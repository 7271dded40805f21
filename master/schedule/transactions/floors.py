"""config/transactionOffset.json: from where on both queues of transactions are read after a start.

Written when the log is on the disk up to what the floors speak of (SYNC_WANTED asks flush for it), and it says how far
that is: a slave takes the file over when its own log holds as much, and a log that ends before it, after a power cut or
because another node was followed, is read from its beginning. So no open half is ever counted as through.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from towline.log.files.config_file import ConfigFile, read_config
from towline.log.files.config_writer import Saver
from towline.log.state.floors import HALF_FLOOR, LOG_END, OP_FLOOR, TRANSACTION_OFFSETS
from towline.node.process.context import Node
from towline.runtime.positions import Counter, Duty, Position


@dataclass(frozen=True, slots=True)
class Floors:
    """Offsets of both queues; `end` of the log after the last record that they speak of."""

    half: int
    op: int
    end: int

    @property
    def offsets(self) -> tuple[int, int]:
        return self.half, self.op


class FloorsFile:
    """The file. `written` is what it says. `ended` is called by the thread that writes it, when it has."""

    def __init__(self, node: Node, ended: Callable[[], object]) -> None:
        self._node = node
        self._file = ConfigFile(node.store.config / TRANSACTION_OFFSETS)
        self._saver = Saver("transactions", ended)
        self._wanted = node.writer(Position.SYNC_WANTED)
        self._ringer = node.ringer(Duty.FLUSH)
        self._pause_ms = node.settings.flush_consumer_offset_interval
        self._again_at = 0
        self._staged: Floors | None = None
        self._saving = False
        self._trouble = ""
        self._there = False
        self.written: Floors | None = None

    def load(self, log_end: int) -> Floors | None:
        """None where nothing is known for a log that ends there. Raises MalformedFile."""
        found = self._file.load()
        if found is None:
            return None
        self._there = True
        if read_config(self._file.path) is None:
            told = "%s cannot be read; the generation before is used: %s"
            self._node.log.warning(told, self._file.path, self._file.backup)
        floors = Floors(_number(found, HALF_FLOOR), _number(found, OP_FLOOR), _number(found, LOG_END))
        if floors.end > log_end:
            told = "transactions are read from the beginning: their offsets speak of the log to %d, it ends at %d"
            self._node.log.warning(told, floors.end, log_end)
            self._node.line.count(Counter.FALLBACKS)
            return None
        self.written = floors
        return floors

    def turn(self, now_ms: int, state: Callable[[], Floors], *, at_once: bool = False) -> int:
        """Has the file say what `state` says, once an interval and never too early. How much was done."""
        if self._saving:
            return self._finish()
        if self._staged is None:
            if now_ms < self._again_at and not at_once:
                return 0
            self._again_at = now_ms + self._pause_ms
            self._stage(state())
        if self._staged is None or self.awaits_flush:
            return 0
        self._saver.submit(self._file, _content(self._staged))
        self._saving = True
        return 1

    def says(self, floors: Floors) -> bool:
        """Also where there is nothing to say: a node without transactions has no such file."""
        if self._staged is not None:
            return False
        if self.written is None:
            return not self._there and floors.offsets == (0, 0)
        return self.written.offsets == floors.offsets

    @property
    def awaits_flush(self) -> bool:
        """Which rings nobody here."""
        return (
            self._staged is not None
            and not self._saving
            and self._node.positions.get(Position.FLUSHED) < self._staged.end
        )

    def close(self) -> None:
        """Waits for what the thread writes."""
        self._saver.close()

    def _stage(self, floors: Floors) -> None:
        if self.says(floors):
            return
        self._staged = floors
        if self.awaits_flush:
            self._wanted.advance(max(self._wanted.get(), floors.end))
            self._ringer.ring()

    def _finish(self) -> int:
        done = 0
        for _, error in self._saver.finished():
            done, self._saving = 1, False
            if error is None:
                self.written = self._staged
            elif str(error) != self._trouble:
                self._node.log.error("the offsets of transactions cannot be noted: %s", error)
            self._trouble = "" if error is None else str(error)
            self._staged = None
        return done


def _content(floors: Floors) -> Callable[[], dict[str, Any]]:
    return lambda: {HALF_FLOOR: floors.half, OP_FLOOR: floors.op, LOG_END: floors.end}


def _number(found: dict[str, Any], name: str) -> int:
    return max(0, int(found.get(name, 0)))
