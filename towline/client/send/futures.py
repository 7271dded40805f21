"""A batch of messages on its way, the future that the sender of a message holds, and the result."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, cast

from towline.client.errors import ResultPending
from towline.errors import TowlineError
from towline.format.java_hash import string_hash
from towline.format.wire.frames import Buffer
from towline.format.wire.status import PutStatus
from towline.link.unclosed import renew

from .encoding import TopicEncoder

log = logging.getLogger(__name__)

MS: Final = 1000.0
RECORDS_MAX: Final = 65_536  # of one batch
_KEPT: Final = frozenset(
    {"_condition", "_state", "_result", "_exception", "_waiters", "_done_callbacks"}
)  # by a Future


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where the node stored a message, and what it promises (`status`; only PUT_OK is an acknowledgement).

    After a bulk call it stands for `count` messages: the offsets and the unique key are the first one's.
    A message that is delivered later was stored in a topic of the broker's, which `topic` names; `handle` is what
    `Producer.cancel` takes, for a message with `deliver_at`. `broker_name` is the group of nodes, where there are
    several. `store_host` is how the node stamps its address into records, in hex digits.
    """

    status: PutStatus
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    unique_key: str
    count: int = 1
    handle: str = ""
    broker_name: str = ""
    store_host: str = field(default="", repr=False, compare=False)

    @property
    def acknowledged(self) -> bool:
        return self.status.acknowledged

    @property
    def message_id(self) -> str:
        """RocketMQ's msgId of a sender: the unique key."""
        return self.unique_key

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offsetMsgId: the node's address and the physical offset, as `ReceivedMessage.message_id` and
        `AdminClient.by_id` have it. Empty where the node did not say how it stamps its address."""
        return f"{self.store_host}{self.physical_offset:016X}" if self.store_host else ""


class TopicRoute:
    """A topic as its node describes it, with the producer's encoder and open batches.

    `sticky` is the queue that messages without a queue of their own go to until its batch is full, `turns` how often
    that came to pass. `broker_name` is the group of nodes, one of `groups`.
    """

    __slots__ = (
        "broker_name",
        "encoder",
        "groups",
        "name",
        "open",
        "read_queues",
        "records_max",
        "sticky",
        "topic",
        "turns",
        "write_queues",
    )

    def __init__(
        self, topic: str, facts: dict[str, Any], encoder: TopicEncoder, broker_name: str = "", groups: int = 1
    ) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.groups = groups
        self.turns = 0
        self.name = topic.encode()
        self.write_queues = int(facts["write_queues"])
        self.read_queues = int(facts["read_queues"])
        self.records_max = int(facts.get("records_max", RECORDS_MAX))  # of one batch
        self.encoder = encoder
        self.sticky = 0
        self.open: dict[int, Batch] = {}

    def resize(self, facts: dict[str, Any]) -> None:
        """Takes what the node says now of its queues. Open batches stay where they are."""
        self.read_queues, self.write_queues = int(facts["read_queues"]), int(facts["write_queues"])
        if self.sticky >= self.write_queues:
            self.sticky = 0

    def queue_of(self, sharding_key: str) -> int:
        """Equal keys give equal queues, with one group in RocketMQ's clients too."""
        return abs(string_hash(sharding_key)) // self.groups % self.write_queues

    def rotate(self) -> None:
        self.turns += 1
        self.sticky = (self.sticky + 1) % self.write_queues


