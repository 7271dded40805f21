"""What goes wrong in a simulated group, and the operator who looks after it."""

from collections.abc import Callable
from functools import partial
from typing import Final

from towline.log.state.in_sync_file import InSyncRecord
from towline.log.state.role_file import MASTER
from towline.node.roles.role_commands import PROMOTE
from towline.runtime.positions import Position

from .disk import SET, Disk
from .machine import Group, Left, Machine
from .master import Master
from .network import ETCD
from .slave import Slave
from .world import US

OPERATOR_MS: Final = (150, 600)
CASCADE_SHARE: Final = 0.25  # of promotions: the new master ends soon after
OPERATOR_COMES_MS: Final = 1500
PATIENCE_MS: Final = 60  # so long there is no master before an operator promotes a node
CHANGE_MS: Final = 2500  # between two nodes of a change of settings
WATCH_US: Final = 1000
CATCHING_UP_MS: Final = 150


class Faults:
    """The faults of one seed: one after the other, each with a length of its own, so they meet."""

    def __init__(self, group: Group) -> None:
        self._group, self._world, self._network = group, group.world, group.network
        self._held = 0  # while nothing else may happen
        self._kinds: dict[Callable[[], None], int] = {
            self._kill: 5,
            self._power_cut: 4,
            self._power_cut_all: 1,
            self._pause: 3,
            self._part: 4,
            self._isolate: 3,
            self._slow: 3,
            self._stall_disk: 1,
            self._step_clock: 1,
            self._kill_process: 2,
            self._promote_anyhow: 2,
            self._lag_and_kill: 4,
            self._take_turns: 3,
        }
        group.promoted.append(self._cascade)
        if group.plan.etcd:
            self._kinds[self._isolate_etcd] = 2
        self._world.after(self._world.between(1500, 2500), self._next)
        if group.plan.set_back:
            SetBack(group, self)

    def hold(self) -> None:
        self._held += 1

    def go_on(self) -> None:
        self._held -= 1

    def _next(self) -> None:
        self._world.after(self._world.random.expovariate(1.0) * self._group.plan.gap_ms * US, self._next)
        if not self._held:
            kinds = list(self._kinds)
            self._world.random.choices(kinds, [self._kinds[kind] for kind in kinds])[0]()

    def _cascade(self, machine: Machine) -> None:
        if not self._held and self._world.chance(CASCADE_SHARE):
            ended = machine.guarded(self._world.random.choice((machine.kill, machine.power_cut)))
            self._world.after(self._world.between(2, 300), ended)
            self._world.after(self._world.between(1500, 5000), lambda: start(machine))

    def _any(self) -> Machine:
        return self._world.random.choice(self._group.machines)

    def _say(self, what: str) -> None:
        if self._world.traced:
            self._world.say("fault", what)

    # --- kinds

    def _kill(self) -> None:
        machine = self._any()
        if machine.up:
            machine.kill()
        self._world.after(self._world.between(20, 3000), lambda: start(machine))

    def _power_cut(self) -> None:
        machine = self._any()
        machine.power_cut()
        self._world.after(self._world.between(100, 4000), lambda: start(machine))

    def _power_cut_all(self) -> None:
        self._say("the power of all machines goes")
        for machine in self._group.machines:
            machine.power_cut()
            self._world.after(self._world.between(100, 2000), partial(start, machine))

    def _pause(self) -> None:
        machine, length = self._any(), self._world.between(100, 4000)
        machine.paused_until_us = self._world.now_us + int(length)
        self._say(f"node {machine.number} stands still for {length / US:.0f} ms")

    def _cut(self, pairs: set[tuple[int, int]], low_ms: float, high_ms: float) -> None:
        added = pairs - self._network.cut
        self._network.cut |= added
        self._say(f"cut: {sorted(added)}")

        def heal() -> None:
            self._network.cut -= added
            self._say(f"whole again: {sorted(added)}")

        self._world.after(self._world.between(low_ms, high_ms), heal)

    def _part(self) -> None:
        one, other = self._world.random.sample(range(self._group.plan.nodes), 2)
        both = {(one, other), (other, one)}
        self._cut(both if self._world.chance(0.7) else {(one, other)}, 100, 4000)

    def _isolate(self) -> None:
        """One node reaches no other one; clients and etcd may still."""
        one = self._any().number
        others = [each for each in range(self._group.plan.nodes) if each != one]
        pairs = {(one, each) for each in others} | {(each, one) for each in others}
        if self._world.chance(0.5):
            pairs |= {(one, ETCD), (ETCD, one)}
        self._cut(pairs, 200, 5000)

    def _isolate_etcd(self) -> None:
        one = self._any().number
        self._cut({(one, ETCD), (ETCD, one)}, 200, 5000)

    def _slow(self) -> None:
        one, other = self._world.random.sample(range(self._group.plan.nodes), 2)
        self._network.slow[one, other] = self._world.random.uniform(20, 600)
        self._say(f"slow: {one} to {other}")
        self._world.after(self._world.between(300, 4000), lambda: self._network.slow.pop((one, other), None))

    def _stall_disk(self) -> None:
        machine = self._any()
        machine.stall_ms = self._world.random.uniform(100, 2500)
        self._say(f"the disk of node {machine.number} takes {machine.stall_ms:.0f} ms")

        def over() -> None:
            machine.stall_ms = 0.0

        self._world.after(self._world.between(500, 3000), over)

    def _step_clock(self) -> None:
        machine = self._any()
        machine.clock.step_ms += self._world.random.choice((-3_600_000, -2000, 2000, 3_600_000))
        self._say(f"the clock of node {machine.number} is {machine.clock.step_ms} ms ahead")

    def _kill_process(self) -> None:
        machine = self._any()
        if isinstance(machine.processes, Master) and not machine.paused:
            kind = self._world.random.choice(("send", "put"))
            self._say(f"kill -9 of {kind} on node {machine.number}")
            master = machine.processes
            machine.guarded(master.restart_sender if kind == "send" else master.restart_put)()

    def _lag_and_kill(self) -> None:
        """A slave hears late, so slaves differ when their master ends."""
        master = next((each for each in self._group.machines if each.is_master), None)
        if master is None:
            return
        slave = self._world.random.choice(master.peers()).number
        self._network.slow[master.number, slave] = length = self._world.random.uniform(200, 800)
        self._say(f"slow: {master.number} to {slave}")
        self._world.after(length * US, lambda: self._network.slow.pop((master.number, slave), None))
        ended = master.guarded(self._world.random.choice((master.kill, master.power_cut)))
        self._world.after(self._world.between(100, length), ended)
        self._world.after(self._world.between(800, 3000), lambda: start(master))

    def _take_turns(self) -> None:
        """The slaves end, and when they come back the master, which may have gone on alone, has ended."""
        master = next((each for each in self._group.machines if each.is_master), None)
        if master is None:
            return
        back = self._world.between(500, 1500)
        for slave in master.peers():
            slave.kill()
            self._world.after(back, partial(start, slave))
        self._world.after(back - 50 * US, master.guarded(master.kill))
        self._world.after(back + self._world.between(1500, 4000), lambda: start(master))

    def _promote_anyhow(self) -> None:
        machine = self._any()
        if isinstance(machine.processes, Slave):
            promote(machine)


