"""The consumer: reads queues of a topic from where it stands, message by message or in columns."""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import numpy as np

from towline.errors import MalformedFrame, NoAnswer
from towline.format.frames import (
    PULL_ANSWER,
    READ_FROM_SLAVE,
    Buffer,
    Kind,
    Pull,
    encode_pull,
    expect,
    kind_of,
    read_json,
)
from towline.format.java_hash import string_hash
from towline.format.status import GetStatus, PutStatus
from towline.limits import DECOMPRESSED_SIZE_MAX, MIB, REQUEST_SIZE_MAX
from towline.link.dealer import Link

from .asks import AGAIN_MS, Caller
from .columns import Columns
from .connection import own_facts, remaining_ms
from .errors import FilterRefused, ReadRefused
from .message import ANY_TAG, ReceivedMessage

Start: TypeAlias = Literal["first", "last"] | datetime | int

TAG_SEPARATOR: Final = "||"
LATE_MS: Final = 5_000  # a held pull that is not answered this long after its time means a dead link
EMPTY_PAUSE_S: Final = 0.1  # between pulls that a node answers at once although it has nothing
MOVES_MAX: Final = 1_000
ITERATION_MS: Final = 1_000
_DELETED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING)


@dataclass(frozen=True, slots=True)
class Moved:
    """The node had nothing at a position, and reading went on at another: messages may have been skipped."""

    queue_id: int
    from_offset: int
    to_offset: int
    status: GetStatus


@dataclass(slots=True)
class Queue:
    """Where reading stands. `request_id` is the pull that is out, 0 for none. Times are monotonic seconds."""

    queue_id: int
    position: int
    end: int  # offset after the newest readable record, as last heard
    request_id: int = 0
    asked: float = 0.0
    late: float = 0.0
    not_before: float = 0.0
    paused: bool = False


