"""Messages whose topic's queues are not known yet: threads of the producer ask for those, and send them then.

A lot has the messages of one topic, and of one group of nodes where their key or `broker_name` says which. They go in
their order; what is sent later joins the lot while there is one. Lots do not wait for each other, but for a thread.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, cast

from towline.client.errors import ClientForked
from towline.client.link.connection import remaining_ms
from towline.client.link.keys import KeySource, now_ms
from towline.client.message import Message
from towline.errors import NoAnswer, TowlineError
from towline.format.record.properties import UNIQ_KEY
from towline.limits import KIB
from towline.link.unclosed import call_at_exit, call_in_child, renew

from .encoding import check_properties
from .futures import MS, SendFuture, UnplacedFuture
from .group_session import GroupSession
from .placing import Told, put
from .spread import Place

log = logging.getLogger(__name__)

THREADS_MAX: Final = 4  # of one producer
BESIDE_BODY: Final = KIB  # bytes that a message is counted with while it waits

Where = tuple[str, str]  # topic, group of nodes; "" where any may take it


@dataclass(slots=True, eq=False)
class Waiting:
    """A message in its lot. `deadline` (monotonic seconds) is of the search for its place."""

    message: Message
    urgent: bool
    size: int
    deadline: float
    future: UnplacedFuture
    is_over: bool = False  # it has a place, or never gets one


class Unplaced:
    """The lots of one producer. Any thread may use it; it does not know the producer."""

    def __init__(
        self,
        find: Callable[[Message, int], Place],
        sessions: Sequence[GroupSession],
        keys: KeySource,
        delivery_timeout_ms: int,
    ) -> None:
        """`find` waits, so many ms, for the place of a message. Of `sessions` the first one's buffer holds the lots."""
        self._find, self._sessions, self._keys = find, sessions, keys
        self._delivery_ms = delivery_timeout_ms
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self.lots: dict[Where, deque[Waiting]] = {}
        self._untaken: deque[Where] = deque()  # lots that no thread works on
        self._threads = 0
        self._is_dropped = False
        call_in_child(self)
        call_at_exit(self)

    def add(self, where: Where, message: Message, urgent: bool, room_ms: int, told: Told | None) -> SendFuture:
        """Puts a message into its lot. Raises IllegalProperty, ProducerFull, ClientClosed."""
        kept = _kept(message, self._keys.next(now_ms()))
        check_properties(kept)
        size = len(kept.body) + BESIDE_BODY
        accumulator = self._sessions[0].accumulator
        accumulator.reserve(size, room_ms)
        future = UnplacedFuture(accumulator.lock, cast(str, kept.unique_key))
        if told is not None:
            future.add_done_callback(told)
        waiting = Waiting(kept, urgent, size, time.monotonic() + self._delivery_ms / MS, future)
        with self._lock:
            lot = self.lots.get(where)
            if lot is not None:
                lot.append(waiting)
                return future
            self.lots[where] = deque([waiting])
            self._untaken.append(where)
            starts = self._threads < THREADS_MAX
            self._threads += starts
        if starts:
            threading.Thread(target=self._work, name="towline producer finds topics", daemon=True).start()
        return future

    def await_placed(self, timeout_ms: float | None, topic: str | None = None) -> bool:
        """Waits until all that is here now, of this topic or of all, has a place or never gets one."""
        with self._moved:
            last = [lot[-1] for (name, _), lot in self.lots.items() if lot and topic in (None, name)]
            return self._moved.wait_for(
                lambda: all(each.is_over for each in last), None if timeout_ms is None else timeout_ms / MS
            )

    def drop(self) -> None:
        """Nobody has the producer any more: its sessions end when everything has its outcome. Waits for nothing, and
        takes no lock: a collection comes at any moment."""
        self._is_dropped = True
        if not self.lots:
            self._end()

    def leave(self, deadline: float) -> None:
        """At the end of a program that has not closed the producer."""
        self.await_placed(max(0.0, deadline - time.monotonic()) * MS)
        self.drop()
        for session in list(self._sessions):
            session.io_thread.leave(deadline)
        if self.lots or not all(session.accumulator.idle for session in list(self._sessions)):
            log.warning("the program ends before all that it sent has its outcome: close its producers")

    def forked(self) -> None:
        renew(self._lock, self._moved)
        error = ClientForked.here("producer")
        for lot in self.lots.values():
            for waiting in lot:
                waiting.future.forked(error)
        self.lots.clear()
        self._untaken.clear()

    # --- the threads

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._untaken:
                    self._threads -= 1
                    return
                where = self._untaken.popleft()
            self._place_all(where)
            if self._is_dropped and not self.lots:
                self._end()

    def _place_all(self, where: Where) -> None:
        lot = self.lots[where]
        while True:
            with self._lock:
                while lot and lot[0].is_over:
                    lot.popleft()
                self._moved.notify_all()
                if not lot:
                    del self.lots[where]
                    return
                count = len(lot)
            self._place_first(lot, count)

    def _place_first(self, lot: deque[Waiting], count: int) -> None:
        """What a node answers about the topic holds for all `count` that were there when it was asked."""
        first = lot[0]
        try:
            session, route = self._find(first.message, remaining_ms(first.deadline))
        except NoAnswer as error:
            self._fail(first, NoAnswer(error.endpoint, self._delivery_ms, error.trouble))
        except Exception as error:
            with self._lock:
                asked_for = list(islice(lot, count))
            for waiting in asked_for:
                self._fail(waiting, error)
        else:
            try:
                found = put(session, route, first.message, first.urgent, None)
            except Exception as error:
                self._fail(first, error)
            else:
                self._sessions[0].accumulator.release(first.size)
                first.future.place(found)
                first.is_over = True

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        if not isinstance(error, TowlineError):
            log.error("a message for %s cannot be sent", waiting.message.topic, exc_info=error)
        self._sessions[0].accumulator.release(waiting.size)
        waiting.future.fail(cast(TowlineError, error))
        waiting.is_over = True

    def _end(self) -> None:
        for session in list(self._sessions):
            session.io_thread.close_when_idle()


def _kept(message: Message, unique_key: str) -> Message:
    """As it is now, whatever becomes of the object: with the unique key that it will have."""
    keys = message.keys if isinstance(message.keys, str) else tuple(message.keys)
    properties = {UNIQ_KEY: unique_key, **(message.properties or {})}
    return replace(message, body=bytes(message.body), keys=keys, properties=properties)