class Pending:
    """What a future waits for. `lock` guards its end, and what is called then."""

    __slots__ = ("callbacks", "done", "error", "event", "lock")

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.done = False
        self.error: TowlineError | None = None
        self.event: threading.Event | None = None
        self.callbacks: list[tuple[Callable[[SendFuture], object], SendFuture]] | None = None

    def wait(self, timeout_ms: float | None) -> bool:
        if self.done:
            return True
        with self.lock:
            if self.done:
                return True
            if self.event is None:
                self.event = threading.Event()
            event = self.event
        return event.wait(None if timeout_ms is None else timeout_ms / MS)

    def call_back(self, callback: "Callable[[SendFuture], object]", future: "SendFuture") -> None:
        """Has `callback` called at its end. Under the lock, and not when it is done."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((callback, future))

    def finish(self) -> None:
        """Marks it as finished, under the lock: nothing changes afterwards."""
        self.done = True
        if self.event is not None:
            self.event.set()


class Batch(Pending):
    """Records of one queue that are sent, retried and answered together.

    Written by senders under the accumulator's lock while it is open, by the I/O thread afterwards. Times are
    monotonic seconds.
    """

    __slots__ = (
        "alone",
        "attempts",
        "count",
        "created",
        "deadline",
        "due",
        "number",
        "physical_offset",
        "places",
        "queue_id",
        "queue_offset",
        "records",
        "refusal",
        "refusals",
        "route",
        "size",
        "status",
        "store_host",
        "trouble",
        "unknown",
    )

    def __init__(self, route: TopicRoute, queue_id: int, lock: threading.Lock, created: float) -> None:
        super().__init__(lock)
        self.route = route
        self.queue_id = queue_id
        self.created = created
        self.due = created  # when it is sent although there is room left in it
        self.deadline = created
        self.records: list[Buffer] = []
        self.places: Sequence[tuple[int, int]] = ()  # of each record, where they do not stand back to back
        self.count = 0
        self.number = -1  # of its first record among those of an idempotent producer; -1 while it has none
        self.size = 0
        self.attempts = 0
        self.refusals = 0  # attempts that the node refused with a time to come back
        self.refusal: tuple[str, str] | None = None  # the newest one's status and sentence
        self.unknown = False  # an attempt may have been stored
        self.alone = False  # it goes in a request of its own, because a request that held it was refused
        self.trouble = "it was not sent yet"
        self.status = PutStatus.UNKNOWN_ERROR
        self.queue_offset = -1
        self.physical_offset = -1
        self.store_host = ""

    def finish(self) -> None:
        self.records = []
        super().finish()


class SendFuture(Future[SendResult]):
    """The result of one `send_async`, when it comes: a `concurrent.futures.Future`. Any thread may ask.

    What that class keeps for `as_completed`, `wait` and the like is made when one of them looks at it: for most
    messages nobody does. A message is not taken back: `cancel` is always False.
    """

    __slots__ = ("_batch", "_before", "_count", "_index", "handle", "unique_key")

    def __init__(self, batch: Batch, index: int, before: int, unique_key: str, count: int = 1) -> None:
        """It is the record `index` of `batch`, behind `before` bytes."""
        self._batch: Batch = batch
        self._index = index
        self._before = before
        self._count = count
        self.unique_key = unique_key
        self.handle = ""

    def __getattr__(self, name: str) -> Any:
        """What the class above keeps: it is not there before somebody asks for it."""
        if name not in _KEPT:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._batch.lock:
            made = "_condition" not in vars(self)
            if made:
                super().__init__()
        if made:
            self.add_done_callback(SendFuture._settle)
        return vars(self)[name]

    def _settle(self) -> None:
        error = self.exception()
        if error is None:
            self.set_result(self.result())
        else:
            self.set_exception(error)

    @property
    def batch(self) -> Batch:
        """The batch that its message is sent in."""
        return self._batch

    def done(self) -> bool:
        return self._batch.done

    def running(self) -> bool:
        return not self._batch.done

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> SendResult:
        """Waits for the outcome, `timeout` seconds at most. Raises what became of the message: PutRefused (and
        StoreBusy, which is one), DeliveryTimeout, LinkRefused, ClientClosed, of an idempotent producer
        OutOfOrderSequence, UnknownProducer, ProducerFenced; or, when there is none, ResultPending, which is a
        TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        batch = self._batch
        place = batch.queue_offset + self._index, batch.physical_offset + self._before
        if batch.places:
            place = batch.places[self._index]
        return SendResult(
            batch.status,
            batch.route.topic,
            batch.queue_id,
            *place,
            self.unique_key,
            self._count,
            self.handle,
            batch.route.broker_name,
            batch.store_host,
        )

    def exception(self, timeout: float | None = None) -> TowlineError | None:
        """Waits likewise and returns the error, or None for a message that was stored. Raises ResultPending."""
        timeout_ms = None if timeout is None else timeout * MS
        if not self._batch.wait(timeout_ms):
            raise ResultPending(int(timeout_ms or 0))
        return self._batch.error

    def add_done_callback(self, fn: "Callable[[SendFuture], object]") -> None:
        """`fn` gets this future: on a thread of the producer's when the outcome comes, or at once when it is here.

        It must be short and must not wait for the producer. `send_async` takes one of result and error (`callback`).
        """
        batch = self._batch
        with batch.lock:
            if not batch.done:
                batch.call_back(fn, self)
                return
        fn(self)


class UnplacedFuture(SendFuture):
    """That of a message which has no batch yet. What waits for it goes on waiting when it has one."""

    __slots__ = ()

    def __init__(self, lock: threading.Lock, unique_key: str) -> None:
        pending = Pending(lock)
        pending.event = threading.Event()
        super().__init__(cast(Batch, pending), 0, 0, unique_key)
        Future.__init__(self)
        self.add_done_callback(SendFuture._settle)

    def place(self, found: SendFuture) -> "list[Called]":
        """Its message is in the batch of `found`. Returns the callbacks that are due: the outcome may be here."""
        self._index, self._before, self.handle = found._index, found._before, found.handle
        return self._leave_for(found.batch)

    def fail(self, error: TowlineError) -> "list[Called]":
        """Its message never gets into a batch. Returns the callbacks that are due."""
        failed = Pending(self._batch.lock)
        failed.error, failed.done = error, True
        return self._leave_for(failed)

    def _leave_for(self, pending: Pending) -> "list[Called]":
        before = self._batch
        with before.lock:
            self._batch = cast(Batch, pending)
            callbacks, before.callbacks = before.callbacks or [], None
            if before.event is not None:
                before.event.set()
        with pending.lock:
            if pending.done:
                return callbacks
            for callback, _ in callbacks:
                pending.call_back(callback, self)
            return []

    def await_place(self) -> None:
        """Waits until its message has a place, or never gets one."""
        pending = self._batch
        if type(pending) is Pending:
            pending.wait(None)

    def forked(self, error: TowlineError) -> None:
        """In a child of a fork. What has a batch ends with that."""
        pending = self._batch
        if type(pending) is Pending and not pending.done:
            renew(pending.event)
            pending.error = error
            pending.finish()

    def exception(self, timeout: float | None = None) -> TowlineError | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            batch = self._batch
            if not batch.wait(None if deadline is None else max(0.0, deadline - time.monotonic()) * MS):
                raise ResultPending(int((timeout or 0) * MS))
            if batch is self._batch:
                return batch.error

    def add_done_callback(self, fn: "Callable[[SendFuture], object]") -> None:
        while True:
            batch = self._batch
            with batch.lock:
                if batch is self._batch:
                    if not batch.done:
                        batch.call_back(fn, self)
                        return
                    break
        fn(self)


Called = tuple[Callable[[SendFuture], object], SendFuture]


def call(called: Iterable[Called]) -> None:
    """Calls callbacks; one that raises harms no other."""
    for callback, future in called:
        try:
            callback(future)
        except Exception:
            log.exception("a callback of send_async failed")
