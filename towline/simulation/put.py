"""Put on a simulated master: the gate, the append, and the acknowledgements by the product's rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from towline.format.wire.frames import Group
from towline.format.wire.status import PutStatus
from towline.log.state.role_file import MASTER
from towline.master.put.acks import PendingAcks, PendingBatch, Progress, ack_policy
from towline.master.put.producers import broken_order
from towline.master.put.sequences import Claim, Repeat
from towline.node.store.put_checks import Refusal, judge, lease_over_ms, limits_of, store_state
from towline.runtime.positions import Duty, Position
from towline.runtime.settings_model import BrokerRole

from .disk import stamped
from .history import History
from .machine import Machine
from .sequences import SimulatedProducers


class Answer(NamedTuple):
    """What a put is answered with. `retry_after_ms`: when to come back; `start`: where what is stored stands."""

    status: PutStatus
    retry_after_ms: int = 0
    start: int = -1


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Records to be stored. `group`: the batch of an idempotent producer. `expires_ms`: by the node's wall clock, as
    its client knows it."""

    records: bytes
    group: Group | None
    expires_ms: int
    answer: Callable[[Answer], None]


class One:
    """The answer of one request that is in the log, from `start` on."""

    def __init__(self, request: PutRequest, start: int) -> None:
        self.request, self.start = request, start

    def send(self, first: int, count: int, status: PutStatus) -> None:
        self.request.answer(Answer(status, start=self.start))


class Put:
    """One life of the put process."""

    def __init__(self, machine: Machine, history: History, appended: Callable[[], None]) -> None:
        view = machine.view(Duty.PUT, MASTER)
        self._machine, self._history, self._notify = machine, history, appended
        self._settings, self._positions = view.settings, machine.positions
        self._appended, self._timestamp = view.writer(Position.APPENDED), view.writer(Position.STORE_TIMESTAMP)
        self._limits = limits_of(view.settings)
        self._policy = ack_policy(view.settings)
        self._pending = PendingAcks(self._policy)
        self._pending.end = self._appended.get()
        self._producers = SimulatedProducers(view, machine, self._appended.get())
        self._slave_seen_ms = machine.clock.monotonic_ms()

    def begin_producer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Raises ProducerFenced."""
        return self._producers.begin(question)

    def request(self, asked: PutRequest) -> None:
        machine = self._machine
        state = store_state(
            self._positions, self._limits, len(self._pending), stopping=False, now_ns=machine.clock.boottime_ns()
        )
        refused = judge(self._limits, state)
        if refused is not None:
            asked.answer(Answer(refused.status, refused.retry_after_ms))
        elif machine.clock.now_ms() > asked.expires_ms:
            asked.answer(Answer(PutStatus.EXPIRED))
        else:
            self._append(asked, max(machine.clock.now_ms(), self._timestamp.get()))

    def _append(self, asked: PutRequest, stored_ms: int) -> None:
        claim = None
        if asked.group is not None:
            claim = self._producers.claim(asked.records, asked.group)
            now_ms = self._machine.clock.now_ms()
            unstored = broken_order() if claim is None else self._producers.judge(claim, now_ms, stored_ms)
            if unstored is not None:
                self._leave(asked, unstored)
                return
        log = self._machine.disk.log
        start = log.end
        if claim is not None:
            stored_ms = max(stored_ms, claim.begun_ms)
        self._timestamp.advance(stored_ms)
        end = log.append(stamped(asked.records, self._history.next_serial(), stored_ms))
        self._appended.advance(end)
        self._note(claim, start, end, stored_ms)
        self._wait_for(end, One(asked, start))
        self._notify()

    def _leave(self, asked: PutRequest, unstored: Refusal | Repeat) -> None:
        """A refused batch, or one that is in the log already: it waits as any other does."""
        if isinstance(unstored, Refusal):
            asked.answer(Answer(unstored.status, unstored.retry_after_ms))
            return
        self._history.repeats += 1
        self._wait_for(max(unstored.end, self._pending.end), One(asked, unstored.physical_offset))
        self._notify()

    def _note(self, claim: Claim | None, start: int, end: int, stored_ms: int) -> None:
        if claim is not None:
            self._producers.stored(claim, self._machine.disk.log.records(start), end, stored_ms)

    def _wait_for(self, end: int, one: One) -> None:
        now = self._machine.clock.monotonic_ms()
        self._pending.add(PendingBatch([end], now, one, [now]))

    def release(self) -> None:
        """Answers what can be answered now."""
        now = self._machine.clock.monotonic_ms()
        for batch, first, count, status in self._pending.release(self._progress(now), now):
            if status is PutStatus.PUT_OK:
                self._history.acknowledged(self._machine, _end(batch.ends, first, count))
                one: Any = batch.answers
                if one.request.group is not None:
                    self._history.placed(self._machine, one.start, one.request.records)
            batch.answers.send(first, count, status)

    def _progress(self, now_ms: int) -> Progress:
        get = self._positions.get
        waits = self._settings.broker_role is BrokerRole.SYNC_MASTER
        flushed, replicated = get(Position.FLUSHED), get(Position.REPLICATED if waits else Position.APPENDED)
        fenced = get(Position.PROMISED) > get(Position.EPOCH)
        over = lease_over_ms(get(Position.LEASE_UNTIL), self._machine.clock.boottime_ns())
        leads = not self._machine.plan.etcd or not over
        if not self._policy.replicated:
            return Progress(flushed, 0, 0, leads, fenced)
        if replicated >= self._pending.end or any(slave.connected for slave in self._positions.slaves()):
            self._slave_seen_ms = now_ms
        return Progress(flushed, replicated, now_ms - self._slave_seen_ms, leads, fenced)


def _end(ends: Sequence[int], first: int, count: int) -> int:
    return ends[first + count - 1]
