"""Messages whose topic's queues are not known yet: threads of the producer ask for those, and send them then.

A lot has the messages of one topic, and of one group of nodes where their key or `broker_name` says which. They go in
their order; what is sent later joins the lot while there is one. Lots do not wait for each other: where there are more
than threads, they take turns.
"""

import copy
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Final, cast

from towline.client.errors import ClientForked
from towline.client.link.keys import KeySource, now_ms
from towline.client.message import Message
from towline.errors import NoAnswer, TowlineError
from towline.format.record.properties import UNIQ_KEY
from towline.limits import KIB
from towline.link.unclosed import call_at_exit, call_in_child, renew

from .encoding import check_properties
from .futures import MS, Called, SendFuture, UnplacedFuture, call
from .group_session import GroupSession
from .placing import Told, put
from .spread import Place

log = logging.getLogger(__name__)

THREADS_MAX: Final = 8  # of one producer
TURN_S: Final = 2.0  # of a lot, where there are as many as threads: a silent node is found out before
LATE_S: Final = 0.05  # what is overdue ends so late at most where it is alone: messages end together
TOGETHER: Final = 64  # messages that a thread sends under the lock, which senders to new topics wait for
LET_GO_S: Final = 0.0001  # they get their turn then
HELP: Final = 4  # messages that each of them sends then, more than it brings: a lot ends however much is sent
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


@dataclass(slots=True, eq=False)
class Lot:
    """Messages in their order. While it `is_open` a thread is sending them, and who adds one helps; whoever sends the
    last one ends it. `trouble` is why the newest search ended without a place for them."""

    waiting: deque[Waiting]
    is_open: bool = False
    trouble: NoAnswer = field(default_factory=lambda: NoAnswer("the producer", 0, "it asked for other topics"))


