"""Put on a simulated master: the gate, the append, and the acknowledgements by the product's rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from towline.format.wire.status import PutStatus
from towline.log.state.role_file import MASTER
from towline.master.put.acks import PendingAcks, PendingBatch, Progress, ack_policy
from towline.node.store.put_checks import judge, lease_over_ms, limits_of, store_state
from towline.runtime.positions import Duty, Position
from towline.runtime.settings_model import BrokerRole

from .disk import record_of
from .history import History
from .machine import Machine


@dataclass(frozen=True, slots=True)
class PutRequest:
    """A message to be stored. `expires_ms`: by the node's wall clock, as its client knows it. `answer` is called with
    the status and, in ms, when to come back."""

    message: int
    size: int
    expires_ms: int
    answer: Callable[[PutStatus, int], None]


class One:
    """The answer of one stored request."""

    def __init__(self, request: PutRequest) -> None:
        self._request = request

    def send(self, first: int, count: int, status: PutStatus) -> None:
        self._request.answer(status, 0)


class Put:
    """One life of the put process."""

    def __init__(self, machine: Machine, history: History, appended: Callable[[], None]) -> None:
        view = machine.view(Duty.PUT, MASTER)
        self._machine, self._history, self._notify = machine, history, appended
        self._settings, self._positions = view.settings, machine.positions
        self._appended = view.writer(Position.APPENDED)
        self._limits = limits_of(view.settings)
        self._policy = ack_policy(view.settings)
        self._pending = PendingAcks(self._policy)
        self._pending.end = self._appended.get()
        self._slave_seen_ms = machine.clock.monotonic_ms()

    def request(self, asked: PutRequest) -> None:
        machine = self._machine
        state = store_state(
            self._positions, self._limits, len(self._pending), stopping=False, now_ns=machine.clock.boottime_ns()
        )
        refused = judge(self._limits, state)
        if refused is not None:
            asked.answer(refused.status, refused.retry_after_ms)
            return
        if machine.clock.now_ms() > asked.expires_ms:
            asked.answer(PutStatus.EXPIRED, 0)
            return
        serial = self._history.next_serial()
        end = machine.disk.log.append(record_of(serial, asked.message, asked.size))
        self._appended.advance(end)
        now = machine.clock.monotonic_ms()
        self._pending.add(PendingBatch([end], now, One(asked), [now]))
        self._notify()

    def release(self) -> None:
        """Answers what can be answered now."""
        now = self._machine.clock.monotonic_ms()
        for batch, first, count, status in self._pending.release(self._progress(now), now):
            if status is PutStatus.PUT_OK:
                self._history.acknowledged(self._machine, _end(batch.ends, first, count))
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
