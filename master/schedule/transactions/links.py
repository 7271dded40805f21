"""Links to other pieces of this node, made again when they are lost, and what travels over them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
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
AGAIN_MS: Final = 100
AGAIN_MAX_MS: Final = 1_000
WINDOW: Final = 64  # puts without an answer
# Put refuses what it takes up later than this. So a put without an answer is stored by then, or never.
DEADLINE_MS: Final = 1_000
ASKED_MS: Final = 60_000  # a question without an answer

Facts: TypeAlias = Mapping[str, Any]
Batch: TypeAlias = Sequence[tuple[bytes, int, Sequence[bytes]]]  # topic, queue, records; each queue once


class LocalLink:
    """`open` gives the greeted link, None while the other piece is away. Nothing waits longer than GREET_MS."""

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
        """`facts` raises FileNotFoundError while there is nothing to greet with yet.

        What is not `urgent` is tried less often while the other piece stays away: a try holds the process up.
        """
        self._context, self._endpoint = context, endpoint
        self._facts, self._poller, self._log = facts, poller, log
        self._link: Link | None = None
        self._again_at = 0
        self._again_ms = AGAIN_MS
        self._again_max_ms = AGAIN_MS if urgent else AGAIN_MAX_MS
        self._told = ""
        self.welcome: dict[str, Any] = {}

    def open(self, now_ms: int) -> Link | None:
        if self._link is not None and self._link.lost:
            self.lose(now_ms)
        if self._link is None and now_ms >= self._again_at:
            self._connect(now_ms)
        return self._link

    def lose(self, now_ms: int) -> None:
        """It is not used again after trouble (H20)."""
        if self._link is not None:
            self._poller.remove(self._link)
            self._link.close()
            self._link = None
        self._again_at = now_ms + AGAIN_MS

    def close(self) -> None:
        self.lose(0)

    def _connect(self, now_ms: int) -> None:
        self._again_at = now_ms + self._again_ms
        self._again_ms = min(2 * self._again_ms, self._again_max_ms)
        try:
            link = Link(self._context, self._endpoint, self._facts())
        except FileNotFoundError:
            return
        try:
            self.welcome = link.greet(GREET_MS)
        except (LinkRefused, NoAnswer, MalformedFrame) as error:
            link.close()
            if str(error) != self._told:
                self._log.warning("%s", error)
            self._told = str(error)
            return
        self._told = ""
        self._again_ms = AGAIN_MS
        self._link = link
        self._poller.add(link)


@dataclass(slots=True)
class Sending:
    """A put without an answer. `late_ms`: then there will be none (monotonic)."""

    done: Callable[[PutAnswer | None], None]
    late_ms: int


class Outbox:
    """Puts of this process. `done` gets the answer, or None when what became of the put is not known."""

    def __init__(self, link: LocalLink, wall_ms: Callable[[], int], answer_ms: int) -> None:
        """`answer_ms`: how long put may wait for disk and slave."""
        self._link = link
        self._wall_ms = wall_ms
        self._answer_ms = answer_ms
        self._sending: dict[int, Sending] = {}
        self._asked: dict[int, Callable[[bool], None]] = {}
        self._next_id = 0
        self._open: Link | None = None

    def __len__(self) -> int:
        return len(self._sending)

    @property
    def has_room(self) -> bool:
        return self._open is not None and len(self._sending) < WINDOW

    def turn(self, now_ms: int) -> int:
        """How many puts were answered or given up."""
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
                    self._tell_asker(expect(ANSWER, parts[0]))
                    continue
                if kind_of(parts[0]) != Kind.PUT_ANSWER:
                    raise MalformedFrame(f"put sent a message of kind {kind_of(parts[0])}")
                answer = decode_put_answer(parts[0])
                sending = self._sending.pop(answer.request_id, None)
                if sending is not None:
                    sending.done(answer)
                    done += 1
        except (LinkRefused, MalformedFrame):
            return done + self._lose(now_ms)
        oldest = next(iter(self._sending.values()), None)
        if link.lost or (oldest is not None and oldest.late_ms <= now_ms):
            done += self._lose(now_ms)
        return done

    def send(self, batch: Batch, now_ms: int, done: Callable[[PutAnswer | None], None]) -> bool:
        """False when nothing was sent. All of the batch is stored, or nothing of it."""
        groups = [Group(topic, queue_id, len(records), sum(map(len, records))) for topic, queue_id, records in batch]
        return self.send_joined(groups, b"".join(record for _, _, records in batch for record in records), now_ms, done)

    def send_joined(
        self, groups: Sequence[Group], records: Buffer, now_ms: int, done: Callable[[PutAnswer | None], None]
    ) -> bool:
        """The same for records that stand back to back, in the order of their groups."""
        if self._open is None:
            return False
        self._next_id += 1
        head = encode_put(self._next_id, 0, self._wall_ms() + DEADLINE_MS, groups)
        if not self._open.send([head, records]):
            return False
        self._sending[self._next_id] = Sending(done, now_ms + DEADLINE_MS + self._answer_ms)
        return True

    def ask(self, op: str, done: Callable[[bool], None], **facts: Any) -> bool:
        """A question; `done` gets whether put did what was asked, False when its answer was lost. False: not sent."""
        if self._open is None:
            return False
        self._next_id += 1
        if not self._open.send([ASK.pack(Kind.ASK, self._next_id), json_part({"op": op, **facts})]):
            return False
        self._asked[self._next_id] = done
        return True

    def _tell_asker(self, head: tuple[Any, ...]) -> None:
        _, status, request_id, _ = head
        done = self._asked.pop(request_id, None)
        if done is not None:
            done(status == 0)

    def _lose(self, now_ms: int) -> int:
        self._link.lose(now_ms)
        self._open = None
        return self._give_up()

    def _give_up(self) -> int:
        left, self._sending = list(self._sending.values()), {}
        askers, self._asked = list(self._asked.values()), {}
        for sending in left:
            sending.done(None)
        for done in askers:
            done(False)
        return len(left)


class Offsets:
    """Tells serve, which keeps the offsets of all groups (H23), what a RocketMQ broker goes on from on this store."""

    def __init__(self, link: LocalLink, group: str, topics: Sequence[str], pause_ms: int, log: logging.Logger) -> None:
        self._link, self._group, self._topics = link, group, topics
        self._pause_ms, self._log = pause_ms, log
        self._asked: tuple[int, int] | None = None  # request id, when it is given up
        self._next_id = 0
        self._again_at = 0
        self._saved: tuple[int, ...] | None = None
        self._wanted: tuple[int, ...] | None = None
        self._told = ""

    def turn(self, now_ms: int, offsets: tuple[int, ...]) -> None:
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
        elif self._asked is None and now_ms >= self._again_at and offsets != self._saved:
            self._again_at = now_ms + self._pause_ms
            self._ask(link, now_ms, offsets)

    def save(self, now_ms: int, offsets: tuple[int, ...]) -> None:
        """Without waiting for the answer, when the process ends."""
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
        if trouble != self._told:
            self._log.error("the offsets of transactions: %s", trouble)
        self._told = trouble