class Unplaced:
    """The lots of one producer. Any thread may use it; it does not know the producer."""

    def __init__(
        self,
        find: Callable[[Message, int], Place],
        known: Callable[[Message], Place | None],
        sessions: Sequence[GroupSession],
        keys: KeySource,
        delivery_timeout_ms: int,
    ) -> None:
        """`find` waits, so many ms, for the place of a message; `known` says it where nobody has to be asked. Of
        `sessions` the first one's buffer holds the lots."""
        self._find, self._known, self._sessions, self._keys = find, known, sessions, keys
        self._delivery_ms = delivery_timeout_ms
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self.lots: dict[Where, Lot] = {}
        self._untaken: deque[Where] = deque()  # lots that no thread works on
        self._threads: set[threading.Thread] = set()
        self._called: list[Called] = []  # callbacks that are due
        self._is_dropped = False
        call_in_child(self)
        call_at_exit(self)

    def add(self, where: Where, message: Message, urgent: bool, room_ms: int, told: Told | None) -> SendFuture:
        """Puts a message into its lot. Raises IllegalProperty, ProducerFull, ClientClosed; RuntimeError where Python
        starts no thread any more."""
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
            if lot is None:
                self._begin(where, waiting)
            else:
                lot.waiting.append(waiting)
                lot.is_open = lot.is_open and self._send(lot, HELP, None)
                if lot.is_open and not lot.waiting:  # its thread may wait long for the lock, beside one who sends
                    del self.lots[where]
                    self._moved.notify_all()
        return future

    def _begin(self, where: Where, first: Waiting) -> None:
        """Under the lock. A new lot comes before those whose topics were asked for in vain."""
        self.lots[where] = Lot(deque([first]))
        self._untaken.appendleft(where)
        if len(self._threads) == THREADS_MAX:
            return
        thread = threading.Thread(target=self._work, name="towline producer finds topics", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            self._untaken.popleft()
            del self.lots[where]
            self._sessions[0].accumulator.release(first.size)
            raise

    def await_placed(self, timeout_ms: float | None, topic: str | None = None) -> bool:
        """Waits until all that is here now, of this topic or of all, has a place or never gets one."""
        with self._moved:
            last = [lot.waiting[-1] for (name, _), lot in self.lots.items() if lot.waiting and topic in (None, name)]
            return self._moved.wait_for(
                lambda: all(each.is_over for each in last), None if timeout_ms is None else timeout_ms / MS
            )

    def await_end(self) -> None:
        """After the sessions were closed: waits until all have their outcome. Not on a thread that brings outcomes,
        which a callback runs on."""
        current = threading.current_thread()
        if current not in self._threads and all(current is not each.io_thread for each in list(self._sessions)):
            self.await_placed(None)

    def drop(self) -> None:
        """Nobody has the producer any more: its sessions end when everything has its outcome. Waits for nothing, and
        takes no lock: a collection comes at any moment."""
        self._is_dropped = True
        if not self.lots:
            self._end()

    def leave(self, deadline: float) -> None:
        """At the end of a program that has not closed the producer."""
        for session in list(self._sessions):
            session.accumulator.seal_all()  # what goes to one node does not wait for what another has to answer
        with self._moved:
            self._moved.wait_for(lambda: not self.lots, max(0.0, deadline - time.monotonic()))
        self.drop()
        for session in list(self._sessions):
            session.io_thread.leave(deadline)
        if self.lots or not all(session.accumulator.idle for session in list(self._sessions)):
            log.warning("the program ends before all that it sent has its outcome: close its producers")

    def forked(self) -> None:
        renew(self._lock, self._moved)
        error = ClientForked.here("producer")
        for lot in self.lots.values():
            for waiting in lot.waiting:
                waiting.future.forked(error)
        self.lots.clear()
        self._untaken.clear()
        self._threads.clear()
        self._called.clear()

    # --- the threads

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._untaken:
                    self._threads.discard(threading.current_thread())
                    return
                where = self._untaken.popleft()
                lot = self.lots[where]
                take_turns = len(self._threads) == THREADS_MAX
            self._search(lot, take_turns)
            self._give_back(where, lot)
            if self._is_dropped and not self.lots:
                self._end()

    def _search(self, lot: Lot, take_turns: bool) -> None:
        """Asks once. What a node answers about the topic holds for all that were there when it was asked."""
        first, count = lot.waiting[0], len(lot.waiting)
        time_s = max(LATE_S, first.deadline - time.monotonic())
        if take_turns:
            time_s = min(time_s, TURN_S)
        try:
            found: Place | None = self._find(first.message, math.ceil(time_s * MS))
        except NoAnswer as error:
            lot.trouble = error.with_traceback(None)
        except Exception as error:
            self._refuse(lot, count, error)
        else:
            while self._open(lot, found):
                found = None
                time.sleep(LET_GO_S)

    def _open(self, lot: Lot, found: Place | None) -> bool:
        """Sends some messages of a lot whose place is known by now, the first one to `found`. False where there is none
        left, or a node has to be asked for the next one's place."""
        with self._lock:
            lot.is_open = self._send(lot, TOGETHER, found)
            goes_on = lot.is_open and bool(lot.waiting)
        self._call_back()
        return goes_on

    def _send(self, lot: Lot, count: int, found: Place | None) -> bool:
        """Under the lock. False where a node has to be asked for the next one's place."""
        place = found
        for _ in range(min(count, len(lot.waiting))):
            waiting = lot.waiting[0]
            place = found or self._known(waiting.message)
            if place is None:
                break
            found = None
            try:
                sent = put(*place, waiting.message, waiting.urgent, None)
            except Exception as error:
                self._fail(waiting, error)
            else:
                self._sessions[0].accumulator.release(waiting.size)
                self._called += waiting.future.place(sent)
                waiting.is_over = True
            lot.waiting.popleft()
        self._moved.notify_all()
        return place is not None or not lot.waiting

    def _refuse(self, lot: Lot, count: int, error: Exception) -> None:
        while count:
            with self._lock:
                for _ in range(min(TOGETHER, count)):
                    self._fail(lot.waiting[0], error)
                    lot.waiting.popleft()
                    count -= 1
                self._moved.notify_all()
            self._call_back()

    def _give_back(self, where: Where, lot: Lot) -> None:
        """Behind the others. What is overdue by now, here and there, ends with why it was not asked for in time."""
        now = time.monotonic()
        with self._lock:
            lot.is_open = False
            if self.lots.get(where) is lot:
                self._untaken.append(where)
            for each in list(self._untaken):
                waiting = self.lots[each].waiting
                while waiting and waiting[0].deadline <= now:
                    self._fail(waiting[0], self._in_vain(self.lots[each]))
                    waiting.popleft()
                if not waiting:
                    del self.lots[each]
                    self._untaken.remove(each)
            self._moved.notify_all()
        self._call_back()

    def _in_vain(self, lot: Lot) -> NoAnswer:
        return NoAnswer(lot.trouble.endpoint, self._delivery_ms, lot.trouble.trouble)

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        """Under the lock. Everyone gets an error of their own: one that is raised keeps what it passed through."""
        if isinstance(error, TowlineError):
            own: Exception = copy.copy(error)
        else:
            told = partial(_log, waiting.message.topic, (type(error), error, error.__traceback__))
            self._called.append((told, waiting.future))
            own = error.with_traceback(None)
        self._sessions[0].accumulator.release(waiting.size)
        self._called += waiting.future.fail(cast(TowlineError, own))
        waiting.is_over = True

    def _call_back(self) -> None:
        """Never on a sender's thread, which may hold what a callback waits for, and without the lock."""
        with self._lock:
            called, self._called = self._called, []
        call(called)

    def _end(self) -> None:
        for session in list(self._sessions):
            session.io_thread.close_when_idle()


def _log(topic: str, raised: tuple[type[Exception], Exception, TracebackType | None], _: SendFuture) -> None:
    log.error("a message for %s cannot be sent", topic, exc_info=raised)


def _kept(message: Message, unique_key: str) -> Message:
    """As it is now, whatever becomes of the object: with the unique key that it will have."""
    keys = message.keys if isinstance(message.keys, str) else tuple(message.keys)
    properties = {UNIQ_KEY: unique_key, **(message.properties or {})}
    return replace(message, body=bytes(message.body), keys=keys, properties=properties)