class Operator:
    """Promotes a node by hand where there is no master, and changes the settings of all nodes once."""

    def __init__(self, group: Group) -> None:
        self._group, self._world = group, group.world
        self._since_ms: int | None = None
        if not group.plan.etcd:
            self._world.after(OPERATOR_COMES_MS * US, self._look)
        if group.plan.floors[0] != group.plan.floors[1]:
            self._world.after(self._world.between(2500, 6000), self._change_settings)

    def _look(self) -> None:
        self._world.after(self._world.between(*OPERATOR_MS), self._look)
        if any(serves(machine) for machine in self._group.machines):
            self._since_ms = None
            return
        self._since_ms = self._world.now_ms if self._since_ms is None else self._since_ms
        able = [each for each in self._group.machines if each.up and not each.paused and each.processes.role]  # type: ignore[union-attr]
        if able and self._world.now_ms - self._since_ms > PATIENCE_MS:
            promote(self._world.random.choice(able))

    def _change_settings(self) -> None:
        """Node by node, slaves first: each is stopped in order and started with the new settings."""
        waiting = sorted(self._group.machines, key=lambda each: isinstance(each.processes, Master))
        for turn, machine in enumerate(waiting):
            self._world.after((turn * CHANGE_MS + 1) * US, partial(self._change, machine))

    def _change(self, machine: Machine) -> None:
        machine.changed = True
        if self._world.traced:
            self._world.say("operator", f"min_in_sync_replicas of node {machine.number} changes")
        if machine.up and not machine.paused:
            machine.stop()
            machine.start()


