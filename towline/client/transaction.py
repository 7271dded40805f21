"""Transactions: readers see a message when its sender commits, and never when the sender rolls back (spec 5.4).

    with TransactionProducer(endpoint, "billing", check) as producer:
        producer.send(Message("orders", body), execute)

`send` stores the message as a half message, which no reader sees, calls `execute`, and commits or rolls back as it
returns. If the end does not reach the node, the node asks any producer of the group later, and `check` answers.
"""

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from towline.client.link.connection import own_facts
from towline.client.link.endpoints import Endpoints, several
from towline.client.link.routes import of_one_group
from towline.client.link.rpc import Reply
from towline.client.send.accumulator import Accumulator, BatchLimits
from towline.client.send.futures import SendResult
from towline.client.send.io_thread import IoThread, SendRules
from towline.errors import LinkRefused, NoAnswer
from towline.format.files.topics import check_topic
from towline.format.record.forms import half
from towline.format.record.properties import UNIQ_KEY
from towline.format.wire.status import PutStatus
from towline.link.unclosed import call_in_child, on_drop, renew

from .errors import (
    AskRefused,
    ClientClosed,
    IllegalDelay,
    IllegalOutcome,
    IllegalTransaction,
    TransactionRefused,
)
from .message import Message, ReceivedMessage
from .producer import Producer

END_MS: Final = 15_000  # the node holds an ending for 10 s
WATCH_MS: Final = 10_000
LATE_MS: Final = 5_000
AGAIN_S: Final = 0.2  # before a node is asked again that had no answer; doubled each time
AGAIN_MAX_S: Final = 5.0
EARLY_S: Final = 1.0  # an answer without checks that comes sooner came for another reason than its time

log = logging.getLogger(__name__)


class State(Enum):
    """The outcome of a sender's own work."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"  # the node asks again


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction, to be ended also from another process: its text is `first-unique key-group`."""

    first: int  # offset of the half in its queue
    unique_key: str
    group: str

    def __str__(self) -> str:
        return f"{self.first}-{self.unique_key}-{self.group}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The transaction in a text. Raises IllegalTransaction."""
        first, _, rest = text.partition("-")
        key, mark, group = rest.partition("-")
        if not (first.isascii() and first.isdecimal() and mark and group):
            raise IllegalTransaction(text)
        return cls(int(first), key, group)


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """`half` is what became of the half; `ended` of the end: None where the transaction is left to a check.

    A half that was stored, but not promised, is rolled back without any work.
    """

    transaction: Transaction
    half: SendResult
    state: State
    ended: PutStatus | None


Execute = Callable[[Message], State]
Check = Callable[[ReceivedMessage], State]


