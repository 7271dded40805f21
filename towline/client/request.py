"""Requests and their replies, by the properties of RocketMQ (spec 2.3).

    CORRELATION_ID    which request a reply is for
    REPLY_TO_CLIENT   who asked; in a reply the tag as well, so that nobody else's replies are read
    TTL               how long the requester waits, ms
    CLUSTER           its reply topic is <cluster>_REPLY_TOPIC
    MSG_TYPE          "reply" in a reply

A broker of RocketMQ, and a node that is asked as one, pushes a reply to the requester. Else the requester reads the
reply topic, from the end that it had before the first request.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from towline.client.link.connection import remaining_ms
from towline.client.link.endpoints import Endpoints
from towline.client.link.rpc import Reply
from towline.client.send.group_session import GroupSession
from towline.client.send.turn import FOR_EVER_S, Turn
from towline.errors import IllegalProperty, MalformedRecord, NoAnswer, TowlineError
from towline.format.record.properties import CLUSTER, MESSAGE_TYPE, REPLY
from towline.limits import DECOMPRESSED_SIZE_MAX, REPLY_TOPIC_SUFFIX
from towline.link.unclosed import call_in_child, on_drop

from .consumer import Consumer
from .errors import AskRefused, ClientClosed, DamagedMessage, NotARequest, RequestTimeout
from .message import Message, ReceivedMessage

CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
POLL_MS: Final = 250  # the reader looks up so often whether it is to end
FIRST_MS: Final = 5  # and whether it has begun to read
WATCH_MS: Final = 10_000  # a link is asked for pushed replies so often at least
OTHERS_S: Final = 0.5  # groups of nodes that do not answer by then have no replies either

_OF_REQUESTS: Final = (CORRELATION_ID, REPLY_TO_CLIENT, TTL)

log = logging.getLogger(__name__)


def reply_topic(cluster: str) -> str:
    return f"{cluster}{REPLY_TOPIC_SUFFIX}"


def reply(request: ReceivedMessage, body: bytes) -> Message:
    """The reply to a request, to be sent by any producer of the same cluster. Raises NotARequest."""
    found = request.properties
    for name in (CLUSTER, *_OF_REQUESTS):
        if name not in found:
            raise NotARequest(name)
    kept = {name: found[name] for name in _OF_REQUESTS}
    return Message(
        reply_topic(found[CLUSTER]),
        body,
        tags=found[REPLY_TO_CLIENT],
        queue_id=0,
        properties={**kept, MESSAGE_TYPE: REPLY},
    )


def is_expired(request: ReceivedMessage, now_ms: int) -> bool:
    """Whether the requester has stopped waiting by now, ms since 1970 by the requester's clock. Raises NotARequest."""
    try:
        return now_ms > request.born_timestamp + int(request.properties[TTL])
    except (KeyError, ValueError):
        raise NotARequest(TTL) from None


@dataclass(slots=True)
class PendingReply:
    """A request without its reply."""

    correlation_id: str
    answered: threading.Event = field(default_factory=threading.Event)
    reply: ReceivedMessage | None = None
    error: TowlineError | None = None
    told: Callable[[], object] = int  # called when it is answered, on the thread that reads replies

    def answer(self) -> None:
        self.answered.set()
        self.told()

    def result(self) -> ReceivedMessage:
        """What came. Raises what came in its place."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply


class Replies:
    """The requests of one client that have no reply yet. Any thread may use it."""

    def __init__(self, client_id: str, cluster: str) -> None:
        self.client_id, self.cluster = client_id, cluster
        self.topic = reply_topic(cluster)
        self.late = 0  # replies for which nobody waited any more
        self._pending: dict[str, PendingReply] = {}
        self._lock = threading.Lock()
        self._error: TowlineError | None = None  # why no reply comes any more

    @property
    def is_over(self) -> bool:
        return self._error is not None

    def start(self) -> None:
        """Begins to take replies."""
        raise NotImplementedError

    def await_ready(self, timeout_ms: int) -> bool:
        """Whether no reply can be missed from now on. Raises what ended it."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends it, without waiting for that."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def stamped(self, message: Message, timeout_ms: int) -> tuple[Message, PendingReply]:
        """The message as a request, and the pending reply. Raises IllegalProperty."""
        pending = PendingReply(os.urandom(16).hex())
        own = dict(message.properties or {})
        for name in _OF_REQUESTS:
            if name in own:
                raise IllegalProperty(name, "a request gets it from the producer")
        own |= {CORRELATION_ID: pending.correlation_id, REPLY_TO_CLIENT: self.client_id, TTL: str(timeout_ms)}
        with self._lock:
            self._pending[pending.correlation_id] = pending
        return replace(message, properties={**own, CLUSTER: self.cluster}), pending

    def evict(self, pending: PendingReply) -> None:
        with self._lock:
            self._pending.pop(pending.correlation_id, None)

    def hand_over(self, correlation_id: str, found: ReceivedMessage | DamagedMessage) -> None:
        """The reply, or why there is none, to who waits for it."""
        with self._lock:
            pending = self._pending.pop(correlation_id, None)
        if pending is None:
            self.late += 1
            return
        if isinstance(found, DamagedMessage):
            pending.error = found
        else:
            pending.reply = found
        pending.answer()

    def give_up(self, error: TowlineError) -> None:
        with self._lock:
            left, self._pending = list(self._pending.values()), {}
            self._error = error
        for pending in left:
            pending.error = error
            pending.answer()


