"""A start of a simulated node: recovery, the agreement with its peers, then a master or a slave runs."""

from typing import Any

from towline.errors import PromotionRefused, TowlineError
from towline.format.files.epochs import IMPLIED, cut, node_of, opened
from towline.ha.leader.agree import Agreement, Steps
from towline.log.recovery.offset_rollback import clamp_groups
from towline.log.state.durable_file import confirmed_within
from towline.log.state.in_sync_file import InSyncRecord
from towline.log.state.role_file import MASTER, SLAVE, Role
from towline.log.state.truncation_file import Truncation
from towline.node.peers.peer_client import PeerAnswers
from towline.node.roles.agreement import Report
from towline.node.roles.promise import NOTHING, Promise, binding
from towline.node.roles.role_commands import PROMOTE
from towline.runtime.positions import Duty, Position

from .disk import CHECKPOINT, DOUBT, EPOCHS, OFFSETS, OUTCOME, PROMISED, QUEUES, ROLE, SET, TRUNCATION
from .machine import Killed, Left, Machine
from .master import Master
from .peers import epochs_of, promise_of, report, set_of
from .slave import Slave

FOREVER = 2**63 - 1
KILLED_SHARE = 0.004  # of the steps of an agreement: the node is killed behind it
RESTART_MS = (800, 2500)  # of a service manager, after a start that was refused


def promise_before(machine: Machine) -> Promise:
    """What binds the node apart from a promotion of its own that was cut short."""
    promise, before = machine.disk.files.get(PROMISED, (NOTHING, None))
    return promise if before is None else binding(promise, before, set_of(machine))


class RoleState:
    """The node's word and its role on the simulated disk; each step may be the last one."""

    def __init__(self, machine: Machine, *, promoted: bool) -> None:
        self._machine, self._promoted = machine, promoted

    def report(self) -> Report:
        return report(self._machine, MASTER)

    def promise_before(self) -> Promise:
        return promise_before(self._machine)

    def save_promise(self, promise: Promise, before: Promise | None = None) -> None:
        self._save(PROMISED, (promise, before))

    def save_set(self, record: InSyncRecord) -> None:
        self._save(SET, record)

    def save_role(self, role: Role) -> None:
        self._save(ROLE, role)

    def sync_log(self, start: int, end: int) -> None:
        self._machine.disk.flushed = end

    def open_epoch(self, epoch: int, end: int) -> None:
        machine = self._machine
        machine.disk.files.pop(DOUBT, None)
        machine.group.history.opened(machine, epoch, promoted=self._promoted)
        self._save(EPOCHS, opened(epochs_of(machine), epoch, end))

    def _save(self, name: str, value: object) -> None:
        self._machine.disk.files[name] = value
        if self._machine.world.chance(KILLED_SHARE):
            raise Killed


class SimulatedAgreement(Agreement):
    """The agreement by the simulated clock."""

    def _now_s(self) -> float:
        return self._node.clock.monotonic_ms() / 1000

    def _boottime_ns(self) -> int:
        return int(self._node.clock.boottime_ns())  # type: ignore[attr-defined]