class SetBack:
    """Once, a slave is stopped in order, its store put back to an older copy, and started: nothing on it knows.

    Nothing else happens until it has joined, and its master may have recorded a set without it: until then it could be
    promoted (decision 0026). Then the master ends, as often before the slave has caught up as after.
    """

    def __init__(self, group: Group, faults: Faults) -> None:
        self._group, self._world, self._faults = group, group.world, faults
        self._world.after(self._world.between(1500, 6000), self._begin)

    def _begin(self) -> None:
        masters = [each for each in self._group.machines if serves(each)]
        slaves = [each for each in self._group.machines if isinstance(each.processes, Slave) and not each.paused]
        if len(masters) != 1 or not slaves or self._world.now_ms > self._group.plan.duration_ms - 5000:
            self._world.after(300 * US, self._begin)
            return
        master, slave = masters[0], self._world.random.choice(slaves)
        self._faults.hold()
        slave.stop()
        copy, left, epoch = slave.disk.copy(), slave.left, master.positions.get(Position.EPOCH)
        slave.start()
        self._world.after(self._world.between(700, 2500), lambda: self._set_back(master, slave, copy, left, epoch))

    def _set_back(self, master: Machine, slave: Machine, copy: Disk, left: Left | None, epoch: int) -> None:
        same = serves(master) and master.positions.get(Position.EPOCH) == epoch and isinstance(slave.processes, Slave)
        if not same or slave.paused:
            self._faults.go_on()
            return
        slave.stop()
        if self._world.traced:
            self._world.say("fault", f"node {slave.number} is set back from {slave.disk.log.end} to {copy.log.end}")
        slave.disk, slave.left = copy, left
        slave.start()
        self._watch(master, slave, self._world.now_ms + 4000, None)

    def _watch(self, master: Machine, slave: Machine, until_ms: int, joined_ms: int | None) -> None:
        now = self._world.now_ms
        if not isinstance(master.processes, Master) or now > until_ms:
            self._faults.go_on()
            return
        links = master.processes.sender.links
        peers = [peer for link, peer in links.items() if link.generations.get(slave.number) == slave.generation]
        if peers and joined_ms is None:
            joined_ms = now
        left = self._has_left(master, slave)
        caught_up = bool(peers) and peers[0].held >= master.positions.get(Position.REPLICATED)
        whole = bool(slave.disk.log.ends) and slave.disk.log.ends[-1] == slave.disk.log.end  # else it is in doubt
        if joined_ms is not None and (left or caught_up or (whole and now - joined_ms > CATCHING_UP_MS)):
            master.kill("kill -9, while the one that was set back catches up")
            self._world.after(self._world.between(2500, 4000), lambda: start(master))
            self._world.after(1500 * US, self._faults.go_on)
            return
        self._world.after(WATCH_US, lambda: self._watch(master, slave, until_ms, joined_ms))

    def _has_left(self, master: Machine, slave: Machine) -> bool:
        """Whether the set without it stands where a promotion looks."""
        if master.positions.get(Position.IN_SYNC) >> slave.number & 1:
            return False
        known: InSyncRecord | None = slave.disk.files.get(SET)
        theirs: InSyncRecord = master.disk.files[SET]
        return self._group.plan.etcd or (known is not None and known.order >= theirs.order)


def serves(machine: Machine) -> bool:
    """Whether it is a master that nobody has replaced."""
    if not isinstance(machine.processes, Master) or machine.paused:
        return False
    return machine.positions.get(Position.PROMISED) <= machine.positions.get(Position.EPOCH)


def start(machine: Machine) -> None:
    if not machine.up:
        machine.start()


def promote(machine: Machine) -> None:
    """An operator's order; of a master that is none any more too."""
    processes, plan = machine.processes, machine.plan
    if plan.etcd and plan.floors[0] != plan.floors[1]:
        return
    if processes is None or not processes.role or machine.paused:
        return
    if processes.role == MASTER and serves(machine):
        return
    machine.order({"order": PROMOTE})
