"""Progress files of deliveries: config/delayOffset.json and config/timerOffset.json (spec 1.4, H23).

Offsets are written when the log is on disk up to what they cover: after a power cut nothing counts as delivered that
the log has lost. SYNC_WANTED asks flush for that sync, whatever its own policy. The files state how far of the log they
cover, so that a slave adopts them when its own log holds as much. A thread writes them: deliveries wait for it only
when the disk is so slow that a kill would repeat more deliveries than is promised (`must_wait`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from towline.log.files.config_file import ConfigFile
from towline.log.files.config_writer import Saver
from towline.log.state.floors import DELAY_OFFSETS, EARLIER, LOG_END, TIMER_OFFSETS
from towline.node.process.context import Node
from towline.runtime.positions import Duty, Position

from .timers import DeliveredMark, TimerState

SLOW_MS: Final = 400  # flush and the thread may take so long before deliveries wait for them


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """The progress of deliveries: `offsets` by level; `end` of the log behind everything that counts as delivered."""

    offsets: Mapping[int, int]
    through: TimerState
    end: int


class DelayOffsets:
    """The two files, written every `flush_delay_offset_interval` from what `state` returns, never before the sync.

    `ended` is called by the writing thread when a file is written.
    """

    def __init__(self, node: Node, state: Callable[[], DeliveryState], ended: Callable[[], object]) -> None:
        self._node = node
        self._state = state
        config = node.store.config
        self._delays, self._timers = ConfigFile(config / DELAY_OFFSETS), ConfigFile(config / TIMER_OFFSETS)
        self._saver = Saver("delays", ended)
        self._jobs: set[int] = set()
        self._wanted = node.writer(Position.SYNC_WANTED)
        self._ringer = node.ringer(Duty.FLUSH)
        self._interval_ms = node.settings.flush_delay_offset_interval
        self._began_ms = 0
        self._version = 0
        self._staged: DeliveryState | None = None  # until the files say so
        self._staged_since: int | None = None  # when the oldest delivery that only `_staged` speaks of was seen
        self._since: int | None = None  # the oldest that no state speaks of
        self._problem: str | None = None  # of the attempt under way
        self._trouble = ""  # why the last attempt to write failed
        self._written: DeliveryState | None = None
        self.covered_end = 0  # the end of the log that the files spoke of when they were loaded

    def load(self) -> tuple[dict[int, int], TimerState]:
        """Loads the offsets by level, and the state of timers. Raises MalformedFile."""
        delays, timers = self._load(self._delays), self._load(self._timers)
        offsets = {int(level): int(offset) for level, offset in delays.get("offsetTable", {}).items()}
        self._version = int(delays.get("dataVersion", {}).get("counter", 0))
        self.covered_end = max(int(delays.get(LOG_END, 0)), int(timers.get(LOG_END, 0)))
        mark = _mark(timers)
        through = TimerState(
            mark.due,
            mark.offset,
            mark.up_to,
            int(timers.get("from", 0)),
            int(timers.get("cancelsFrom", 0)),
            tuple(_mark(each) for each in timers.get(EARLIER, ())),
        )
        return offsets, through

    def cycle(self, now_ms: int, *, changed: bool, at_once: bool = False) -> int:
        """Stages and writes the files when they are due; returns how much was done.

        `changed`: something was delivered since `state` was called last. `now_ms` is monotonic.
        """
        if changed and self._since is None:
            self._since = now_ms
        if self._jobs:
            return self._finish()
        if self._staged is None:
            if not (changed or self._trouble) or (now_ms - self._began_ms < self._interval_ms and not at_once):
                return 0
            self._stage(now_ms)
        if self.awaits_flush:
            return 0
        self._save()
        return 1

    def must_wait(self, now_ms: int) -> bool:
        """Whether deliveries have to wait, so that a kill repeats no more than those of one interval and SLOW_MS.

        False while the files cannot be written: due messages are delivered all the same.
        """
        since = self._staged_since if self._staged_since is not None else self._since
        return since is not None and not self._trouble and now_ms - since >= self._interval_ms + SLOW_MS

    @property
    def awaits_flush(self) -> bool:
        """Whether a sync by flush is awaited, which rings no doorbell here."""
        return (
            self._staged is not None
            and not self._jobs
            and self._node.positions.get(Position.FLUSHED) < self._staged.end
        )

    @property
    def busy(self) -> bool:
        """Whether the files lack what `state` returned last."""
        return self._staged is not None

    def close(self) -> None:
        """Waits for the writing thread.

        A disk that blocks for longer than a node's stop may take gets the process killed, as by a crash.
        """
        self._saver.close()

    def _load(self, file: ConfigFile) -> dict[str, Any]:
        found = file.load()
        if file.from_backup:
            self._node.log.warning("%s cannot be read; the generation before is used: %s", file.path, file.backup)
        return found or {}

    def _stage(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._staged = self._state()
        if self._staged_since is None:  # else it is of an attempt that failed
            self._staged_since = self._since
        self._since = None
        if self._node.positions.get(Position.FLUSHED) < self._staged.end:
            self._wanted.advance(max(self._wanted.get(), self._staged.end))
            self._ringer.ring()

    def _save(self) -> None:
        state, before = self._staged, self._written
        assert state is not None, "something is staged before it is saved"
        if before is None or before.offsets != state.offsets:
            self._version += 1
            delays = {
                "dataVersion": {
                    "counter": self._version,
                    "stateVersion": 0,
                    "timestamp": self._node.clock.now_ms(),
                },
                "offsetTable": dict(state.offsets),
                LOG_END: state.end,
            }
            self._jobs.add(self._saver.submit(self._delays, lambda: delays))
        if before is None or before.through != state.through:
            timers = _of_timers(state)
            self._jobs.add(self._saver.submit(self._timers, lambda: timers))
        self._problem = None
        if not self._jobs:
            self._end()

    def _finish(self) -> int:
        """Returns how many files were written. After a full disk due messages are delivered, and the write is tried
        again."""
        done = 0
        for number, error in self._saver.finished():
            self._jobs.discard(number)
            done += error is None
            self._problem = self._problem or (str(error) if error else None)
        if not self._jobs:
            self._end()
        return done

    def _end(self) -> None:
        staged, self._staged = self._staged, None
        if self._problem is None:
            self._written, self._staged_since = staged, None
        elif self._problem != self._trouble:
            self._node.log.error("what is delivered cannot be noted: %s", self._problem)
        self._trouble = self._problem or ""


def _of_timers(state: DeliveryState) -> dict[str, Any]:
    through = state.through
    places = {"from": through.start, "cancelsFrom": through.cancels_start}
    earlier = [_of_mark(mark) for mark in through.earlier]
    return _of_mark(through) | places | ({EARLIER: earlier} if earlier else {}) | {LOG_END: state.end}


def _of_mark(mark: DeliveredMark) -> dict[str, Any]:
    return {"deliveredDue": mark.due, "deliveredOffset": mark.offset, "upTo": mark.up_to}


def _mark(content: Mapping[str, Any]) -> DeliveredMark:
    return DeliveredMark(
        int(content.get("deliveredDue", 0)), int(content.get("deliveredOffset", -1)), int(content.get("upTo", 0))
    )
