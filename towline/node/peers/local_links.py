"""Links of schedule to other processes of this node, and the requests that travel over them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from towline.errors import LinkRefused, MalformedFrame, NoAnswer, TowlineError
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    Buffer,
    Group,
    Kind,
    PutAnswer,
    decode_put_answer,
    encode_put,
    expect,
    json_part,
    kind_of,
    read_json,
)
from towline.link.context import Context
from towline.link.dealer import Link
from towline.link.poller import Poller

GREET_MS: Final = 50
RETRY_MS: Final = 100
RETRY_MAX_MS: Final = 1_000
WINDOW: Final = 64  # puts without an answer
# Put refuses what it takes up later than this. So a put without an answer is stored by then, or never.
DEADLINE_MS: Final = 1_000
ASKED_MS: Final = 60_000  # a question without an answer

Facts: TypeAlias = Mapping[str, Any]
Batch: TypeAlias = Sequence[tuple[bytes, int, Sequence[bytes]]]  # topic, queue, records; each queue once


class LocalLink:
    """A link that is connected again after each loss. `open` returns None while the other process is away.

    Nothing waits longer than GREET_MS.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        facts: Callable[[], Facts],
        poller: Poller,
        log: logging.Logger,
        *,
        urgent: bool = True,
    ) -> None:
        """`facts` raises FileNotFoundError while the secret for the greeting does not exist.

        A link that is not `urgent` is tried less often while the other process stays away, as a try blocks this
        process.
        """
        self._context, self._endpoint = context, endpoint
        self._facts, self._poller, self._log = facts, poller, log
        self._link: Link | None = None
        self._retry_at = 0
        self._retry_ms = RETRY_MS
        self._retry_max_ms = RETRY_MS if urgent else RETRY_MAX_MS
        self._last_warning = ""
        self.welcome: dict[str, Any] = {}

    def open(self, now_ms: int) -> Link | None:
        if self._link is not None and self._link.lost:
            self.lose(now_ms)
        if self._link is None and now_ms >= self._retry_at:
            self._connect(now_ms)
        return self._link

    def lose(self, now_ms: int, why: TowlineError | None = None) -> None:
        """Closes the link after trouble (H20); `open` connects another."""
        if why is not None:
            self._log.warning("the link to %s is closed: %s", self._endpoint, why)
        if self._link is not None:
            self._poller.remove(self._link)
            self._link.close()
            self._link = None
        self._retry_at = now_ms + RETRY_MS

    def close(self) -> None:
        self.lose(0)

    def _connect(self, now_ms: int) -> None:
        self._retry_at = now_ms + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, self._retry_max_ms)
        try:
            link = Link(self._context, self._endpoint, self._facts())
        except FileNotFoundError:
            return
        try:
            self.welcome = link.greet(GREET_MS)
        except (LinkRefused, NoAnswer, MalformedFrame) as error:
            link.close()
            if str(error) != self._last_warning:
                self._log.warning("%s", error)
            self._last_warning = str(error)
            return
        self._last_warning = ""
        self._retry_ms = RETRY_MS
        self._link = link
        self._poller.add(link)


@dataclass(slots=True)
class PendingPut:
    """A put without an answer; none will come after `late_ms` (monotonic)."""

    done: Callable[[PutAnswer | None], None]
    late_ms: int