class TransactionProducer:
    """A producer of transactions of one producer group. Any number of threads may use it.

    endpoint  of the node, or of several nodes as a `Producer` takes them
    group     of producers that can answer for each other's transactions
    check     is asked about transactions that were left open, on a thread of this object; an error counts as UNKNOWN
    schedule  endpoint where transactions end; found through the node by default
    settings  of the `Producer` within

    Raises InvalidEndpoint, IllegalTopic (group), ValueError. Nothing is connected before the first message, or the
    first question of the checks.
    """

    def __init__(
        self, endpoint: Endpoints, group: str, check: Check | None = None, *, schedule: Endpoints = "", **settings: Any
    ) -> None:
        check_topic(group)  # the same letters are legal
        self.group = group
        self._check = check
        self._schedule = several(schedule) if schedule else ()
        one = of_one_group(endpoint)
        if one is None:
            raise ValueError("a transaction producer is for one group of nodes: name the endpoints of its nodes")
        self._producer = Producer(one, **settings)
        self._io_threads: list[IoThread] = []  # one at most
        self._lock = threading.Lock()
        self._closing = threading.Event()
        call_in_child(self)
        on_drop(self, _stop, self._closing, self._io_threads)
        self._thread: threading.Thread | None = None
        if check is not None:
            known = weakref.ref(self), self._closing, group
            self._thread = threading.Thread(target=_serve_checks, args=known, name=f"towline checks of {group}")
            self._thread.daemon = True
            self._thread.start()

    # --- transactions

    def send(self, message: Message, execute: Execute) -> TransactionResult:
        """Stores the half, calls `execute` with the message and its unique key, and ends the transaction as it returns.

        Raises what `begin` and `execute` raise, and IllegalOutcome where `execute` returns no State; then the
        transaction is left to a check, if it began.

        A node that does not get the end is not an error: the transaction is left to a check.
        """
        transaction, stored = self.begin(message)
        state = State.ROLLBACK
        if stored.acknowledged:
            known = {**(message.properties or {}), UNIQ_KEY: stored.unique_key}
            state = _outcome("execute", execute(replace(message, properties=known)))
        ended = None
        if state is not State.UNKNOWN:
            try:
                ended = self._end(transaction, state)
            except TransactionRefused as refused:
                if refused.name != _ALREADY[state]:
                    raise
                ended = PutStatus.PUT_OK  # a check came first, or the answer to the first attempt got lost
            except (NoAnswer, LinkRefused) as error:
                log.warning("transaction %s is left to a check: %s", transaction, error)
        return TransactionResult(transaction, stored, state, ended)

    def begin(self, message: Message) -> tuple[Transaction, SendResult]:
        """Stores the half. Raises IllegalDelay for a message that is to come later, and what `Producer.send` raises."""
        for name, value in (("delay_level", message.delay_level), ("deliver_at", message.deliver_at)):
            if value is not None:
                raise IllegalDelay(name, str(value), "a message of a transaction comes when it is committed")
        message = self._producer.prepared(message)
        route = self._producer.route(message.topic)
        queue_id = message.queue_id
        if queue_id is None:
            queue_id = route.sticky if message.sharding_key is None else route.queue_of(message.sharding_key)
            route.rotate()
        form = half(message.topic, queue_id, self.group)
        stored = self._producer.add_form(message, form).result()
        return Transaction(stored.queue_offset, stored.unique_key, self.group), stored

    def commit(self, transaction: Transaction) -> PutStatus:
        """Commits: readers see the message from now on. Returns what the node promises of it.

        Raises TransactionRefused, NoAnswer, LinkRefused, ClientClosed.
        """
        return self._end(transaction, State.COMMIT)

    def rollback(self, transaction: Transaction) -> PutStatus:
        """Rolls back: no reader will ever see the message. Raises the same."""
        return self._end(transaction, State.ROLLBACK)

    def close(self) -> None:
        """Waits for the outcomes of messages under way. Checks are not answered any more."""
        self._closing.set()
        self._producer.close()
        with self._lock:
            for io_thread in self._io_threads:
                io_thread.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def forked(self) -> None:
        renew(self._lock, self._closing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, transaction: Transaction, state: State) -> PutStatus:
        facts = {
            "first": transaction.first,
            "group": transaction.group,
            "key": transaction.unique_key,
            "outcome": state.value,
        }
        try:
            answer = self.io_thread().ask("transaction_end", facts, END_MS).facts
        except AskRefused as refused:
            raise TransactionRefused(refused.error, refused.sentence, str(transaction)) from None
        return PutStatus[str(answer["status"])]

    # --- checks

    def answer_check(self, transaction: Transaction, message: ReceivedMessage) -> None:
        assert self._check is not None
        try:
            state = _outcome("check", self._check(message))
        except Exception:
            log.exception("the check of transaction %s failed", transaction)
            return
        if state is State.UNKNOWN:
            return
        try:
            self._end(transaction, state)
        except (TransactionRefused, NoAnswer, LinkRefused, ClientClosed) as error:
            log.warning("%s after a check: %s", state.value, error)

    # --- the link

    def io_thread(self) -> IoThread:
        """The thread that asks questions over a link of its own to the node that is master now."""
        for io_thread in self._io_threads:
            return io_thread
        if not self._schedule:
            self._producer.neighbour("schedule")  # raises here what the thread could report to nobody
        with self._lock:
            if self._closing.is_set():
                raise ClientClosed("transaction producer")
            if not self._io_threads:
                facts = own_facts("producer", self.group, "")
                endpoints = self._schedule or self._producer.follow("schedule")
                io_thread = IoThread(endpoints, facts, SendRules(1, 1, 1, 0, False), lambda topic: None)
                io_thread.begin(Accumulator(BatchLimits(0, 1, 1, 1, 1), io_thread.wake, io_thread.push))
                self._io_threads.append(io_thread)  # last: others read it without the lock
            return self._io_threads[0]


def _outcome(whose: str, given: object) -> State:
    """Raises IllegalOutcome: what is true in other senses commits nothing."""
    if not isinstance(given, State):
        raise IllegalOutcome(whose, repr(given))
    return given


def _stop(closing: threading.Event, io_threads: list[IoThread]) -> None:
    closing.set()
    for io_thread in io_threads:
        io_thread.stop()


def _serve_checks(known: "weakref.ref[TransactionProducer]", closing: threading.Event, group: str) -> None:
    """The thread. While it waits it knows nobody, so that a producer which its program drops can be collected."""
    in_vain = 0
    while not closing.is_set():
        began = time.monotonic()
        reply = None
        try:
            reply = _watch(known, group)
        except ClientClosed:
            return
        except (NoAnswer, LinkRefused, AskRefused) as error:
            log.info("no checks: %s", error)
        if reply is None or (not reply.facts["checks"] and time.monotonic() - began < EARLY_S):
            closing.wait(_pause_s(in_vain))
            in_vain += 1
            continue
        in_vain = 0
        for row, message in zip(reply.facts["checks"], reply.columns.messages(), strict=True):
            _answer(known, Transaction(int(row["first"]), message.unique_key or "", group), message)


def _watch(known: "weakref.ref[TransactionProducer]", group: str) -> Reply:
    producer = known()
    if producer is None:
        raise ClientClosed("transaction producer")
    io_thread = producer.io_thread()
    del producer
    return io_thread.ask("transaction_watch", {"group": group, "wait_ms": WATCH_MS}, WATCH_MS + LATE_MS)


def _answer(known: "weakref.ref[TransactionProducer]", transaction: Transaction, message: ReceivedMessage) -> None:
    producer = known()
    if producer is not None:
        producer.answer_check(transaction, message)


def _pause_s(in_vain: int) -> float:
    """Not the same for all producers: they would come back together."""
    return min(AGAIN_MAX_S, AGAIN_S * float(2 ** min(in_vain, 16))) * random.uniform(0.5, 1.0)


_ALREADY: Final = {State.COMMIT: "ALREADY_COMMITTED", State.ROLLBACK: "ALREADY_ROLLED_BACK"}