class ReadReplies(Replies):
    """Reads the replies to one client, until `close` or an error that reading does not survive."""

    def __init__(
        self,
        endpoint: Endpoints | Callable[[], Endpoints],
        client_id: str,
        cluster: str,
        *,
        check_crcs: bool = True,
    ) -> None:
        """`endpoint` of the node's serve process, or a function that names it whenever it is searched for."""
        super().__init__(client_id, cluster)
        self._thread = threading.Thread(target=self._run, name=f"towline replies of {cluster}", daemon=True)
        self._consumer = Consumer(
            endpoint,
            self.topic,
            tags=self.client_id,
            queues=[0],
            start="last",
            check_crcs=check_crcs,
            cluster=cluster,
        )
        self._ready = threading.Event()
        self._stopping = False
        self._began = time.monotonic()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def await_ready(self, timeout_ms: int) -> bool:
        """Whether the position to read from is fixed. Raises what ended the reader."""
        ready = self._ready.wait(timeout_ms / 1000)
        if self._error is not None:
            raise self._error
        return ready

    def stop(self) -> None:
        """Ends the thread within POLL_MS, without waiting for it."""
        self._stopping = True

    def close(self) -> None:
        self.stop()
        self._thread.join()

    # --- the thread

    def _run(self) -> None:
        error: TowlineError = ClientClosed("producer")
        try:
            while not self._stopping:
                self._step()
        except TowlineError as trouble:
            log.error("replies are not read any more: %s", trouble)
            error = trouble
        finally:
            self._consumer.close()
            self.give_up(error)
            self._ready.set()

    def _step(self) -> None:
        try:
            messages = self._consumer.poll(POLL_MS if self._ready.is_set() else FIRST_MS)
            if self._consumer.has_begun(everywhere=time.monotonic() - self._began < OTHERS_S):
                self._ready.set()
        except NoAnswer:
            return  # requests time out meanwhile; the reader goes on where it stood
        except DamagedMessage as damage:
            self._consumer.seek(damage.queue_id, damage.queue_offset + 1, damage.broker_name)
            self.hand_over(_correlation_of(damage), damage)
            return
        for message in messages:
            self.hand_over(message.properties.get(CORRELATION_ID, ""), message)


