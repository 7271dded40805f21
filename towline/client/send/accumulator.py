"""Batches of messages, between the threads that send them and the I/O thread.

One lock guards everything here. A batch is open until it is full, due or urgent; then it is ready, and the I/O thread
sends it. The bytes of all unfinished batches are bounded: senders wait for room.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from towline.client.errors import ClientClosed, ClientForked, DeliveryTimeout, ProducerFull, PutRefused, StoreBusy
from towline.errors import OutOfOrderSequence, ProducerFenced, TowlineError, UnknownProducer
from towline.format.wire.frames import Buffer
from towline.format.wire.status import PutStatus
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.unclosed import call_in_child, renew

from .futures import MS, Batch, Called, SendFuture, TopicRoute, call
from .retrying import Fate, fate_of

HAND_OVER_S: Final = 0.002
_OF_SEQUENCES: Final[dict[PutStatus, Callable[[str], TowlineError]]] = {
    PutStatus.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    PutStatus.PRODUCER_FENCED: ProducerFenced,
    PutStatus.UNKNOWN_PRODUCER: UnknownProducer,
}


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of batches and buffer. Bytes are of records; times are ms."""

    linger_ms: float
    batch_bytes_max: int
    buffer_bytes_max: int
    send_timeout_ms: int
    delivery_timeout_ms: int


