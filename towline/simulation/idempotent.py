"""Idempotent producers of the simulated group: batches with places by the product's own class, over links that fail.

`Session` stands for the product's I/O thread, `SequencedAccumulator` is the product's.
"""

from collections.abc import Callable
from typing import Any, Final

from towline.client.errors import AskRefused
from towline.client.link.rpc import Reply
from towline.client.send.accumulator import BatchLimits, refused, timed_out
from towline.client.send.futures import Batch, SendFuture, TopicRoute
from towline.client.send.retrying import Fate, fate_of, goes_again
from towline.client.send.sequencing import JUDGES, SequencedAccumulator
from towline.errors import NoAnswer, ProducerFenced, TowlineError
from towline.format.record.sequence import ROOM
from towline.format.wire.frames import Group as Head
from towline.format.wire.status import PutStatus

from .clients import ANSWER_MS, RETRIES, TIME_MS, request
from .disk import SIZE_MAX, SIZE_MIN, record_of
from .machine import Group, Machine
from .master import Master
from .network import CLIENT
from .put import Answer, PutRequest
from .sequences import TOPIC
from .world import US

COME_MS: Final = (50, 250)  # between two batches
BATCH_MAX: Final = 3  # records
QUEUES: Final = 2
WAITING_MAX: Final = 5  # batches without an outcome
BEGUN_ANEW_SHARE: Final = 0.01  # of batches: the program ends before it, and begins again
NAMED_SHARE: Final = 0.6
_BYTES_MAX: Final = 1 << 20
_LIMITS: Final = BatchLimits(0.0, _BYTES_MAX, _BYTES_MAX, ANSWER_MS, TIME_MS)
_FACTS: Final = {"write_queues": QUEUES, "read_queues": QUEUES}

Told = Callable[[Reply | None, TowlineError | None], None]