class Outbox:
    """The puts of this process. `done` gets the answer, or None when the fate of a put is unknown."""

    def __init__(self, link: LocalLink, wall_ms: Callable[[], int], answer_ms: int) -> None:
        """`answer_ms`: how long put may wait for disk and slave."""
        self._link = link
        self._wall_ms = wall_ms
        self._answer_ms = answer_ms
        self._pending: dict[int, PendingPut] = {}
        self._asked: dict[int, Callable[[bool], None]] = {}
        self._next_id = 0
        self._open: Link | None = None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def has_room(self) -> bool:
        return self._open is not None and len(self._pending) < WINDOW

    def cycle(self, now_ms: int) -> int:
        """Receives answers; returns how many puts were answered or given up."""
        link = self._link.open(now_ms)
        if link is not self._open:
            self._open = link
            return self._give_up()
        if link is None:
            return 0
        done = 0
        try:
            while (parts := link.receive()) is not None:
                if kind_of(parts[0]) == Kind.ANSWER:
                    self._finish_question(expect(ANSWER, parts[0]))
                    continue
                if kind_of(parts[0]) != Kind.PUT_ANSWER:
                    raise MalformedFrame(f"put sent a message of kind {kind_of(parts[0])}")
                answer = decode_put_answer(parts[0])
                pending = self._pending.pop(answer.request_id, None)
                if pending is not None:
                    pending.done(answer)
                    done += 1
        except (LinkRefused, MalformedFrame):
            return done + self._lose(now_ms)
        oldest = next(iter(self._pending.values()), None)
        if link.lost or (oldest is not None and oldest.late_ms <= now_ms):
            done += self._lose(now_ms)
        return done

    def send(self, batch: Batch, now_ms: int, done: Callable[[PutAnswer | None], None]) -> bool:
        """Sends a batch, which is stored whole or not at all. False when nothing was sent."""
        groups = [Group(topic, queue_id, len(records), sum(map(len, records))) for topic, queue_id, records in batch]
        return self.send_joined(groups, b"".join(record for _, _, records in batch for record in records), now_ms, done)

    def send_joined(
        self, groups: Sequence[Group], records: Buffer, now_ms: int, done: Callable[[PutAnswer | None], None]
    ) -> bool:
        """Sends records that stand back to back, in the order of their groups; otherwise like `send`."""
        if self._open is None:
            return False
        self._next_id += 1
        head = encode_put(self._next_id, 0, self._wall_ms() + DEADLINE_MS, groups)
        if not self._open.send([head, records]):
            return False
        self._pending[self._next_id] = PendingPut(done, now_ms + DEADLINE_MS + self._answer_ms)
        return True

    def ask(self, op: str, done: Callable[[bool], None], **facts: Any) -> bool:
        """Sends a question. `done` is told whether put did what was asked; False when the answer was lost.

        Returns False when nothing was sent.
        """
        if self._open is None:
            return False
        self._next_id += 1
        if not self._open.send([ASK.pack(Kind.ASK, self._next_id), json_part({"op": op, **facts})]):
            return False
        self._asked[self._next_id] = done
        return True

    def _finish_question(self, head: tuple[Any, ...]) -> None:
        _, status, request_id, _ = head
        done = self._asked.pop(request_id, None)
        if done is not None:
            done(status == 0)

    def _lose(self, now_ms: int) -> int:
        self._link.lose(now_ms)
        self._open = None
        return self._give_up()

    def _give_up(self) -> int:
        left, self._pending = list(self._pending.values()), {}
        askers, self._asked = list(self._asked.values()), {}
        for pending in left:
            pending.done(None)
        for done in askers:
            done(False)
        return len(left)


class GroupOffsetsReporter:
    """Commits to serve, which keeps all groups' offsets (H23), from where RocketMQ continues transactions on this
    store."""

    def __init__(self, link: LocalLink, group: str, topics: Sequence[str], pause_ms: int, log: logging.Logger) -> None:
        self._link, self._group, self._topics = link, group, topics
        self._pause_ms, self._log = pause_ms, log
        self._asked: tuple[int, int] | None = None  # request id, when it is given up
        self._next_id = 0
        self._retry_at = 0
        self._saved: tuple[int, ...] | None = None
        self._wanted: tuple[int, ...] | None = None
        self._last_warning = ""

    def cycle(self, now_ms: int, offsets: tuple[int, ...]) -> None:
        link = self._link.open(now_ms)
        if link is None:
            self._asked = None
            return
        try:
            while (parts := link.receive()) is not None:
                self._answered(expect(ANSWER, parts[0]), read_json(parts[1]))
        except (LinkRefused, MalformedFrame) as error:
            self._tell(str(error))
            self._link.lose(now_ms)
            return
        if self._asked is not None and self._asked[1] <= now_ms:
            self._link.lose(now_ms)
            self._asked = None
        elif self._asked is None and now_ms >= self._retry_at and offsets != self._saved:
            self._retry_at = now_ms + self._pause_ms
            self._ask(link, now_ms, offsets)

    def save(self, now_ms: int, offsets: tuple[int, ...]) -> None:
        """Commits once more when the process ends, without waiting for the answer."""
        link = self._link.open(now_ms)
        if link is not None and offsets != self._saved:
            self._ask(link, now_ms, offsets)

    def _ask(self, link: Link, now_ms: int, offsets: tuple[int, ...]) -> None:
        table = {topic: {"0": offset} for topic, offset in zip(self._topics, offsets, strict=True)}
        facts = {"op": "group_commit", "group": self._group, "offsets": table}
        self._next_id += 1
        if link.send([ASK.pack(Kind.ASK, self._next_id), json_part(facts)]):
            self._asked = (self._next_id, now_ms + ASKED_MS)
            self._wanted = offsets

    def _answered(self, head: tuple[Any, ...], facts: dict[str, Any]) -> None:
        _, status, request_id, _ = head
        if self._asked is None or request_id != self._asked[0]:
            return
        self._asked = None
        if status:
            self._tell(f"group_commit: {facts.get('error')}: {facts.get('sentence')}")
        else:
            self._saved = self._wanted

    def _tell(self, trouble: str) -> None:
        if trouble != self._last_warning:
            self._log.error("the offsets of transactions: %s", trouble)
        self._last_warning = trouble
