"""Questions to a node (ASK and ANSWER) and their replies, from the client's own thread or handed to an I/O thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from towline.client.columns import Columns
from towline.client.errors import AskRefused, ClientClosed, ClientForked, FilterRefused, NotInRocketmq
from towline.errors import LinkRefused, MalformedFrame, NoAnswer, TowlineError, UnknownTopic
from towline.format.wire.frames import ANSWER, ASK, Buffer, Kind, expect, json_part, kind_of, read_json
from towline.link.context import Context, close_context, new_context
from towline.link.dealer import await_any
from towline.link.poller import Poller
from towline.link.unclosed import call_in_child
from towline.link.wire import Link

from .connection import NOT_MASTER, STARTING, Connection, remaining_ms
from .endpoints import Endpoints, Fit, anybody

AGAIN_MS: Final = 10  # between attempts to reach a node
TEND_MS: Final = 500  # a link that waits for others is tended so often
ATTEMPT_S: Final = 2.0  # one node's share of the time, where there are others


@dataclass(slots=True)
class Reply:
    """An answer: JSON facts, and records where the question asked for some."""

    facts: dict[str, Any]
    columns: Columns


class AskedNoMaster(AskRefused):
    """A question that only a master answers. `facts` may have the endpoints of the one that the node knows."""

    facts: dict[str, Any]
    advice = "give the endpoints of all nodes, so that the master is found"


def encode_ask(request_id: int, op: str, facts: dict[str, Any]) -> list[bytes]:
    return [ASK.pack(Kind.ASK, request_id), json_part({"op": op, **facts})]


def read_answer(op: str, facts: dict[str, Any], parts: list[Buffer]) -> Reply:
    """The reply in an answer. Raises UnknownTopic, FilterRefused, AskRefused, MalformedFrame."""
    _, status, _, count = expect(ANSWER, parts[0])
    if len(parts) != (4 if count else 2):
        raise MalformedFrame(f"an answer with {count} records in {len(parts)} parts")
    answer = read_json(parts[1])
    if status:
        error, advised = str(answer.get("error", "")), str(answer.get("remedy", ""))
        sentence = str(answer.get("sentence", "")).removesuffix(f"; {advised}")
        if error in ("UnknownTopic", "TOPIC_NOT_EXIST"):
            raise UnknownTopic(str(facts.get("topic", "")))
        if error == NOT_MASTER:
            raise AskedNoMaster(op, error, sentence, advised, answer)
        if error in FilterRefused.NAMES:
            raise FilterRefused.of(answer)
        if error == NotInRocketmq.NAME:
            raise NotInRocketmq(op, error, sentence, advised)
        raise AskRefused(op, error, sentence, advised)
    sizes, records = (parts[2], parts[3]) if count else (b"", b"")
    return Reply(answer, Columns(sizes, records))


class Caller:
    """Asks a node and waits for the answer, over a link that reconnects. Used by one thread.

    Messages that are no answers to questions are kept for `receive`.
    """

    def __init__(
        self,
        endpoints: Endpoints | Callable[[], Endpoints],
        facts: Mapping[str, str],
        context: Context | None = None,
        poller: Poller | None = None,
        fit: Fit = anybody,
    ) -> None:
        """`context` and `poller` may be others' too; whoever gives them closes them."""
        self._facts = facts
        self._own_context = context is None
        self._context = context or new_context()
        self._poller = poller or Poller()
        try:
            self._connection = Connection(self._context, endpoints, facts, self._poller, fit)
        except TowlineError:
            if self._own_context:
                close_context(self._context)
            raise
        self._kept: deque[list[Buffer]] = deque()
        self._next_id = 0
        self.closed: ClientClosed | None = None
        call_in_child(self)

    @property
    def welcome(self) -> dict[str, Any]:
        """The node's welcome; empty before the first link."""
        return self._connection.welcome

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def link(self, timeout_ms: int) -> Link:
        """The greeted link. Raises NoAnswer, LinkRefused, ClientClosed."""
        if self.closed is not None:
            raise self.closed
        link = self._connection.link
        if link is not None and link.lost:
            self.disconnect()
        return self._connection.open(timeout_ms)

    @property
    def connection(self) -> Connection:
        return self._connection

    def disconnect(self) -> None:
        """Closes the link, with messages that came over it."""
        self._connection.move_on()
        self._kept.clear()

    @property
    def has_kept(self) -> bool:
        """Whether `receive` has a message that came earlier."""
        return bool(self._kept)

    def receive(self, link: Link) -> list[Buffer] | None:
        """The next message, kept or new."""
        return self._kept.popleft() if self._kept else link.receive()

    def wait(self, timeout_ms: int) -> None:
        """Waits for the next message."""
        if not self._kept:
            self._poller.poll(timeout_ms)

    def ask(self, op: str, facts: dict[str, Any], timeout_ms: int) -> Reply:
        """Asks a question, again over a new link when its link is lost: answering twice does no harm.

        And over the same one of a node that has started and does not know the answer yet.
        Raises UnknownTopic, AskRefused, NoAnswer after `timeout_ms`, LinkRefused, ClientClosed.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        why = f"the question {op!r} was not answered"
        while (remaining := remaining_ms(deadline)) > 0:
            try:
                link = self.link(remaining)
            except NoAnswer as error:
                if remaining_ms(deadline) == 0:
                    raise NoAnswer(error.endpoint, timeout_ms, error.trouble) from None
                await_any((), AGAIN_MS)
                continue
            choice = self._connection.has_choice
            try:
                parts = self._ask_once(
                    link, op, facts, min(deadline, time.monotonic() + ATTEMPT_S if choice else deadline)
                )
                if parts is not None:
                    return read_answer(op, facts, parts)
                self.disconnect()
            except LinkRefused:
                if not choice:
                    raise
                self.disconnect()
            except AskedNoMaster as error:
                self._connection.learn(self._connection.led_to(error.facts))
                if not self._connection.has_choice or remaining_ms(deadline) <= AGAIN_MS:
                    raise
                self.disconnect()
                self._poller.poll(AGAIN_MS)
            except AskRefused as error:
                if error.error != STARTING:
                    raise
                why = error.sentence
                self._poller.poll(min(AGAIN_MS, remaining_ms(deadline)))
        raise NoAnswer(self._connection.endpoint, timeout_ms, why)

    def _ask_once(self, link: Link, op: str, facts: dict[str, Any], deadline: float) -> list[Buffer] | None:
        request_id = self.new_id()
        asked = link.send(encode_ask(request_id, op, facts))
        while asked and not link.lost:
            parts = link.receive()
            if parts is None:
                remaining = remaining_ms(deadline)
                if remaining == 0:
                    return None
                self._poller.poll(min(remaining, TEND_MS))
            elif kind_of(parts[0]) != Kind.ANSWER:
                self._kept.append(parts)
            elif expect(ANSWER, parts[0])[2] == request_id:
                return parts
        return None

    def close(self) -> None:
        if self.closed is None:
            self.closed = ClientClosed("client")
            self._connection.close()
            if self._own_context:
                close_context(self._context)

    def forked(self) -> None:
        self.closed = ClientForked.here("client")


@dataclass(slots=True, eq=False)
class PendingCall:
    """A question of another thread, and its reply or error. `told` is called with it, on the thread that got it: nobody
    waits for such a question, and it keeps no producer from its end."""

    op: str
    facts: dict[str, Any]
    timeout_ms: int
    deadline: float
    request_id: int = 0
    asked_at: float = 0.0
    answered: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None
    error: TowlineError | None = None
    told: "Callable[[Reply | None, TowlineError | None], None] | None" = None

    def finish(self, reply: Reply | None, error: TowlineError | None) -> None:
        self.reply, self.error = reply, error
        self.answered.set()
        if self.told is not None:
            self.told(reply, error)