class Session:
    """One life of an idempotent producer: what its I/O thread does. `at` is the node that it asks first."""

    def __init__(self, group: Group, place: int, at: int, name: str) -> None:
        self._group, self._world, self._place, self.at = group, group.world, place, at
        self._batches = SequencedAccumulator(_LIMITS, lambda: None, lambda: True, name, self._tell, lambda: {JUDGES: 1})
        self._route = TopicRoute(TOPIC, _FACTS, None)  # type: ignore[arg-type]
        self._under_way: dict[int, Batch] = {}  # by attempt
        self._attempts = self._questions = self._paused_until_ms = 0
        self._gone = False

    @property
    def ended(self) -> bool:
        """Whether it sends nothing any more."""
        return self._gone or self._batches.closed is not None

    def end(self) -> None:
        """The program ends. What it has sent is on its way."""
        self._gone = True

    def add(self, queue: int, records: bytes, count: int) -> SendFuture:
        future = self._batches.add_many(self._route, queue, records, count, "")
        future.batch.deadline = self._now_s + TIME_MS / 1000
        self._turn()
        return future

    @property
    def _now_s(self) -> float:
        return self._world.now_ms / 1000

    @property
    def _machine(self) -> Machine:
        return self._group.machines[self.at]

    def _turn(self) -> None:
        """Sends what may go: of each queue one batch."""
        if self._gone:
            return
        now = self._now_s
        for batch in self._batches.expired(now):
            self._batches.finish([batch], PutStatus.UNKNOWN_ERROR, timed_out(batch, now))
        while self._world.now_ms >= self._paused_until_ms and not self.ended:
            batches = self._batches.next_request(now, _BYTES_MAX)
            if not batches:
                return
            self._send(batches[0])

    def _pause(self, ms: int) -> None:
        self._paused_until_ms = max(self._paused_until_ms, self._world.now_ms + ms)
        self._world.after(ms * US, self._turn)

    def _move(self) -> None:
        self.at = (self.at + 1) % self._group.plan.nodes

    # --- batches

    def _send(self, batch: Batch) -> None:
        batch.attempts += 1
        self._attempts += 1
        attempt, machine, network = self._attempts, self._machine, self._group.network
        self._under_way[attempt] = batch
        records = b"".join(batch.records)
        head = Head(batch.route.name, batch.queue_id, batch.count, len(records))
        expires = machine.clock.now_ms() + ANSWER_MS

        arrivals = 0

        def arrive() -> None:
            """Put judges a doubled request twice. The link answers once, as TCP has no doubles and keeps the order:
            that the later copy is not known any more is not what the producer hears first."""
            nonlocal arrivals
            arrivals += 1
            counts = arrivals == 1

            def answer(said: Answer) -> None:
                network.deliver(machine.number, self._place, lambda: self._answered(attempt, said) if counts else None)

            if isinstance(machine.processes, Master):
                machine.guarded(lambda: request(machine, PutRequest(records, head, expires, answer)))()
            elif machine.up:
                answer(Answer(PutStatus.NOT_MASTER))

        network.deliver(self._place, machine.number, arrive)
        self._world.after(ANSWER_MS * US, lambda: self._lost(attempt))

    def _answered(self, attempt: int, said: Answer) -> None:
        batch = self._under_way.pop(attempt, None)
        if batch is None or self._gone:
            return
        status = said.status
        if status.stored:
            if fate_of(status, said.retry_after_ms, insists=True, has_later=True) is Fate.DONE:
                self._batches.finish([batch], status)
            else:
                batch.unknown = True
                self._again(batch)
        elif self._batches.may_pass([batch], status, said.retry_after_ms):
            elsewhere = status is PutStatus.NOT_MASTER
            batch.refusal = status.name, ""
            batch.refusals += bool(said.retry_after_ms) or elsewhere
            if elsewhere:
                self._move()
            self._again(batch, said.retry_after_ms or 20)
        else:
            self._batches.finish([batch], status, refused(batch, status, status.name))
        self._turn()

    def _lost(self, attempt: int) -> None:
        batch = self._under_way.pop(attempt, None)
        if batch is None or self._gone:
            return
        batch.unknown = True
        self._move()
        self._again(batch, 50)
        self._turn()

    def _again(self, batch: Batch, pause_ms: int = 20) -> None:
        if goes_again(batch.attempts, batch.refusals, RETRIES, batch.deadline, self._now_s):
            self._batches.requeue([batch])
            self._pause(pause_ms)
        else:
            self._batches.finish([batch], PutStatus.UNKNOWN_ERROR, timed_out(batch, self._now_s))

    # --- epochs

    def _tell(self, op: str, facts: dict[str, Any], timeout_ms: int, told: Told) -> None:
        self._ask(facts | {"op": op}, told, self._world.now_ms + timeout_ms)

    def _ask(self, question: dict[str, Any], told: Told, until_ms: int) -> None:
        """Asks one node after the other, as long as none answers."""
        self._questions += 1
        asked, machine, network = self._questions, self._machine, self._group.network

        def heard(found: dict[str, Any] | ProducerFenced | None) -> None:
            if asked != self._questions or self._gone:
                return
            self._questions += 1  # nothing else is waited for
            if found is None and self._world.now_ms < until_ms:
                self._move()
                self._world.after(50 * US, lambda: None if self._gone else self._ask(question, told, until_ms))
                return
            if found is None:
                told(None, NoAnswer(machine.name, ANSWER_MS, "it is silent"))
            elif isinstance(found, dict):
                told(Reply(found, None), None)  # type: ignore[arg-type]
            else:
                told(None, AskRefused(question["op"], ProducerFenced.__name__, str(found), ""))
            self._turn()

        def answer(found: dict[str, Any] | ProducerFenced | None) -> None:
            network.deliver(machine.number, self._place, lambda: heard(found))

        def arrive() -> None:
            if machine.up:
                machine.guarded(lambda: answer(begun(machine, question)))()

        network.deliver(self._place, machine.number, arrive)
        self._world.after(ANSWER_MS * US, lambda: heard(None))


class IdempotentProducer:
    """A program with an idempotent producer, of a name or without; when it ends, or is fenced, it begins again."""

    def __init__(self, group: Group, number: int) -> None:
        self._group, self._world, self._place = group, group.world, CLIENT - number
        self._name = f"producer {number}" if self._world.chance(NAMED_SHARE) else ""
        self._messages = number << 20
        self._futures: list[SendFuture] = []
        self._session = self._begin(self._world.random.randrange(group.plan.nodes))
        self._next()

    def _begin(self, at: int) -> Session:
        self._futures.clear()
        return Session(self._group, self._place, at, self._name)

    def _next(self) -> None:
        self._world.after(self._world.between(*COME_MS), self._come)

    def _come(self) -> None:
        if self._world.chance(BEGUN_ANEW_SHARE):
            self._session.end()
        if self._session.ended:
            self._session = self._begin(self._session.at)
        self._futures = [future for future in self._futures if not future.done()]
        if len(self._futures) < WAITING_MAX:
            self._send()
        self._next()

    def _send(self) -> None:
        chance = self._world.random
        queue, count = chance.randrange(QUEUES), chance.randint(1, BATCH_MAX)
        records = b""
        for _ in range(count):
            self._messages += 1
            records += record_of(self._messages, chance.randint(SIZE_MIN, SIZE_MAX), queue, ROOM)
        self._futures.append(self._session.add(queue, records, count))


def begun(machine: Machine, question: dict[str, Any]) -> dict[str, Any] | ProducerFenced | None:
    """What a node answers who asks for an epoch; None where it is no master."""
    if not isinstance(machine.processes, Master):
        return None
    try:
        return machine.processes.begin_producer(question)
    except ProducerFenced as fenced:
        return fenced