class Accumulator:
    """The batches of one session.

    `wake` wakes the I/O thread, and is called at most once before that thread sleeps again. `push` sends what is ready
    on the caller's thread; False where the I/O thread has to do that.
    """

    def __init__(self, limits: BatchLimits, wake: Callable[[], None], push: Callable[[], bool]) -> None:
        self._limits = limits
        self._batch_bytes_max = limits.batch_bytes_max
        self._linger_s = limits.linger_ms / MS
        self._delivery_s = limits.delivery_timeout_ms / MS
        self._wake, self._push = wake, push
        self.lock = threading.Lock()
        self._room = threading.Condition(self.lock)
        self._open: dict[Batch, None] = {}  # in the order they were opened
        self._ready: deque[Batch] = deque()
        self._unfinished: dict[Batch, None] = {}
        self._called: deque[Called] = deque()
        self._buffered = 0
        self._waiting = 0  # senders that wait for room
        self._wake_before = math.inf  # a batch due before this needs the I/O thread to be rung
        self._closed: TowlineError | None = None
        call_in_child(self)

    # --- senders

    def add(
        self,
        route: TopicRoute,
        queue_id: int,
        record: bytes,
        unique_key: str,
        urgent: bool,
        room_ms: int | None,
        handle: str = "",
        told: Callable[[SendFuture], object] | None = None,
        wakes: bool = True,
    ) -> SendFuture:
        """Puts one record into the queue's open batch. Waits `room_ms` for room, and HAND_OVER_S at most where a batch
        is full by it; with None, which is for what has its room already, for nothing. Raises ProducerFull,
        ClientClosed. `told` is called on the I/O thread when the outcome is there.

        Without `wakes` the I/O thread does not hear of an urgent one: the caller sends it, or wakes that thread.
        """
        size = len(record)
        full = False
        with self.lock:
            if self._closed is not None or self._buffered + size > self._limits.buffer_bytes_max:
                self._wait_for_room(size, room_ms)
            batch = route.open.get(queue_id)
            if batch is not None and batch.size + size > self._batch_bytes_max:
                self._seal(batch, wakes=False)
                full, batch = True, None
            if batch is None:
                batch = self._new_batch(route, queue_id)
                route.open[queue_id] = batch
                self._open[batch] = None
            before = batch.size
            index = batch.count
            batch.records.append(record)
            batch.size = before + size
            batch.count = index + 1
            self._buffered += size
            future = SendFuture(batch, index, before, unique_key)
            if handle:
                future.handle = handle
            if told is not None:
                batch.call_back(told, future)
            if urgent:
                self._seal(batch, wakes=wakes)
            elif batch.size >= self._batch_bytes_max or batch.count >= route.records_max:
                self._seal(batch, wakes=False)
                full = True
            elif batch.due < self._wake_before:
                self._wake_now()
        if full:
            self._hand_over(yields=room_ms is not None)
        return future

    def add_many(self, route: TopicRoute, queue_id: int, records: Buffer, count: int, unique_key: str) -> SendFuture:
        """Puts `count` records, back to back, on their way as one batch. Waits for room; raises likewise."""
        with self.lock:
            if self._closed is not None or self._buffered + len(records) > self._limits.buffer_bytes_max:
                self._wait_for_room(len(records), self._limits.send_timeout_ms)
            earlier = route.open.get(queue_id)
            if earlier is not None:
                self._seal(earlier)
            batch = self._new_batch(route, queue_id)
            batch.records.append(records)
            batch.size = len(records)
            batch.count = count
            self._buffered += batch.size
            self._seal(batch, wakes=False)
        self._hand_over(yields=False)
        return SendFuture(batch, 0, 0, unique_key, count)

    def reserve(self, size: int, room_ms: int) -> None:
        """Takes so many bytes of the buffer, until `release`. Waits for room; raises likewise."""
        with self.lock:
            if self._closed is not None or self._buffered + size > self._limits.buffer_bytes_max:
                self._wait_for_room(size, room_ms)
            self._buffered += size

    def release(self, size: int) -> None:
        """Gives back bytes that were reserved."""
        with self.lock:
            self._buffered -= size
            if self._waiting:
                self._room.notify_all()

    def seal_all(self) -> None:
        """Makes all open batches ready."""
        with self.lock:
            for batch in list(self._open):
                self._seal(batch)

    def limit_batches(self, size_max: int) -> None:
        """Sets the largest request that the node accepts."""
        self._batch_bytes_max = min(self._batch_bytes_max, size_max)

    def flush(self, timeout_ms: float | None) -> bool:
        """Makes all open batches ready, and waits until everything added so far has an outcome."""
        self.seal_all()
        self._wake()
        with self.lock:
            unfinished = list(self._unfinished)
        deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / MS
        for batch in unfinished:
            remaining = deadline - time.monotonic()
            if not batch.wait(None if math.isinf(remaining) else max(0.0, remaining * MS)):
                return False
        return True

    def _hand_over(self, *, yields: bool) -> None:
        """Sends what is ready here, or leaves it to the I/O thread. It `yields` to that thread, which beside one that
        computes would get the interpreter only every 5 ms."""
        if self._push():
            return
        with self.lock:
            if not self._ready:
                return
            if self._wake_before > -math.inf:
                self._wake_now()
            if not yields:
                return
            self._waiting += 1
            try:
                self._room.wait(HAND_OVER_S)
            finally:
                self._waiting -= 1

    def _wait_for_room(self, size: int, room_ms: int | None) -> None:
        deadline = math.inf if room_ms is None else time.monotonic() + room_ms / MS
        # A record larger than the whole buffer goes when it is the only one.
        while self._closed is None and room_ms is not None and self._is_full_for(size):
            for batch in list(self._open):
                self._seal(batch)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ProducerFull(self._buffered, room_ms)
            self._waiting += 1
            try:
                self._room.wait(remaining)
            finally:
                self._waiting -= 1
        if self._closed is not None:
            raise self._closed

    def _is_full_for(self, size: int) -> bool:
        return bool(self._buffered) and self._buffered + size > self._limits.buffer_bytes_max

    def _new_batch(self, route: TopicRoute, queue_id: int) -> Batch:
        now = time.monotonic()
        batch = Batch(route, queue_id, self.lock, now)
        batch.due = now + self._linger_s
        batch.deadline = now + self._delivery_s
        self._unfinished[batch] = None
        return batch

    def _seal(self, batch: Batch, *, wakes: bool = True) -> None:
        route, queue_id = batch.route, batch.queue_id
        if batch in self._open:
            del self._open[batch]
            del route.open[queue_id]
        if queue_id == route.sticky:
            route.rotate()
        self._ready.append(batch)
        if wakes and self._wake_before > -math.inf:
            self._wake_now()

    def _wake_now(self) -> None:
        self._wake_before = -math.inf
        self._wake()

    # --- the I/O thread

    def next_request(self, now: float, bytes_max: int, count_max: int = REQUEST_GROUPS_MAX) -> list[Batch]:
        """Ready batches for one request: at most `bytes_max` bytes unless a single one is larger, oldest first."""
        with self.lock:
            self._seal_due(now)
            chosen: list[Batch] = []
            size = 0
            while self._ready and len(chosen) < count_max:
                batch = self._ready[0]
                if chosen and (size + batch.size > bytes_max or batch.alone or chosen[0].alone):
                    break
                chosen.append(self._ready.popleft())
                size += batch.size
            if self._waiting and not self._ready:
                self._room.notify_all()
            return chosen

    def take_only(self, batch: Batch) -> bool:
        """Takes a batch out to be sent at once; False where it is not the only one that has no outcome."""
        with self.lock:
            if len(self._unfinished) > 1 or not self._ready or self._ready[0] is not batch:
                return False
            self._ready.popleft()
            return True

    def may_pass(self, batches: Iterable[Batch], status: PutStatus, retry_after_ms: int) -> bool:
        """Whether batches that the node has refused go again."""
        return fate_of(status, retry_after_ms, insists=False, has_later=False) is Fate.AGAIN

    def requeue(self, batches: Iterable[Batch]) -> None:
        """Puts batches before everything that is ready, to be sent again."""
        with self.lock:
            self._ready.extendleft(reversed(list(batches)))

    def drain(self) -> list[Batch]:
        """Takes out everything that waits, open batches included."""
        with self.lock:
            for batch in list(self._open):
                self._seal(batch)
            chosen = list(self._ready)
            self._ready.clear()
            return chosen

    def expired(self, now: float) -> list[Batch]:
        """Takes out ready batches whose time is over; the caller finishes them."""
        with self.lock:
            self._seal_due(now)
            if not self._ready or self._ready[0].deadline > now:
                return []
            late = [batch for batch in self._ready if batch.deadline <= now]
            self._ready = deque(batch for batch in self._ready if batch.deadline > now)
            return late

    def finish(self, batches: Iterable[Batch], status: PutStatus, error: TowlineError | None = None) -> None:
        """Sets the outcome of batches. Their callbacks wait for `call_back`."""
        with self.lock:
            for batch in batches:
                batch.status, batch.error = status, error
                self._buffered -= batch.size
                del self._unfinished[batch]
                self._called += batch.callbacks or ()
                batch.finish()
            if self._waiting:
                self._room.notify_all()

    @property
    def calls_back(self) -> bool:
        """Whether callbacks wait."""
        return bool(self._called)

    def call_back(self) -> None:
        """Runs the callbacks of what was finished. On the I/O thread: a sender may hold what they wait for."""
        while self._called:
            call([self._called.popleft()])

    def plan_sleep(self, now: float, can_send: bool) -> float:
        """The moment of the next ready batch.

        From here on senders wake for anything earlier; without `can_send` for nothing.
        """
        with self.lock:
            if not can_send:
                self._wake_before = -math.inf
                return self._ready[0].deadline if self._ready else math.inf
            if self._ready:
                return now
            at = next(iter(self._open)).due if self._open else math.inf
            self._wake_before = at
            return at

    @property
    def held(self) -> str:
        """Why nothing that is ready may go to the node that there is a link to; "" where it may."""
        return ""

    @property
    def is_ready(self) -> bool:
        """Whether a batch waits to be sent."""
        return bool(self._ready)

    @property
    def idle(self) -> bool:
        return not self._unfinished

    @property
    def closed(self) -> TowlineError | None:
        """The error of every further `add`; None while open."""
        return self._closed

    def forked(self) -> None:
        """Ends the child's copy: batches on their way are the parent's, and their callbacks run there."""
        renew(self.lock, self._room)
        self._closed = ClientForked.here("producer")
        for batch in self._unfinished:
            batch.error = self._closed
            if batch.event is not None:
                renew(batch.event)
            batch.finish()
        self._unfinished.clear()
        self._called.clear()
        self._ready.clear()
        self._open.clear()
        self._buffered = 0

    def close(self, error: TowlineError) -> list[Batch]:
        """Refuses further messages. Returns the batches that were not sent, for the caller to finish."""
        with self.lock:
            self._closed = error
            left = [*self._ready, *self._open]
            for batch in self._open:
                del batch.route.open[batch.queue_id]
            self._ready.clear()
            self._open.clear()
            self._room.notify_all()
            return left

    def _seal_due(self, now: float) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if oldest.due > now:
                break
            self._seal(oldest)


def timed_out(batch: Batch, now: float) -> StoreBusy | DeliveryTimeout:
    """The error of a batch whose time is over: StoreBusy when every attempt was refused, so nothing is stored."""
    if batch.refusal is not None and not batch.unknown:
        return StoreBusy(*batch.refusal, batch.attempts)
    return DeliveryTimeout(batch.route.topic, _waited_ms(batch, now), batch.attempts, batch.trouble)


def refused(batch: Batch, status: PutStatus, sentence: str) -> TowlineError:
    """The error of a refused batch: PutRefused, which says that nothing is stored, unless an earlier attempt may be; or
    what is wrong with its sequences."""
    if status in _OF_SEQUENCES:
        return _OF_SEQUENCES[status](sentence)
    if batch.unknown:
        return DeliveryTimeout(batch.route.topic, _waited_ms(batch, time.monotonic()), batch.attempts, batch.trouble)
    return PutRefused(status.name, sentence)


def _waited_ms(batch: Batch, now: float) -> int:
    return int((now - batch.created) * MS)


def closed() -> ClientClosed:
    return ClientClosed("producer")