class PushedReplies(Replies):
    """Takes the replies to one client that brokers push, to whom its links say its id."""

    def __init__(self, sessions: Sequence[GroupSession], client_id: str, cluster: str) -> None:
        """`sessions` with all brokers; more may be added to them."""
        super().__init__(client_id, cluster)
        self._sessions = sessions
        self._watched: set[str] = set()  # brokers
        self._heard: set[str] = set()  # those that have answered once: they know us
        self._changed = threading.Condition()
        self._stopping = False

    def start(self) -> None:
        self._watch_all()

    def await_ready(self, timeout_ms: int) -> bool:
        """Whether all brokers know us; after a moment one of them is enough. Raises what ended it."""
        deadline = time.monotonic() + timeout_ms / 1000
        self._watch_all()
        with self._changed:
            ready = self._changed.wait_for(self._heard_all, min(OTHERS_S, timeout_ms / 1000))
            ready = ready or self._changed.wait_for(lambda: bool(self._heard), remaining_ms(deadline) / 1000)
        if self._error is not None:
            raise self._error
        return ready

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        self.stop()
        self.give_up(ClientClosed("producer"))

    def _heard_all(self) -> bool:
        return self._heard >= {session.name for session in list(self._sessions)}

    def _watch_all(self) -> None:
        """Those, too, that have joined the cluster since."""
        for session in list(self._sessions):
            with self._changed:
                new = session.name not in self._watched
                self._watched.add(session.name)
            if new:
                self._watch(session, 0)

    def _watch(self, session: GroupSession, wait_ms: int) -> None:
        facts = {"wait_ms": wait_ms}
        session.io_thread.tell("reply_watch", facts, wait_ms + WATCH_MS, partial(self._told, session))

    # --- on the threads of the links

    def _told(self, session: GroupSession, reply: Reply | None, error: TowlineError | None) -> None:
        if self._stopping or isinstance(error, ClientClosed):
            return
        if isinstance(error, AskRefused):
            self.give_up(error)
            return
        if reply is not None:
            for message in reply.columns.messages(DECOMPRESSED_SIZE_MAX):
                self.hand_over(message.properties.get(CORRELATION_ID, ""), message)
            with self._changed:
                self._heard.add(session.name)
                self._changed.notify_all()
        self._watch(session, 0 if reply is None else WATCH_MS)
        self._watch_all()


def _correlation_of(damage: DamagedMessage) -> str:
    """Empty where the properties cannot be read either."""
    try:
        return ReceivedMessage(damage.record).properties.get(CORRELATION_ID, "")
    except MalformedRecord:
        return ""


class Requester:
    """The requests of a producer: nothing is read before the first one. Any thread may use it."""

    def __init__(self, begin: Callable[[Message, int], Replies], send: Callable[[Message, int], bool]) -> None:
        """`begin` makes the reader, given the first request, within so many ms or raises.

        `send` sends a message and says whether it was acknowledged within so many ms.
        """
        self._begin = begin
        self._send = send
        self._replies: Replies | None = None
        self._turn = Turn()
        self._late = 0
        call_in_child(self)

    @property
    def late(self) -> int:
        return self._late + (self._replies.late if self._replies is not None else 0)

    def request(self, message: Message, timeout_ms: int) -> ReceivedMessage:
        """Sends a request and waits for its reply, at most `timeout_ms`.

        Raises RequestTimeout, DamagedMessage for a damaged reply, and what `begin`, `send` and reading raise.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        stamped, pending = self.begin(message, timeout_ms)
        try:
            acknowledged = self._send(stamped, remaining_ms(deadline))
            if not pending.answered.wait(remaining_ms(deadline) / 1000):
                raise RequestTimeout(message.topic, pending.correlation_id, timeout_ms, acknowledged)
        finally:
            self.end(pending)
        return pending.result()

    def begin(self, message: Message, timeout_ms: int) -> tuple[Message, PendingReply]:
        """The message to be sent, and the reply that is waited for until `end`. Raises what `begin` does."""
        deadline = time.monotonic() + timeout_ms / 1000
        replies = self._reader(message, deadline, timeout_ms)
        if not replies.await_ready(remaining_ms(deadline)):
            raise NoAnswer(replies.topic, timeout_ms, "the reply topic could not be read")
        return replies.stamped(message, timeout_ms)

    def end(self, pending: PendingReply) -> None:
        if self._replies is not None:
            self._replies.evict(pending)

    def forked(self) -> None:
        self._turn = Turn()  # a thread of the parent may have had it

    def close(self) -> None:
        try:
            self._turn.take(FOR_EVER_S)
            if self._replies is not None:
                self._replies.close()
        finally:
            self._turn.give_back()

    def _reader(self, message: Message, deadline: float, timeout_ms: int) -> Replies:
        try:
            if not self._turn.take(max(0.0, deadline - time.monotonic())):
                raise NoAnswer(message.topic, timeout_ms, "another request still looks for the reply topic")
            if self._replies is None or self._replies.is_over:
                self._late = self.late
                self._replies = None
                self._replies = self._begin(message, remaining_ms(deadline))
                on_drop(self, self._replies.stop)
                self._replies.start()
            return self._replies
        finally:
            self._turn.give_back()