class Consumer:
    """Reads one topic from a node's serve process. Used by one thread.

    endpoint       tcp://host:port or ipc://path; master or slave
    tags           "*", one tag, or several as "a || b"
    sql            a filter on properties in SQL92, as "a > 3 AND b IS NOT NULL"; the node evaluates it
    group          whose filter it is, for nodes that compute bitmaps of filters
    queues         queue ids; all of the topic's by default
    start          "first", "last" (after what is there now), a datetime or ms since 1970 (store time)
    max_count, max_bytes  of one pull; the first record comes whatever its size
    suspend_ms     how long the node may hold a pull while nothing arrives
    timeout_ms     how long the node may be out of reach before NoAnswer
    body_size_max  cap on a decompressed body, bytes

    Each queue has one pull out at any time, and the next is sent before an answer is decoded. A lost link is made anew
    and reading goes on at the positions. Where the node has deleted what comes next, it goes on at the first message
    that is left: `moved` tells where, `missed` how many were passed over. Nothing is connected before the first call
    that needs the node.
    Raises InvalidEndpoint, ValueError.
    """

    def __init__(
        self,
        endpoint: str,
        topic: str,
        *,
        tags: str = ANY_TAG,
        sql: str = "",
        group: str = "",
        queues: Sequence[int] | None = None,
        start: Start = "first",
        max_count: int = 10_000,
        max_bytes: int = MIB,
        suspend_ms: int = 15_000,
        timeout_ms: int = 10_000,
        body_size_max: int = DECOMPRESSED_SIZE_MAX,
        name: str = "",
        cluster: str = "",
    ) -> None:
        if not 0 < max_bytes <= REQUEST_SIZE_MAX or max_count < 1:
            raise ValueError(f"max_bytes is 1 to {REQUEST_SIZE_MAX} and max_count at least 1")
        if isinstance(start, str) and start not in ("first", "last"):
            raise ValueError(f"start is {start!r}; first, last, a datetime or ms since 1970 are allowed")
        self.topic = topic
        self.moved: deque[Moved] = deque(maxlen=MOVES_MAX)
        self.missed = 0  # queue offsets passed over because the node deleted them before they were read
        self.far_behind = False  # as the node said last: a slave had better be read (its setting slave_read_enable)
        self._tags = _tags(tags)
        self._sql, self._group = sql, group
        self._codes = tuple(string_hash(tag) for tag in sorted(self._tags))
        self._wanted = {tag.encode() for tag in self._tags}
        self._wanted_queues = queues
        self._start: Start = start
        self._max_count, self._max_bytes = max_count, max_bytes
        self._suspend_ms, self._timeout_ms = suspend_ms, timeout_ms
        self._body_size_max = body_size_max
        self._queues: dict[int, Queue] = {}
        self._pulls: dict[int, Queue] = {}
        self._pulled_over: Link | None = None
        self._out_of_reach_since: float | None = None
        self._caller = Caller(endpoint, own_facts("consumer", name or f"consumer-{os.getpid()}", cluster))

    # --- reading

    def poll(self, timeout_ms: int) -> list[ReceivedMessage]:
        """The next messages of one queue, or none when nothing came within `timeout_ms`.

        Raises UnknownTopic, NoAnswer when the node is out of reach, FilterRefused, ReadRefused, LinkRefused,
        ClientClosed.
        """
        columns = self.poll_columns(timeout_ms)
        return [] if columns is None else columns.messages(self._body_size_max)

    def poll_columns(self, timeout_ms: int) -> Columns | None:
        """The same as columns: the cheap way for many messages."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            link = self._reach(deadline)
            parts = None
            if link is not None:
                self._send_pulls(link)
                parts = self._caller.receive(link)
            if parts is not None and link is not None:
                columns = self._take(link, parts)
                if columns is not None:
                    return columns
            elif remaining_ms(deadline) == 0:
                return None
            elif link is not None:
                self._wait(deadline)
            else:
                self._caller.wait(min(AGAIN_MS, remaining_ms(deadline)))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Every message, until the consumer is closed; waits for new ones."""
        while not self._caller.closed:
            columns = self.poll_columns(ITERATION_MS)
            if columns is not None:
                yield from columns.each(self._body_size_max)

    def batches(self) -> Iterator[Columns]:
        """Every message in columns, until the consumer is closed; waits for new ones."""
        while not self._caller.closed:
            columns = self.poll_columns(ITERATION_MS)
            if columns is not None:
                yield columns

    # --- positions

    def position(self) -> dict[int, int]:
        """Queue id -> offset of the next message to come from `poll`."""
        self._begin()
        return {queue.queue_id: queue.position for queue in self._queues.values()}

    def seek(self, queue_id: int, offset: int) -> None:
        """The next message of this queue is the one at `offset`. Raises KeyError for a queue that is not read."""
        self._begin()
        self._go(self._queues[queue_id], offset)

    def seek_to_time(self, when: datetime | int) -> None:
        """Each queue goes to its first message stored at or after `when`, a datetime or ms since 1970."""
        self._begin()
        for queue in self._queues.values():
            self._go(queue, self._offset_at(queue.queue_id, when))

    def pause(self, *queue_ids: int) -> None:
        """Nothing more comes from these queues (all, when none is named) until `resume`."""
        self._begin()
        for queue_id in queue_ids or self._queues:
            queue = self._queues[queue_id]
            queue.paused = True
            self._go(queue, queue.position)

    def resume(self, *queue_ids: int) -> None:
        self._begin()
        for queue_id in queue_ids or self._queues:
            self._queues[queue_id].paused = False

    @property
    def at_end(self) -> bool:
        """Everything that was readable when the node answered last has come, in every queue that is not paused."""
        return bool(self._queues) and all(
            queue.paused or queue.position >= queue.end for queue in self._queues.values()
        )

    def close(self) -> None:
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the first positions

    def _begin(self) -> None:
        if self._queues:
            return
        facts = self._caller.ask("route", {"topic": self.topic}, self._timeout_ms).facts
        there = range(int(facts["read_queues"]))
        wanted = there if self._wanted_queues is None else self._wanted_queues
        if any(queue_id not in there for queue_id in wanted):
            raise ValueError(f"queues {list(wanted)} of {self.topic!r}, which has 0 to {len(there) - 1}")
        bounds = self._caller.ask("bounds", {"topic": self.topic}, self._timeout_ms).facts["queues"]
        ends = {int(row["queue"]): (int(row["min"]), int(row["max"])) for row in bounds}
        queues = {}
        for queue_id in wanted:
            first, end = ends.get(queue_id, (0, 0))
            if isinstance(self._start, str):
                position = first if self._start == "first" else end
            else:
                position = self._offset_at(queue_id, self._start)
            queues[queue_id] = Queue(queue_id, position, end)
        self._queues = queues

    def _offset_at(self, queue_id: int, when: datetime | int) -> int:
        facts = {"topic": self.topic, "queue": queue_id, "time": to_ms(when), "boundary": "lower"}
        return int(self._caller.ask("offset_by_time", facts, self._timeout_ms).facts["offset"])

    def _go(self, queue: Queue, offset: int) -> None:
        """An answer to the pull that is out does not count any more."""
        self._pulls.pop(queue.request_id, None)
        queue.position, queue.request_id, queue.not_before = offset, 0, 0.0

    # --- pulls

    def _reach(self, deadline: float) -> Link | None:
        """The link, or None when the node is out of reach, though not for too long yet."""
        if self._pulls and min(queue.late for queue in self._pulls.values()) <= time.monotonic():
            self._caller.lose()
        try:
            link = self._caller.link(min(self._timeout_ms, remaining_ms(deadline)))
            self._begin()
        except NoAnswer:
            now = time.monotonic()
            since = self._out_of_reach_since = self._out_of_reach_since or now
            if (now - since) * 1000 >= self._timeout_ms:
                self._out_of_reach_since = None
                raise
            return None
        self._out_of_reach_since = None
        if link is not self._pulled_over:
            for queue in self._pulls.values():
                queue.request_id = 0
            self._pulls.clear()
            self._pulled_over = link
        return link

    def _send_pulls(self, link: Link) -> None:
        now = time.monotonic()
        for queue in self._queues.values():
            if not queue.request_id and not queue.paused and queue.not_before <= now:
                self._send_pull(link, queue, now)

    def _send_pull(self, link: Link, queue: Queue, now: float) -> None:
        request_id = self._caller.new_id()
        pull = Pull(
            request_id,
            self.topic.encode(),
            queue.queue_id,
            queue.position,
            self._max_count,
            self._max_bytes,
            self._suspend_ms,
            self._codes,
            self._sql,
            self._group,
        )
        if link.send(encode_pull(pull)):
            queue.request_id, queue.asked = request_id, now
            queue.late = now + (self._suspend_ms + LATE_MS) / 1000
            self._pulls[request_id] = queue

    def _wait(self, deadline: float) -> None:
        until = deadline
        for queue in self._queues.values():
            if queue.request_id:
                until = min(until, queue.late)
            elif not queue.paused:
                until = min(until, queue.not_before)
        self._caller.wait(remaining_ms(until))

    # --- answers

    def _take(self, link: Link, parts: list[Buffer]) -> Columns | None:
        """The records of an answer that are wanted; the next pull leaves before they are looked at."""
        if kind_of(parts[0]) != Kind.PULL_ANSWER:
            return None
        _, status, _, request_id, count, following, low, end, flags = expect(PULL_ANSWER, parts[0])
        queue = self._pulls.pop(request_id, None)
        if queue is None:
            return None
        if status == GetStatus.REFUSED and len(parts) == 2:
            queue.request_id, queue.not_before = 0, time.monotonic() + EMPTY_PAUSE_S  # it may be taken later
            raise _refusal(parts[1])
        self.far_behind = bool(flags & READ_FROM_SLAVE)
        if len(parts) != (3 if count else 1) or (count and following <= queue.position):
            raise MalformedFrame(f"an answer of {count} records in {len(parts)} parts leads to offset {following}")
        now = time.monotonic()
        queue.request_id, queue.end = 0, end
        if not count:
            following = self._nothing_came(queue, status, following, low, now)
        queue.position = following
        if not queue.paused and queue.not_before <= now:
            self._send_pull(link, queue, now)
        if not count:
            return None
        columns = Columns(parts[1], parts[2], queue_id=queue.queue_id)
        return self._filtered(columns) if self._wanted else columns

    def _nothing_came(self, queue: Queue, number: int, following: int, low: int, now: float) -> int:
        """Where reading goes on: where the node says, and never below what it still has."""
        try:
            status = GetStatus(number)
        except ValueError:
            raise MalformedFrame(f"an answer to a pull has the unknown status {number}") from None
        if status is GetStatus.OFFSET_TOO_SMALL:
            following = max(following, low)  # a slave corrects no offset, and would be asked for the same for ever
        if status in _DELETED:
            self.missed += max(0, following - queue.position)
        if following == queue.position:
            # A node that holds pulls answers late; one that does not must not be asked all the time.
            if now - queue.asked < max(EMPTY_PAUSE_S, self._suspend_ms / 2000):
                queue.not_before = now + EMPTY_PAUSE_S
        elif status is not GetStatus.NO_MATCHED_MESSAGE:
            self.moved.append(Moved(queue.queue_id, queue.position, following, status))
        return following

    def _filtered(self, columns: Columns) -> Columns | None:
        """The node compares hashes of tags; different tags may share one."""
        kept = np.fromiter((tag in self._wanted for tag in columns.tags()), dtype=np.bool_, count=len(columns))
        if kept.all():
            return columns
        return columns.select(kept) if kept.any() else None


def to_ms(when: datetime | int) -> int:
    """ms since 1970; a datetime without a zone is local time."""
    return int(when.timestamp() * 1000) if isinstance(when, datetime) else when


def _refusal(part: Buffer) -> FilterRefused | ReadRefused:
    facts = read_json(part)
    if facts.get("error") == PutStatus.NO_PERMISSION.name:
        return ReadRefused(str(facts.get("sentence", "")))
    position = facts.get("position")
    return FilterRefused(
        str(facts.get("error", "")), position if isinstance(position, int) else -1, str(facts.get("sentence", ""))
    )


def _tags(tags: str) -> set[str]:
    """Empty for every tag."""
    wanted = {tag.strip() for tag in tags.split(TAG_SEPARATOR)}
    if ANY_TAG in wanted:
        return set()
    if "" in wanted:
        raise ValueError(f"tags {tags!r}: write *, a tag, or several as 'a || b'")
    return wanted
