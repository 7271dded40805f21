"""Reads one topic from one group of nodes: a link, the queues with their positions, one pull request for each.

Nothing here waits, except for the answers about first positions, and for a link as long as the caller allows.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from towline.client.columns import Columns
from towline.client.errors import AskRefused, DamagedMessage, FilterRefused, ReadRefused
from towline.client.link.rpc import AGAIN_MS, Caller, encode_ask
from towline.errors import (
    MalformedFrame,
    MalformedRecord,
    NoAnswer,
    QueueDamaged,
    TowlineError,
    UnknownQueue,
    UnknownTopic,
)
from towline.format.wire.frames import (
    ANSWER,
    PULL_ANSWER,
    READ_FROM_SLAVE,
    RECORDS_IN_FILE,
    Buffer,
    Kind,
    Pull,
    encode_pull,
    expect,
    kind_of,
    read_json,
)
from towline.format.wire.status import GetStatus, PutStatus
from towline.link.log_files import LogFiles
from towline.link.permissions import NotPermitted
from towline.link.wire import Link

from .checks import Checks, parsed, placed
from .follower import Follower
from .log_tail import LogTail

Start: TypeAlias = Literal["first", "last"] | datetime | int

LATE_MS: Final = 5_000  # a held pull that is not answered this long after its time means a dead link
EMPTY_PAUSE_S: Final = 0.1  # between pulls that a node answers at once although it has nothing
GONE_PAUSE_S: Final = 1.0  # between pulls of a queue that the topic does not have any more
UNREAD_MAX: Final = 64  # answers in the log's files that cannot be read, one after the other
MOVES_MAX: Final = 1_000
FOLLOWED_QUEUES_MAX: Final = 256  # the node tells the ends of all of them each second
LOOK_AT_LINK_S: Final = 0.01  # while the log's end is followed
_DELETED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING)


@dataclass(frozen=True, slots=True)
class Moved:
    """A move of a position: the node had nothing there, and messages may have been skipped."""

    queue_id: int
    from_offset: int
    to_offset: int
    status: GetStatus
    broker_name: str = ""  # of the group of nodes, where there are several


@dataclass(slots=True)
class Queue:
    """The position in a queue. `request_id` is the pull under way, 0 for none. Times are monotonic seconds."""

    queue_id: int
    position: int
    end: int  # offset after the newest readable record, as last heard
    request_id: int = 0
    asked: float = 0.0
    late: float = 0.0
    not_before: float = 0.0
    paused: bool = False
    sent: bool = False  # the next records have to be sent: the file that holds them cannot be read
    pulled_from: int = 0  # the position when the pull left


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of a reader. `tags` are compared on arrival: the node compares their hashes `codes`."""

    topic: str
    tags: frozenset[bytes]
    codes: tuple[int, ...]
    sql: str
    group: str
    queues: Sequence[int] | None
    start: Start
    max_count: int
    max_bytes: int
    suspend_ms: int
    timeout_ms: int
    reads_files: bool
    check_crcs: bool

    @property
    def subscription(self) -> dict[str, str]:
        """The topic, and the tags by name for those who do not compare hashes."""
        names = b" || ".join(sorted(self.tags)).decode()
        return {"topic": self.topic, "tags": names} if names else {"topic": self.topic}


