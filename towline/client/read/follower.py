"""Follows the log's end for a reader on the node's machine: a message needs neither reput nor serve to reach it.

    off         messages come in answers to pulls
    asked       messages follow each other closely: DISPATCHED was read, and the node is asked where the queues end
    catching up the ends are known: pulls go on until each queue has been read up to there. Every record that is not
                read then stands in the log behind that DISPATCHED
    following   no pulls; records are taken from the log as soon as they are confirmed
    leaving     the reader may be ahead of the queues: no pulls until DISPATCHED has passed what was read

Once a second the node is asked again whether the queues may still be read, and hears what was read.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import numpy as np

from towline.client.columns import SIZES
from towline.errors import MalformedRecord
from towline.limits import KIB

from .log_tail import LogTail, TailRecord, records_of

CLOSE_S: Final = 0.01  # answers this close, one behind the other, are worth following
NEAR: Final = 64  # messages: so few are left behind an answer of so few
IDLE_S: Final = 0.02  # without a message: pulls cost less
BEHIND_MAX: Final = 256 * KIB  # bytes of the log between two looks; pulls bring more of them for less
PAUSE_S: Final = 1.0  # before it is tried again where there were more
RENEW_S: Final = 1.0
LAPSE_S: Final = 3.0  # without an answer to the question the reader follows no further
LOOK_S: Final = 0.00005  # between two looks, but
LOOK_SHARE: Final = 8  # no more than so many looks in the time since the last message, and
LOOK_MAX_S: Final = 0.001  # no longer than this


class Phase(Enum):
    OFF = auto()
    ASKED = auto()
    CATCHING_UP = auto()
    FOLLOWING = auto()
    LEAVING = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """Records of one queue: offsets [first, following)."""

    queue_id: int
    first: int
    following: int
    sizes: bytes
    records: bytes


class Follower:
    """Follows the log for one reader over one link. Times are monotonic seconds. Used by one thread."""

    def __init__(self, tail: LogTail, topic: bytes, ask: Callable[[dict[str, Any]], int]) -> None:
        """`ask` sends a question and returns its request id, 0 where it could not be sent."""
        self._tail = tail
        self._topic = topic
        self._ask = ask
        self._phase = Phase.OFF
        self._at = 0  # log offset of the first byte that was not read
        self._ends: dict[int, int] = {}  # queue -> its end when the follower asked
        self._next: dict[int, int] = {}  # queue -> offset of its next record, while following
        self._ready: deque[Found] = deque()
        self._asked_id = 0
        self._answered = self._asked = self._arrived = self._not_before = 0.0
        self._counts: dict[int, list[int]] = {}  # queue -> messages and bytes since the last question

    @property
    def follows(self) -> bool:
        """Whether messages come from here."""
        return self._phase is Phase.FOLLOWING

    @property
    def queues(self) -> Iterable[int]:
        """Those that it follows."""
        return self._next.keys()

    @property
    def is_current(self) -> bool:
        """Whether the node at the other end of the link is still the one of these positions."""
        return self._tail.is_current

    @property
    def needs_positions(self) -> bool:
        """Whether `begin`, or a look at what is followed, has a use for the reader's positions."""
        return self._phase in (Phase.CATCHING_UP, Phase.FOLLOWING)

    def rest_s(self, now: float) -> float:
        """How long to rest before the next look."""
        return max(LOOK_S, min(LOOK_MAX_S, (now - self._arrived) / LOOK_SHARE))

    def holds_pulls(self) -> bool:
        """Whether pulls have to wait: none are needed, or a queue may not yet be as long as what was read of it."""
        if self._phase is Phase.LEAVING and self._tail.dispatched >= self._at:
            self._phase = Phase.OFF
            self._tail.release()
        return self._phase in (Phase.FOLLOWING, Phase.LEAVING)

    def close(self) -> None:
        self._tail.close()

    # --- becoming one

    def arrived(self, count: int, left: int, now: float) -> None:
        """Takes note of an answer to a pull that brought so many messages, and left so many."""
        close = now - self._arrived < CLOSE_S
        self._arrived = now
        if self._phase is Phase.OFF and close and count <= NEAR and left <= NEAR and now >= self._not_before:
            self._at = self._tail.dispatched  # read before the node looks up the ends
            if self._question(now):
                self._phase = Phase.ASKED

    def answered(self, request_id: int, facts: dict[str, Any] | None, now: float) -> None:
        """Takes the node's answer to a question, None where it refused; those of others are passed over."""
        if request_id != self._asked_id:
            return
        self._asked_id, self._answered = 0, now
        ends = {} if facts is None else {int(row["queue"]): int(row["max"]) for row in facts["queues"]}
        if self._phase is Phase.ASKED:
            self._ends, self._phase = ends, Phase.CATCHING_UP
        elif self._phase is Phase.FOLLOWING and not ends.keys() >= self._next.keys():
            self.leave()  # whoever pulls is told why

    def begin(self, positions: dict[int, int], now: float) -> bool:
        """Whether the reader, at these positions of its queues, needs no pulls from here on: then it follows."""
        if self._phase is not Phase.CATCHING_UP:
            return False
        if now - self._answered > CLOSE_S or not self._ends.keys() >= positions.keys():
            self._give_up(now)
        elif all(self._ends[queue] <= at for queue, at in positions.items()):
            self._next = dict(positions)
            self._phase, self._arrived = Phase.FOLLOWING, now
        return self._phase is Phase.FOLLOWING

    # --- following

    def take(self, now: float) -> Found | None:
        """The next records, of one queue."""
        if not self._ready and self._phase is Phase.FOLLOWING:
            self._look(now)
        return self._ready.popleft() if self._ready else None

    def leave(self) -> None:
        """Ends it. What was read and not taken comes in answers to pulls."""
        self._ready.clear()
        self._asked_id = 0
        self._phase = Phase.LEAVING if self._phase in (Phase.FOLLOWING, Phase.LEAVING) else Phase.OFF

    def _give_up(self, now: float) -> None:
        self._not_before = now + PAUSE_S
        self.leave()

    def _look(self, now: float) -> None:
        end = self._tail.confirmed
        if end - self._at > BEHIND_MAX:
            self._give_up(now)
            return
        try:
            while self._read(end, now) and not self._ready:
                pass  # the segment ended, or other topics' records stood there
        except (OSError, MalformedRecord, _Gap):  # the node says what is wrong there to whoever pulls
            self._give_up(now)
            return
        if not self._tail.is_current or now - self._arrived > IDLE_S or now - self._answered > LAPSE_S:
            self.leave()
        elif now - self._asked > RENEW_S:
            self._question(now)

    def _read(self, end: int, now: float) -> bool:
        """Makes ready what stands before log offset `end`, up to the end of a segment. Whether there was anything."""
        if end <= self._at:
            return False
        data = self._tail.read(self._at, end)
        records, size = records_of(data, self._at, self._topic)
        of_queues: dict[int, list[TailRecord]] = {}
        for record in records:
            due = self._next.get(record.queue_id)
            if due is None or record.queue_offset < due:
                continue  # not read here, or read before
            if record.queue_offset > due:
                raise _Gap
            self._next[record.queue_id] = due + 1
            of_queues.setdefault(record.queue_id, []).append(record)
        self._at = self._tail.behind(self._at) if size < 0 else self._at + size
        for queue_id, found in of_queues.items():
            self._ready.append(_joined(queue_id, found, data))
            self._arrived = now
        return size != 0

    def _question(self, now: float) -> bool:
        read = [[queue, *counts] for queue, counts in self._counts.items()]
        self._asked_id = self._ask({"topic": self._topic.decode(), "read": read})
        self._asked = now
        if self._asked_id:
            self._counts.clear()
        return bool(self._asked_id)

    def count(self, found: Found) -> None:
        """Counts what was handed out, for the node's statistics."""
        counts = self._counts.setdefault(found.queue_id, [0, 0])
        counts[0] += found.following - found.first
        counts[1] += len(found.records)


class _Gap(Exception):
    """A queue offset is missing in the log."""


def _joined(queue_id: int, records: list[TailRecord], data: bytes) -> Found:
    sizes = np.array([record.size for record in records], dtype=SIZES).tobytes()
    parts = [data[record.start : record.start + record.size] for record in records]
    first = records[0].queue_offset
    return Found(queue_id, first, first + len(records), sizes, parts[0] if len(parts) == 1 else b"".join(parts))
