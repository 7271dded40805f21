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
    """A change of the assignment: gained queues with their first offsets, lost ones with what was finished of each."""

    generation: int
    gained: dict[tuple[str, int], int] = field(default_factory=dict)
    lost: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """Records as they came, of queue offsets [begins, following); those before `first` were delivered before."""

    sizes: Buffer
    records: Buffer
    begins: int
    first: int
    following: int


@dataclass(slots=True, eq=False)
class Delivery:
    """Records of a queue that one thread was given: those before `at` are finished, those before `given` were seen."""

    holder: "Holder"
    queue: "GroupQueue"
    serial: int
    answer: Answer
    at: int
    given: int
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.answer.following


@dataclass(slots=True, eq=False)
class Holder:
    """A thread's deliveries: the newest, and with manual commits one for all before it, by queue."""

    thread: threading.Thread
    newest: Delivery | None = None
    kept: "dict[GroupQueue, Delivery]" = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class GroupQueue:
    """An assigned queue, guarded by the lock of `FetchBuffer`. Times are those of `boottime_s`, offsets the queue's.

    fetch      where the next pull begins
    handed_out everything before it was handed out, or nothing there is for us
    committed  as the node, or the local file, has it; UNKNOWN before the first time
    far        the master had better not read it for us: pulls go to a slave, if there is one, while that has something
    serial     grows when the position is moved by hand; what was handed out before does not count any more
    """

    topic: str
    queue_id: int
    subscription: Subscription
    stage: Stage = Stage.STARTING
    fetch: int = UNKNOWN
    handed_out: int = UNKNOWN
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
    listed: bool = False  # it is in the line of queues with something to deliver
    ready: deque[Answer] = field(default_factory=deque)
    unfinished: list[Delivery] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id

    @property
    def committable(self) -> int:
        """The offset before which everything is finished: neither delivered and unfinished nor waiting."""
        return min((self.next, *(delivery.at for delivery in self.unfinished)))

    @property
    def next(self) -> int:
        """Offset of the next message to be delivered."""
        return self.ready[0].first if self.ready else self.handed_out

    def may_deliver(self, serial: int, now: float) -> bool:
        """Whether a delivery made under `serial` may still go to the application."""
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
        self.fetch = self.handed_out = self.committed = offset
        self.stage = Stage.READING

    def seek(self, offset: int) -> None:
        """Moves to `offset`; pulls, buffered answers and deliveries from before do not count any more."""
        self.fetch = self.handed_out = offset
        self.serial += 1
        self.request_id, self.not_before = 0, 0.0
        self.ready.clear()
        self.unfinished.clear()

    def drop(self) -> None:
        self.seek(self.fetch)
        self.stage = Stage.GONE

    def add(self, answer: Answer) -> None:
        self.fetch = answer.following
        self.ready.append(answer)

    def requeue(self, answer: Answer) -> None:
        """Returns the rest of a delivery. Others may have been returned before it."""
        place = sum(waiting.first < answer.first for waiting in self.ready)
        self.ready.insert(place, answer)

    def skip_to(self, following: int) -> None:
        """Passes offsets before `following`, where the node has nothing for this member."""
        if self.ready and self.ready[-1].following == self.fetch:
            self.ready[-1].following = following
        else:
            self.handed_out = following
        self.fetch = following


Queue = tuple[str, int]


class Claims:
    """Queues that no other member can have locked, whatever happened to the node's process that granted the locks.

    A lock lives for its time after the node renewed it, so from the question that was granted on. Until then nobody
    else gets it from that process; a process that started since knows no locks, and believes whoever claims them.
    Used by the I/O thread. Times are those of `boottime_s`.
    """

    def __init__(self) -> None:
        self._until: dict[Queue, float] = {}

    def of(self, queues: Iterable[Queue], now: float) -> list[list[str | int]]:
        """The claims on `queues` that still hold, as questions carry them."""
        return [list(queue) for queue in queues if now < self._until.get(queue, 0.0)]

    def answered(self, asked: Iterable[Queue], locked: Collection[Queue], until: float) -> None:
        """Renews the claims on queues that were locked, and drops the others that were asked for."""
        for queue in asked:
            if queue in locked:
                self._until[queue] = until
            else:
                self._until.pop(queue, None)

    def release(self, queues: Iterable[Queue], now: float) -> list[list[str | int]]:
        """The same as `of`; these queues are not claimed again, even if the node never confirms their release."""
        found = self.of(queues, now)
        for topic, queue_id in found:
            del self._until[str(topic), int(queue_id)]
        return found
