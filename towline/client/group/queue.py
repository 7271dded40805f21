"""A queue of a group member: fetched answers, the offset that may be committed, and the claims on its lock."""

import math
import threading
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from towline.format.wire.frames import Buffer

from .subscription import Subscription

DEPTH: Final = 2  # answers of one queue that wait for the application; one more pull may be out
UNKNOWN: Final = -1


class Stage(Enum):
    STARTING = "its first offset is not known yet"
    READING = "it is pulled and handed out"
    LEAVING = "another member waits for it, and the message in hand is finished first"
    GONE = "it is not ours any more"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The queues that came, with the offset each begins at, and those that went, with what was finished of each."""

    generation: int
    gained: dict[tuple[str, int], int] = field(default_factory=dict)
    lost: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """Records as they came, in two parts: of queue offsets [begins, following), those before `first` given before."""

    sizes: Buffer
    records: Buffer
    begins: int
    first: int
    following: int


@dataclass(slots=True, eq=False)
class Handed:
    """A piece of a queue in one thread's hand: everything before `at` is finished, before `given` it was seen."""

    hand: "Hand"
    queue: "GroupQueue"
    serial: int
    answer: Answer
    at: int
    given: int
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.answer.following


@dataclass(slots=True, eq=False)
class Hand:
    """What one thread holds: the newest piece, and with manual commits one for all before it, by queue."""

    thread: threading.Thread
    newest: Handed | None = None
    kept: "dict[GroupQueue, Handed]" = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class GroupQueue:
    """Guarded by the lock of `Shelf`. Times are those of `boottime_s`, offsets those of the queue.

    fetch      where the next pull begins
    taken      everything before it was handed out, or nothing there is for us
    committed  as the node, or the local file, has it; UNKNOWN before the first time
    far        the master had better not read it for us: pulls go to a slave, if there is one, while that has something
    serial     grows when the position is moved by hand; what was handed out before does not count any more
    """

    topic: str
    queue_id: int
    subscription: Subscription
    stage: Stage = Stage.STARTING
    fetch: int = UNKNOWN
    taken: int = UNKNOWN
    committed: int = UNKNOWN
    end: int = 0
    serial: int = 0
    request_id: int = 0
    asked: float = 0.0
    late: float = 0.0
    not_before: float = 0.0
    locked_until: float = math.inf
    paused: bool = False
    far: bool = False
    at_slave: bool = False  # the pull that is out
    listed: bool = False  # it stands in the shelf's line of queues with something to hand out
    ready: deque[Answer] = field(default_factory=deque)
    in_hand: list[Handed] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id

    @property
    def handled(self) -> int:
        """Everything before it is finished, so it may be committed: neither in hand nor waiting to be handed out."""
        return min((self.next, *(handed.at for handed in self.in_hand)))

    @property
    def next(self) -> int:
        """The next message to be handed out."""
        return self.ready[0].first if self.ready else self.taken

    def may_deliver(self, serial: int, now: float) -> bool:
        """Whether what was handed out under `serial` may still go to the application."""
        mine = self.stage is Stage.READING and now < self.locked_until
        return mine and not self.paused and serial == self.serial

    def wants_pull(self, now: float) -> bool:
        return (
            self.stage is Stage.READING
            and not self.request_id
            and not self.paused
            and len(self.ready) < DEPTH
            and self.not_before <= now < self.locked_until
        )

    def begin(self, offset: int) -> None:
        self.fetch = self.taken = self.committed = offset
        self.stage = Stage.READING

    def go(self, offset: int) -> None:
        """The next message is the one at `offset`; what is under way, buffered or in hand does not count any more."""
        self.fetch = self.taken = offset
        self.serial += 1
        self.request_id, self.not_before = 0, 0.0
        self.ready.clear()
        self.in_hand.clear()

    def leave(self) -> None:
        self.go(self.fetch)
        self.stage = Stage.GONE

    def came(self, answer: Answer) -> None:
        self.fetch = answer.following
        self.ready.append(answer)

    def came_back(self, answer: Answer) -> None:
        """What is left of an answer that was handed out. Others may have come back before it."""
        place = sum(waiting.first < answer.first for waiting in self.ready)
        self.ready.insert(place, answer)

    def passed(self, following: int) -> None:
        """The node has nothing for us before `following`: that is finished as soon as everything before it is."""
        if self.ready and self.ready[-1].following == self.fetch:
            self.ready[-1].following = following
        else:
            self.taken = following
        self.fetch = following


Queue = tuple[str, int]


class Claims:
    """Used by the I/O thread. Times are those of `boottime_s`."""

    def __init__(self) -> None:
        self._until: dict[Queue, float] = {}

    def of(self, queues: Iterable[Queue], now: float) -> list[list[str | int]]:
        """Those of `queues` that were ours when we last heard, and still are; as questions carry them."""
        return [list(queue) for queue in queues if now < self._until.get(queue, 0.0)]

    def answered(self, asked: Iterable[Queue], locked: Collection[Queue], until: float) -> None:
        """Of those that were asked for, only the locked ones are ours."""
        for queue in asked:
            if queue in locked:
                self._until[queue] = until
            else:
                self._until.pop(queue, None)

    def give_back(self, queues: Iterable[Queue], now: float) -> list[list[str | int]]:
        """The same as `of`; they are not claimed again, even when nobody says that they arrived."""
        found = self.of(queues, now)
        for topic, queue_id in found:
            del self._until[str(topic), int(queue_id)]
        return found
