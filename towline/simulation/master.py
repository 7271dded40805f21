"""The processes of a simulated master: put, flush, send, reput, serve, and lease where etcd decides."""

from typing import Any, Final

from towline.errors import EtcdUnavailable, MalformedKey
from towline.format.files.epochs import end_of
from towline.ha.leader.leadership import Leadership
from towline.ha.leader.lease import RETRY_MS, LeaseKeeper
from towline.log.state.role_file import MASTER
from towline.node.store.confirmed import confirmed_of
from towline.runtime.positions import Duty, Position
from towline.serve.groups.epochs import EpochBounds
from towline.serve.groups.offsets import NONE, Offsets

from .disk import OFFSETS
from .flushing import Flush
from .machine import Machine
from .peers import epochs_of
from .put import Put, PutRequest
from .sender import Sender
from .sequences import TOPIC

TURN_MS: Final = (30, 70)
SAVE_MS: Final = 300  # of the offsets of groups
GROUP, QUEUE = "g", 0


class SimulatedKeeper(LeaseKeeper):
    """The lease of a simulated master."""

    machine: Machine

    def _order(self, order: dict[str, Any]) -> None:
        self.machine.order(order)

    def _boottime_ns(self) -> int:
        return self.machine.clock.boottime_ns() + self.machine.etcd.busy_ns


class Master:
    """What runs on a master."""

    role = MASTER

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._view = machine.view(Duty.REPUT, MASTER)
        self._confirmed = confirmed_of(self._view)
        self._dispatched = self._view.writer(Position.DISPATCHED)
        self.flush = Flush(machine, MASTER, self.moved)
        self.sender = Sender(machine, self.moved)
        self.put = Put(machine, machine.group.history, self._appended)
        self.offsets = Offsets(lambda topic, queue: (0, self.queue_end))
        self.offsets.load(table_of(machine.disk.files.get(OFFSETS, {})))
        log: Any = self._view.log
        self._epochs = EpochBounds(lambda: machine.positions.get(Position.EPOCH), self._end_of, log)
        self._save_at = machine.clock.monotonic_ms() + SAVE_MS
        self._keeper = self._lease() if machine.plan.etcd else None
        self._retry_at = 0
        self._dispatch()
        self._tick()

    def _lease(self) -> SimulatedKeeper:
        machine = self.machine
        view = machine.view(Duty.LEASE, MASTER)
        etcd: Any = machine.etcd
        leadership = Leadership(etcd, view.settings.broker_cluster_name, view.settings.broker_name)
        SimulatedKeeper.machine = machine
        keeper = SimulatedKeeper(view, etcd, leadership)
        keeper.machine = machine
        return keeper

    # --- turns

    def _tick(self) -> None:
        self.machine.after(self.machine.world.between(*TURN_MS), self._tick)
        if self._keeper is not None:
            self._keep_lease(self._keeper)
        self.flush.turn()
        self.sender.turn()
        self.moved()
        now = self.machine.clock.monotonic_ms()
        if now >= self._save_at:
            self._save_at = now + SAVE_MS
            self.machine.disk.files[OFFSETS] = content_of(self.offsets)

    def _keep_lease(self, keeper: SimulatedKeeper) -> None:
        now = self.machine.clock.monotonic_ms()
        if now < self._retry_at:
            return
        self.machine.etcd.busy_ns = 0
        try:
            keeper.cycle(now)
        except (EtcdUnavailable, MalformedKey):
            self._retry_at = now + RETRY_MS
        self.machine.etcd.busy_ns = 0

    def _appended(self) -> None:
        self.flush.turn()
        self.sender.turn()
        self.moved()

    def moved(self) -> None:
        """A position has moved: reput goes on, clients are answered."""
        self._dispatch()
        self.put.release()

    def _dispatch(self) -> None:
        confirmed = self._confirmed()
        if confirmed > self._dispatched.get():
            self._dispatched.advance(confirmed)

    # --- groups

    @property
    def queue_end(self) -> int:
        """The visible end of the queue."""
        return self.machine.disk.log.records(self._dispatched.get())

    @property
    def epoch(self) -> int:
        return self.machine.positions.get(Position.EPOCH)

    @property
    def stored_offset(self) -> int:
        """Of the group; 0 where it has none."""
        return max(0, self.offsets.get(TOPIC, GROUP, QUEUE))

    def _end_of(self, topic: str, queue: int, epoch: int) -> int | None:
        machine = self.machine
        if epoch >= machine.positions.get(Position.EPOCH):
            return None
        epochs, end = epochs_of(machine), machine.disk.log.end
        if not any(later.number > epoch for later in epochs):
            return None
        return machine.disk.log.records(end_of(epochs, epoch, end))

    def commit(self, offset: int, epoch: int) -> bool:
        """Stores a group's offset that was read under that epoch; False for one of a later master."""
        if epoch > self.machine.positions.get(Position.EPOCH):
            return False
        asked = {QUEUE: offset}
        self.offsets.commit(TOPIC, GROUP, asked | self._epochs.clamp(GROUP, TOPIC, asked, epoch))
        return True

    # --- the others

    def request(self, asked: PutRequest) -> None:
        self.put.request(asked)

    def begin_producer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Raises ProducerFenced."""
        return self.put.begin_producer(question)

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        return None if self.sender.ended else self.sender.promises.answer(question)

    def restart_sender(self) -> None:
        """The sender alone was killed, and another one begins."""
        self.sender.end()
        self.sender = Sender(self.machine, self.moved)

    def restart_put(self) -> None:
        """Put alone was killed: requests that waited get no answer."""
        self.put = Put(self.machine, self.machine.group.history, self._appended)

    def stop(self) -> None:
        self.machine.disk.files[OFFSETS] = content_of(self.offsets)
        self.sender.end()
        if self._keeper is not None:
            try:
                self._keeper.hand_over()
            except (EtcdUnavailable, MalformedKey):
                return

    def gone(self) -> None:
        self.sender.end()


def table_of(content: dict[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    """The offsets in the content of consumerOffset.json."""
    table = content.get("offsetTable", {})
    return {
        (name.partition("@")[0], name.partition("@")[2]): {int(queue): at for queue, at in queues.items()}
        for name, queues in table.items()
    }


def content_of(offsets: Offsets) -> dict[str, Any]:
    at = offsets.get(TOPIC, GROUP, QUEUE)
    return {} if at == NONE else {"offsetTable": {f"{TOPIC}@{GROUP}": {str(QUEUE): at}}}