class Starting:
    """A start of the node until it runs; meanwhile nobody listens. `order`: what it is to do, as to be promoted."""

    def __init__(self, machine: Machine, order: dict[str, Any] | None, running: bool) -> None:
        self._machine, self._given, self._running = machine, order, running
        promotes = order is not None and order["order"] == PROMOTE
        self._promotes = promotes
        self.role = ""
        self._wanted = MASTER if promotes else self._known_role()
        machine.after(machine.world.between(10, 120), self._recovered)

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        return None

    def stop(self) -> None:
        pass

    def gone(self) -> None:
        pass

    def _known_role(self) -> str:
        if self._machine.plan.etcd:
            return SLAVE
        known = self._machine.disk.files.get(ROLE)
        return (MASTER if self._machine.number == 0 else SLAVE) if known is None else str(known.role)

    # --- recovery

    def _recovered(self) -> None:
        self._recover()
        if self._wanted == SLAVE:
            self._run(SLAVE)
            return
        machine = self._machine
        agreement = SimulatedAgreement(machine.view(Duty.AGREE, MASTER), RoleState(machine, promoted=self._promotes))  # type: ignore[arg-type]
        asked = {"running": self._running} | (self._given or {})
        self._steps: Steps = agreement.promote_steps(asked) if self._promotes else agreement.start_steps(asked)
        self._advance(None)

    def _recover(self) -> None:
        """Finds the log's end, what was confirmed, and whether something may be lost; publishes the positions."""
        machine = self._machine
        disk, files = machine.disk, machine.disk.files
        truncation: Truncation | None = files.pop(TRUNCATION, None)
        if truncation is not None:
            disk.log.cut(truncation.point)
            machine.left = None
            files[QUEUES] = min(files.get(QUEUES, 0), truncation.point)
            files[CHECKPOINT] = min(files.get(CHECKPOINT, 0), truncation.point)
        known, newest = machine.left, epochs_of(machine)[-1].number
        was = disk.log.end
        end = disk.recovered()
        role = files.get(ROLE)
        sole = role is not None and role.sole and node_of(newest) == machine.number
        if sole and known is None and truncation is None:
            confirmed = end
        else:
            published = 0 if known is None else known.confirmed
            confirmed = confirmed_within(end, files.get(QUEUES, 0), published, files.get(CHECKPOINT, 0))
        files[CHECKPOINT] = confirmed
        files[QUEUES] = min(files.get(QUEUES, 0), end)
        if (known is None and truncation is None) or was > end:
            files[DOUBT] = True
        machine.left = Left(confirmed, end)  # for the next recovery, of the other role
        if self._wanted == MASTER:
            clamp_groups(files.get(OFFSETS, {}), {("t", 0): disk.log.records(end)})
        self._publish(end, confirmed)

    def _publish(self, end: int, confirmed: int) -> None:
        machine = self._machine
        files = machine.disk.files
        files[EPOCHS] = cut(epochs_of(machine), end) or IMPLIED
        promise = promise_of(machine)
        if self._wanted == SLAVE and promise != (before := promise_before(machine)):
            files[PROMISED] = before, None  # or it would depose the master that it greets
            promise = before
        values = {
            Position.APPENDED: end,
            Position.FLUSHED: end,
            Position.COMMITTED: end,
            Position.STORE_TIMESTAMP: machine.disk.log.stored_ms,
            Position.DISPATCHED: min(files[QUEUES], end),
            Position.CONFIRMED: confirmed,
            Position.REPLICATED: confirmed,
            Position.EPOCH: files[EPOCHS][-1].number,
            Position.PROMISED: promise.epoch,
            Position.LEASE_UNTIL: 0 if machine.plan.etcd else FOREVER,
        }
        positions = machine.fresh_positions()
        for position, value in values.items():
            positions.writer(position, Duty.RECOVER).advance(value)
        if machine.world.traced:
            doubted = ", in doubt" if DOUBT in files else ""
            said = f"recovered to be a {self._wanted}: log to {end}, confirmed to {confirmed}{doubted}"
            machine.world.say(machine.name, said)

    # --- agreement

    def _advance(self, heard: PeerAnswers | None) -> None:
        machine = self._machine
        try:
            step = self._steps.send(heard)  # type: ignore[arg-type]
        except StopIteration as done:
            self._agreed(done.value)
        except TowlineError as error:
            self._refused(error)
        else:
            if isinstance(step, dict):
                machine.ask_all(step, self._advance)
            else:
                machine.after(step * 1_000_000, lambda: self._advance(None))

    def _agreed(self, role: Role) -> None:
        machine = self._machine
        if machine.world.traced:
            machine.world.say(machine.name, f"{role.role} in epoch {role.epoch}: {role.why}")
        if role.role == MASTER:
            self._run(MASTER)
            return
        self._given, self._promotes, self._wanted = None, False, SLAVE
        machine.after(machine.world.between(10, 100), self._recovered)

    def _refused(self, error: TowlineError) -> None:
        """A refused promotion leaves the node what it was; a refused start ends it, until somebody starts it again."""
        machine = self._machine
        if machine.world.traced:
            machine.world.say(machine.name, str(error))
        if isinstance(error, PromotionRefused) and self._promotes:
            if "elected" in (self._given or {}):
                machine.disk.files[OUTCOME] = {"elected": (self._given or {})["elected"], "error": str(error)}
            self._given, self._promotes, self._wanted = None, False, self._known_role()
            machine.after(machine.world.between(10, 100), self._recovered)
            return
        machine.kill(f"its start is refused: {type(error).__name__}")
        machine.world.after(machine.world.between(*RESTART_MS), lambda: None if machine.up else machine.start())

    def _run(self, role: str) -> None:
        machine = self._machine
        machine.processes = Master(machine) if role == MASTER else Slave(machine)
        if role == MASTER:
            for told in machine.group.promoted:
                told(machine)


def begin(machine: Machine, order: dict[str, Any] | None, running: bool) -> Starting:
    return Starting(machine, order, running)
