"""config/transactionOffset.json: the offsets from which both queues of transactions are read after a start.

It is written when the log is on disk up to what the offsets cover (SYNC_WANTED asks flush for that), and states how far
that is: a slave adopts the file when its own log holds as much. A log that ends before it, after a power cut or after
following another node, is read from its beginning. So no open half ever counts as ended.
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
class TransactionOffsets:
    """Offsets of both queues; `end` of the log behind the last record that they cover."""

    half: int
    op: int
    end: int

    @property
    def offsets(self) -> tuple[int, int]:
        return self.half, self.op


class TransactionOffsetsFile:
    """The file. `written` is its content; `ended` is called by the writing thread after each write."""

    def __init__(self, node: Node, ended: Callable[[], object]) -> None:
        self._node = node
        self._file = ConfigFile(node.store.config / TRANSACTION_OFFSETS)
        self._saver = Saver("transactions", ended)
        self._wanted = node.writer(Position.SYNC_WANTED)
        self._ringer = node.ringer(Duty.FLUSH)
        self._pause_ms = node.settings.flush_consumer_offset_interval
        self._retry_at = 0
        self._staged: TransactionOffsets | None = None
        self._saving = False
        self._trouble = ""
        self._there = False
        self.written: TransactionOffsets | None = None

    def load(self, log_end: int) -> TransactionOffsets | None:
        """The offsets, or None where none are known for a log that ends there. Raises MalformedFile."""
        found = self._file.load()
        if found is None:
            return None
        self._there = True
        if read_config(self._file.path) is None:
            message = "%s cannot be read; the generation before is used: %s"
            self._node.log.warning(message, self._file.path, self._file.backup)
        floors = TransactionOffsets(_number(found, HALF_FLOOR), _number(found, OP_FLOOR), _number(found, LOG_END))
        if floors.end > log_end:
            message = "transactions are read from the beginning: their offsets speak of the log to %d, it ends at %d"
            self._node.log.warning(message, floors.end, log_end)
            self._node.line.count(Counter.FALLBACKS)
            return None
        self.written = floors
        return floors

    def cycle(self, now_ms: int, state: Callable[[], TransactionOffsets], *, at_once: bool = False) -> int:
        """Writes what `state` returns, once an interval and never before the sync; returns how much was done."""
        if self._saving:
            return self._finish()
        if self._staged is None:
            if now_ms < self._retry_at and not at_once:
                return 0
            self._retry_at = now_ms + self._pause_ms
            self._stage(state())
        if self._staged is None or self.awaits_flush:
            return 0
        self._saver.submit(self._file, _content(self._staged))
        self._saving = True
        return 1

    def is_written(self, floors: TransactionOffsets) -> bool:
        """Whether the file holds these offsets, or has nothing to hold: a node without transactions has no such
        file."""
        if self._staged is not None:
            return False
        if self.written is None:
            return not self._there and floors.offsets == (0, 0)
        return self.written.offsets == floors.offsets

    @property
    def awaits_flush(self) -> bool:
        """Whether a sync by flush is awaited, which rings no doorbell here."""
        return (
            self._staged is not None
            and not self._saving
            and self._node.positions.get(Position.FLUSHED) < self._staged.end
        )

    def close(self) -> None:
        """Waits for the writing thread."""
        self._saver.close()

    def _stage(self, floors: TransactionOffsets) -> None:
        if self.is_written(floors):
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


def _content(floors: TransactionOffsets) -> Callable[[], dict[str, Any]]:
    return lambda: {HALF_FLOOR: floors.half, OP_FLOOR: floors.op, LOG_END: floors.end}


def _number(found: dict[str, Any], name: str) -> int:
    return max(0, int(found.get(name, 0)))
