"""Clients of the simulated group: producers that send again by the product's rules, and a consumer with its group."""

from dataclasses import dataclass
from typing import Any, Final

from towline.client.send.retrying import Fate, fate_of, goes_again
from towline.format.wire.status import PutStatus
from towline.serve.groups.offsets import NONE

from .disk import SIZE_MAX, SIZE_MIN, record_of
from .machine import Group, Machine
from .master import GROUP, QUEUE, Master
from .network import CLIENT
from .put import Answer, PutRequest
from .sequences import TOPIC
from .world import US

SEND_MS: Final = (30, 160)  # between two messages
ANSWER_MS: Final = 1000  # an answer is waited for so long
TIME_MS: Final = 4000  # of one message, with all retries
RETRIES: Final = 20
HELD_MS: Final = 500  # what was stored and not promised waits so long for a later master
READ_MS: Final = (60, 200)
READ_MAX: Final = 20


@dataclass(slots=True)
class Sent:
    """A message on its way. `attempt` counts requests: an answer to an earlier one is too late."""

    message: int
    size: int
    deadline_ms: int
    attempts: int = 0
    refusals: int = 0
    attempt: int = 0


class Producer:
    """A producer with one message under way."""

    def __init__(self, group: Group, number: int) -> None:
        self._group, self._world, self._place = group, group.world, CLIENT - number
        self._at = group.world.random.randrange(group.plan.nodes)
        self._insists = group.world.chance(0.3)
        self._messages = number << 20
        self._sent: Sent | None = None
        self.acknowledged = self.failed = 0
        self._next()

    def _next(self) -> None:
        self._sent = None
        self._world.after(self._world.between(*SEND_MS), self._send_new)

    def _send_new(self) -> None:
        self._messages += 1
        size = self._world.random.randint(SIZE_MIN, SIZE_MAX)
        self._sent = Sent(self._messages, size, self._world.now_ms + TIME_MS)
        self._send()

    def _send(self) -> None:
        sent = self._sent
        assert sent is not None
        sent.attempts += 1
        sent.attempt += 1
        attempt, machine = sent.attempt, self._group.machines[self._at]
        expires = 1_800_000_000_000 + self._world.now_ms + machine.clock.step_ms + ANSWER_MS

        def answer(said: Answer) -> None:
            heard = lambda: self._answered(sent, attempt, said.status, said.retry_after_ms)  # noqa: E731
            self._group.network.deliver(machine.number, self._place, heard)

        def arrive() -> None:
            if isinstance(machine.processes, Master):
                asked = PutRequest(record_of(sent.message, sent.size), None, expires, answer)
                machine.guarded(lambda: request(machine, asked))()
            elif machine.up:
                answer(Answer(PutStatus.NOT_MASTER))

        self._group.network.deliver(self._place, machine.number, arrive)
        self._world.after(ANSWER_MS * US, lambda: self._lost(sent, attempt))

    def _answered(self, sent: Sent, attempt: int, status: PutStatus, retry_after_ms: int) -> None:
        if sent is not self._sent or attempt != sent.attempt:
            return
        sent.attempt += 1  # nothing else is waited for
        fate = fate_of(status, retry_after_ms, insists=self._insists, has_later=True)
        if fate is Fate.DONE:
            self.acknowledged += status.acknowledged
            self._next()
        elif fate is Fate.HELD:
            self._world.after(HELD_MS * US, lambda: self._next() if sent is self._sent else None)
        elif fate is Fate.AGAIN:
            elsewhere = status is PutStatus.NOT_MASTER
            sent.refusals += bool(retry_after_ms) or elsewhere
            self._again(sent, retry_after_ms or 20, elsewhere=elsewhere)
        else:
            self.failed += 1
            self._next()

    def _lost(self, sent: Sent, attempt: int) -> None:
        if sent is self._sent and attempt == sent.attempt:
            sent.attempt += 1
            self._again(sent, 50, elsewhere=True)

    def _again(self, sent: Sent, pause_ms: int, *, elsewhere: bool) -> None:
        if elsewhere:
            self._at = (self._at + 1) % self._group.plan.nodes
        if not goes_again(sent.attempts, sent.refusals, RETRIES, sent.deadline_ms, self._world.now_ms):
            self.failed += 1
            self._next()
            return
        self._world.after(pause_ms * US, lambda: self._send() if sent is self._sent else None)


class Consumer:
    """The only member of a group: it reads the queue, and commits what it has read with the epoch it was read in."""

    def __init__(self, group: Group) -> None:
        self._group, self._world, self._place = group, group.world, CLIENT - 9
        self._offset, self._epoch, self._at = 0, 0, 0
        self._tick()

    def _tick(self) -> None:
        self._world.after(self._world.between(*READ_MS), self._tick)
        network, machine = self._group.network, self._group.machines[self._at]
        if not isinstance(machine.processes, Master) or machine.paused:
            self._at = (self._at + 1) % self._group.plan.nodes
            return
        network.deliver(self._place, machine.number, lambda: self._ask(machine))

    def _ask(self, machine: Machine) -> None:
        if isinstance(machine.processes, Master):
            machine.guarded(lambda: self._read(machine))()

    def _read(self, machine: Machine) -> None:
        """At the master: a commit of what was read, then what follows it."""
        master = machine.processes
        if not isinstance(master, Master) or not master.commit(self._offset, self._epoch):
            return
        stored = master.offsets.get(TOPIC, GROUP, QUEUE)
        offset = min(0 if stored == NONE else stored, self._offset)
        end, epoch = min(offset + READ_MAX, master.queue_end), master.epoch
        self._group.network.deliver(machine.number, self._place, lambda: self._have(end, epoch))

    def _have(self, offset: int, epoch: int) -> None:
        self._offset, self._epoch = offset, epoch


def request(machine: Machine, asked: PutRequest) -> None:
    processes: Any = machine.processes
    if isinstance(processes, Master):
        processes.request(asked)