class Reader:
    """Reads the queues of one topic. Used by one thread.

    `moved` may be shared with other readers; `name` is the group's.
    """

    def __init__(self, name: str, wanted: Wanted, caller: Caller, moved: deque[Moved], checks: Checks) -> None:
        self.name = name
        self._checks = checks
        self.moved = moved
        self.missed = 0
        self.far_behind = False
        self.queues: dict[int, Queue] = {}
        self._wanted = wanted
        self._caller = caller
        self._pulls: dict[int, Queue] = {}
        self._pulled_over: Link | None = None
        self._files: LogFiles | None = None  # of the node at the other end of that link
        self._unread = 0  # how often in a row a file of it could not be read
        self._follower: Follower | None = None  # of the log of that node
        self._look_at_link = 0.0  # when to, while following
        self._was_absent = False  # the topic, when this began: all that it has now came later
        self._epoch = 0  # of the master under which the positions were read
        self._out_of_reach_since: float | None = None

    @property
    def at_end(self) -> bool:
        """Whether all that was readable at the node's last answer has come, in every queue that is not paused."""
        return bool(self.queues) and all(queue.paused or queue.position >= queue.end for queue in self.queues.values())

    def poll(self, timeout_ms: int) -> Columns | None:
        """The next records that have arrived, or None. `timeout_ms` is for making a link.

        Raises UnknownTopic, UnknownQueue of one that was asked for by number, NoAnswer when the node is out of reach
        for too long, FilterRefused, ReadRefused, DamagedMessage, LinkRefused, ClientClosed.
        """
        if self.follows:
            columns = self._follow()
            if columns is not None or (self.follows and time.monotonic() < self._look_at_link):
                return columns
        link = self._reach(timeout_ms)
        if link is None:
            return None
        self._send_pulls(link)
        while (parts := self._caller.receive(link)) is not None:
            columns = self._accept(link, parts)
            if columns is not None:
                return columns
        return None

    @property
    def follows(self) -> bool:
        """Whether it reads the log's end by itself: then it has to be polled after `rest_s`."""
        return self._follower is not None and self._follower.follows and self._caller.closed is None

    @property
    def rest_s(self) -> float:
        """Seconds until the log's end is to be looked at again, while it `follows`."""
        assert self._follower is not None
        return self._follower.rest_s(time.monotonic())

    @property
    def is_linked(self) -> bool:
        return self._caller.connection.is_open

    @property
    def has_kept(self) -> bool:
        """Whether messages came while an answer was waited for."""
        return self._caller.has_kept

    def due(self, deadline: float) -> float:
        """When to poll again, at most `deadline`."""
        if self._caller.connection.link is None:
            return min(deadline, time.monotonic() + AGAIN_MS / 1000)
        until = deadline
        if "tend_ms" in self._caller.welcome:  # the link has others to leave when they are silent
            until = min(until, time.monotonic() + self._caller.welcome["tend_ms"] / 1000)
        waits = self._holds_pulls()
        if waits:
            until = min(until, time.monotonic() + AGAIN_MS / 10_000)
        for queue in self.queues.values():
            if queue.request_id:
                until = min(until, queue.late)
            elif not queue.paused and not waits:
                until = min(until, queue.not_before)
        return until

    def close(self) -> None:
        self._close_files()
        self._close_follower()
        self._caller.close()

    # --- the first positions

    def begin(self) -> None:
        if self.queues:
            return
        try:
            facts = self._caller.ask("route", self._wanted.subscription, self._wanted.timeout_ms).facts
        except UnknownTopic:
            self._was_absent = True
            raise
        there = range(int(facts["read_queues"]))
        wanted = there if self._wanted.queues is None else self._wanted.queues
        for queue_id in wanted:
            if queue_id not in there:
                raise UnknownQueue(self._wanted.topic, queue_id)
        while True:
            epoch = self._caller.connection.epoch
            queues = self._first_positions(wanted)
            if epoch == self._caller.connection.epoch:  # otherwise some were another master's
                break
        self.queues, self._epoch = queues, epoch

    def _first_positions(self, wanted: Sequence[int]) -> dict[int, Queue]:
        bounds = self._caller.ask("bounds", {"topic": self._wanted.topic}, self._wanted.timeout_ms).facts["queues"]
        ends = {int(row["queue"]): (int(row["min"]), int(row["max"])) for row in bounds}
        queues = {}
        for queue_id in wanted:
            first, end = ends.get(queue_id, (0, 0))
            if isinstance(self._wanted.start, str):
                position = first if self._wanted.start == "first" or self._was_absent else end
            else:
                position = self.offset_at(queue_id, self._wanted.start)
            queues[queue_id] = Queue(queue_id, position, end)
        return queues

    def _reconcile(self) -> None:
        """Under another master than before: what it does not have of what we read comes again under the same numbers,
        as other messages, and is not passed over (H15)."""
        epoch = self._caller.connection.epoch
        if epoch > self._epoch:
            facts = {"topic": self._wanted.topic, "epoch": self._epoch}
            ends = self._caller.ask("epoch_ends", facts, self._wanted.timeout_ms).facts["ends"]
            for queue in self.queues.values():
                end = int(ends.get(str(queue.queue_id), queue.position))
                if end < queue.position:
                    self.moved.append(Moved(queue.queue_id, queue.position, end, GetStatus.OFFSET_RESET, self.name))
                    self.seek(queue, end)
            self._epoch = epoch

    def offset_at(self, queue_id: int, when: datetime | int) -> int:
        facts = {"topic": self._wanted.topic, "queue": queue_id, "time": to_ms(when), "boundary": "lower"}
        return int(self._caller.ask("offset_by_time", facts, self._wanted.timeout_ms).facts["offset"])

    def seek(self, queue: Queue, offset: int) -> None:
        """Moves the queue to `offset`; the answer to a pull under way does not count any more."""
        if self._follower is not None:
            self._follower.leave()
        self._pulls.pop(queue.request_id, None)
        queue.position, queue.request_id, queue.not_before = offset, 0, 0.0
        if offset > queue.end:
            queue.end = offset + 1  # the node has not said yet that nothing is there

    # --- the link

    def _reach(self, timeout_ms: int) -> Link | None:
        """The link, or None when the node is out of reach, though not for too long yet."""
        if self._pulls and min(queue.late for queue in self._pulls.values()) <= time.monotonic():
            self._caller.disconnect()
        if self._follower is not None and not self._follower.is_current:
            self._caller.disconnect()  # it belongs to an earlier start of the node
            self._close_follower()
        try:
            link = self._caller.link(min(self._wanted.timeout_ms, timeout_ms))
            self.begin()
            if link is not self._pulled_over:
                self._reconcile()
            if link is not self._caller.connection.link:
                return None  # it was lost over a question
        except NoAnswer:
            now = time.monotonic()
            since = self._out_of_reach_since = self._out_of_reach_since or now
            if (now - since) * 1000 >= self._wanted.timeout_ms:
                self._out_of_reach_since = None
                raise
            return None
        self._out_of_reach_since = None
        if link is not self._pulled_over:
            for queue in self._pulls.values():
                queue.request_id = 0
            self._pulls.clear()
            self._pulled_over = link
            self._close_files()
            self._close_follower()
            self._unread = 0
            if self._wanted.reads_files:
                self._files = LogFiles.of(self._caller.connection.endpoint, self._caller.welcome)
                self._follower = self._new_follower(link)
        return link

    def _new_follower(self, link: Link) -> Follower | None:
        """None where the log cannot be read here, or the node has to evaluate a filter."""
        tail = LogTail.of(self._caller.connection.endpoint, self._caller.welcome) if not self._wanted.sql else None
        if tail is None:
            return None

        def ask(facts: dict[str, Any]) -> int:
            request_id = self._caller.new_id()
            return request_id if link.send(encode_ask(request_id, "follow", facts)) else 0

        return Follower(tail, self._wanted.topic.encode(), ask)

    def _close_files(self) -> None:
        """From here on records have to be sent."""
        if self._files is not None:
            self._files.close()
            self._files = None

    def _close_follower(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    # --- without pulls

    def _holds_pulls(self) -> bool:
        return self._follower is not None and self._follower.holds_pulls()

    def _follow(self) -> Columns | None:
        """The next wanted records of the log's end."""
        assert self._follower is not None
        while (found := self._follower.take(time.monotonic())) is not None:
            queue = self.queues[found.queue_id]
            queue.position = found.following
            queue.end = max(queue.end, found.following)
            self._follower.count(found)
            columns = self._sound(queue, found.sizes, found.records, found.first, found.following)
            if columns is not None:
                return columns
        return None

    def _begin_to_follow(self, follower: Follower, now: float) -> None:
        """Pulls that are under way stay: where nothing comes meanwhile, they are still right afterwards."""
        if not follower.needs_positions:
            return
        positions = {queue.queue_id: queue.position for queue in self.queues.values() if not queue.paused}
        if follower.follows:
            if positions.keys() != follower.queues:
                follower.leave()
            self._look_at_link = now + LOOK_AT_LINK_S
        elif follower.begin(positions, now):
            self._look_at_link = now + LOOK_AT_LINK_S

    # --- pulls

    def _send_pulls(self, link: Link) -> None:
        now = time.monotonic()
        if self._follower is not None:
            self._begin_to_follow(self._follower, now)
            if self._follower.holds_pulls():
                return
        for queue in self.queues.values():
            if not queue.request_id and not queue.paused and queue.not_before <= now:
                self._send_pull(link, queue, now)

    def _send_pull(self, link: Link, queue: Queue, now: float) -> None:
        request_id = self._caller.new_id()
        pull = Pull(
            request_id,
            self._wanted.topic.encode(),
            queue.queue_id,
            queue.position,
            self._wanted.max_count,
            self._wanted.max_bytes,
            self._wanted.suspend_ms,
            self._wanted.codes,
            self._wanted.sql,
            self._wanted.group,
            self._files is not None and not queue.sent,
        )
        if link.send(encode_pull(pull)):
            queue.request_id, queue.asked, queue.pulled_from = request_id, now, queue.position
            queue.late = now + (self._wanted.suspend_ms + LATE_MS) / 1000
            self._pulls[request_id] = queue

    # --- answers

    def _accept(self, link: Link, parts: list[Buffer]) -> Columns | None:
        """The records of an answer that are wanted; the next pull leaves before they are read."""
        kind = kind_of(parts[0])
        if kind == Kind.ANSWER and self._follower is not None:
            _, refused, answered_id, _ = expect(ANSWER, parts[0])
            self._follower.answered(answered_id, None if refused else read_json(parts[1]), time.monotonic())
        if kind != Kind.PULL_ANSWER:
            return None
        _, status, _, request_id, count, following, low, end, flags = expect(PULL_ANSWER, parts[0])
        queue = self._pulls.pop(request_id, None)
        if queue is None:
            return None
        queue.request_id = 0
        if queue.pulled_from != queue.position or (count and self.follows):
            return None  # what it brings is read without it
        if status == GetStatus.REFUSED and len(parts) == 2:
            self._handle_refusal(queue, refusal_of(parts[1], self._wanted.topic, queue.queue_id))
            return None
        self.far_behind = bool(flags & READ_FROM_SLAVE)
        if len(parts) != (3 if count else 1) or (count and following <= queue.position):
            raise MalformedFrame(f"an answer of {count} records in {len(parts)} parts leads to offset {following}")
        now = time.monotonic()
        queue.end, asked_for = end, queue.position
        if not count:
            following = self._nothing_came(queue, status, following, low, now)
        queue.position = following
        if count and self._follower is not None and len(self.queues) <= FOLLOWED_QUEUES_MAX:
            self._follower.arrived(count, end - following, now)
        if not queue.paused and queue.not_before <= now and not self._holds_pulls():
            self._send_pull(link, queue, now)
        if not count:
            return None
        try:
            records = self._read(parts[2]) if flags & RECORDS_IN_FILE else parts[2]
            queue.sent = records is None
            if records is None:
                self.seek(queue, asked_for)
                return None
            return self._sound(queue, parts[1], records, asked_for, following)
        except (MalformedFrame, MalformedRecord):
            self.seek(queue, asked_for)  # whoever polls on gets them again
            raise

    def _sound(self, queue: Queue, sizes: Buffer, records: Buffer, first: int, following: int) -> Columns | None:
        """What is wanted of an answer, up to a damaged message, which is met when nothing stands before it any more."""
        found = parsed(sizes, records, self._wanted.topic, queue.queue_id, self.name, first)
        if self._wanted.check_crcs:
            found = placed(found, self._wanted.topic, first, following, first)
        columns, damage = found.sound, found.damage
        if columns is not None and self._wanted.tags:
            columns = self._filtered(columns)
        if columns is not None and self._wanted.check_crcs:
            checked = self._checks.check(columns, self._wanted.topic)
            columns, damage = checked.sound, checked.damage or damage
        if damage is not None:
            self._stop_before(queue, damage, first)
            if columns is None:
                raise damage
        return columns

    def _stop_before(self, queue: Queue, damage: DamagedMessage, first: int) -> None:
        """Never before `first`: a number that is damaged too leads back to nothing that was read."""
        self.seek(queue, max(first, min(damage.queue_offset, queue.position - 1)))

    def _handle_refusal(self, queue: Queue, error: TowlineError) -> None:
        """The position stays, as it may be read later. A queue that nobody asked for by number is waited for."""
        queue.not_before = time.monotonic() + EMPTY_PAUSE_S
        if self._wanted.queues is not None or not isinstance(error, UnknownQueue):
            raise error
        queue.end, queue.not_before = queue.position, time.monotonic() + GONE_PAUSE_S

    def _read(self, place: Buffer) -> Buffer | None:
        """One file may have been deleted just now, with pulls of every queue under way; where more cannot be read, none
        is tried over this link any more."""
        found = self._files.read(place) if self._files is not None else None
        self._unread = self._unread + 1 if found is None else 0
        if self._unread > min(len(self.queues), UNREAD_MAX):
            self._close_files()
        return found

    def _nothing_came(self, queue: Queue, number: int, following: int, low: int, now: float) -> int:
        """Where reading goes on: where the node says, and never below what it still has."""
        try:
            status = GetStatus(number)
        except ValueError:
            raise MalformedFrame(f"an answer to a pull has the unknown status {number}") from None
        if self._files is not None:
            self._files.close()
        if status is GetStatus.OFFSET_TOO_SMALL:
            following = max(following, low)  # a slave corrects no offset, and would be asked for the same for ever
        if status is GetStatus.NO_MATCHED_LOGIC_QUEUE:
            following = queue.position  # it may come back, with all its messages
        if status in _DELETED:
            self.missed += max(0, following - queue.position)
        if following == queue.position:
            # A node that holds pulls answers late; one that does not must not be asked all the time.
            if now - queue.asked < max(EMPTY_PAUSE_S, self._wanted.suspend_ms / 2000):
                queue.not_before = now + EMPTY_PAUSE_S
        elif status is not GetStatus.NO_MATCHED_MESSAGE:
            self.moved.append(Moved(queue.queue_id, queue.position, following, status, self.name))
        return following

    def _filtered(self, columns: Columns) -> Columns | None:
        """The node compares hashes of tags; different tags may share one."""
        kept = np.fromiter((tag in self._wanted.tags for tag in columns.tags()), dtype=np.bool_, count=len(columns))
        if kept.all():
            return columns
        return columns.select(kept) if kept.any() else None


def to_ms(when: datetime | int) -> int:
    """The time in ms since 1970; a datetime without a zone is local time."""
    return int(when.timestamp() * 1000) if isinstance(when, datetime) else when


def refusal_of(part: Buffer, topic: str, queue_id: int) -> TowlineError:
    """Why a pull of this queue was refused."""
    facts = read_json(part)
    error, sentence = str(facts.get("error", "")), str(facts.get("sentence", ""))
    if error == PutStatus.NO_PERMISSION.name:
        return ReadRefused(topic, sentence)
    if error == UnknownTopic.__name__:
        return UnknownTopic(topic)
    if error == UnknownQueue.__name__:
        return UnknownQueue(topic, queue_id)
    if error == NotPermitted.__name__:
        return AskRefused("pull", error, sentence.removesuffix(f"; {facts.get('remedy', '')}"), str(facts["remedy"]))
    if error == QueueDamaged.__name__:
        return QueueDamaged(topic, queue_id, int(facts["offset"]), str(facts["problem"]))
    return FilterRefused.of(facts)
