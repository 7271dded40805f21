"""config/delayOffset.json and config/timerOffset.json: up to where deliveries are through (spec 1.4, H23).

Offsets are written when the log is on the disk up to what they speak of: after a power cut nothing counts as delivered
that the log has lost. Flush is asked for that (SYNC_WANTED), whatever its own policy. They say how far that is, so that
a slave takes them over when its own log holds as much.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from towline.errors import TowlineError
from towline.log.config_file import ConfigFile, read_config
from towline.log.undelivered import DELAY_OFFSETS, LOG_END, TIMER_OFFSETS
from towline.node.context import Node
from towline.runtime.positions import Duty, Position

from .timers import Through


@dataclass(frozen=True, slots=True)
class State:
    """`offsets` by level; `end` of the log after all that counts as delivered."""

    offsets: Mapping[int, int]
    through: Through
    end: int


class DelayOffsets:
    """The two files. `turn` writes what `state` says, every `flush_delay_offset_interval` and never too early."""

    def __init__(self, node: Node, state: Callable[[], State]) -> None:
        self._node = node
        self._state = state
        config = node.store.config
        self._delays, self._timers = ConfigFile(config / DELAY_OFFSETS), ConfigFile(config / TIMER_OFFSETS)
        self._wanted = node.writer(Position.SYNC_WANTED)
        self._ringer = node.ringer(Duty.FLUSH)
        self._interval_ms = node.settings.flush_delay_offset_interval
        self._began_ms = 0
        self._version = 0
        self._staged: State | None = None
        self._trouble = ""  # why the last attempt to write failed
        self._written: State | None = None
        self.spoken_of = 0  # the end of the log that the files spoke of when they were loaded

    def load(self) -> tuple[dict[int, int], Through]:
        """Offsets by level, and the timers' state. Raises MalformedFile."""
        delays, timers = self._load(self._delays), self._load(self._timers)
        offsets = {int(level): int(offset) for level, offset in delays.get("offsetTable", {}).items()}
        self._version = int(delays.get("dataVersion", {}).get("counter", 0))
        self.spoken_of = max(int(delays.get(LOG_END, 0)), int(timers.get(LOG_END, 0)))
        through = Through(
            int(timers.get("deliveredDue", 0)),
            int(timers.get("deliveredOffset", -1)),
            int(timers.get("upTo", 0)),
            int(timers.get("from", 0)),
            int(timers.get("cancelsFrom", 0)),
        )
        return offsets, through

    def turn(self, now_ms: int, *, changed: bool, at_once: bool = False) -> int:
        """`changed`: something was delivered since it was asked last. `now_ms` is monotonic. How much was done."""
        if self._staged is None:
            if not (changed or self._trouble) or (now_ms - self._began_ms < self._interval_ms and not at_once):
                return 0
            self._began_ms = now_ms
            self._staged = self._state()
            if self._node.positions.get(Position.FLUSHED) < self._staged.end:
                self._wanted.advance(max(self._wanted.get(), self._staged.end))
                self._ringer.ring()
        if self._node.positions.get(Position.FLUSHED) < self._staged.end:
            return 0
        staged, self._staged = self._staged, None
        try:
            self._save(staged)
        except (TowlineError, OSError) as error:  # a full disk: what is due goes on, and this is tried again
            if str(error) != self._trouble:
                self._node.log.error("what is delivered cannot be noted: %s", error)
            self._trouble = str(error)
            return 0
        self._trouble = ""
        return 1

    @property
    def waits(self) -> bool:
        """For flush."""
        return self._staged is not None

    def _load(self, file: ConfigFile) -> dict[str, Any]:
        found = file.load()
        if found is not None and read_config(file.path) is None:
            self._node.log.warning("%s cannot be read; the generation before is used: %s", file.path, file.backup)
        return found or {}

    def _save(self, state: State) -> None:
        before = self._written
        if before is None or before.offsets != state.offsets:
            self._version += 1
            version = {"counter": self._version, "stateVersion": 0, "timestamp": self._node.clock.now_ms()}
            self._delays.save({"dataVersion": version, "offsetTable": dict(state.offsets), LOG_END: state.end})
        if before is None or before.through != state.through:
            through = state.through
            self._timers.save(
                {
                    "deliveredDue": through.due,
                    "deliveredOffset": through.offset,
                    "upTo": through.up_to,
                    "from": through.start,
                    "cancelsFrom": through.cancels_start,
                    LOG_END: state.end,
                }
            )
        self._written = state
