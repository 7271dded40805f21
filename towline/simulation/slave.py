"""The processes of a simulated slave: receive, follow, flush, reput, and lease where etcd decides."""

import copy
from typing import Any, Final

from towline.errors import EtcdUnavailable, LinkRefused, MalformedFrame, MalformedKey
from towline.format.files.epochs import Epochs
from towline.format.wire.frames import expect_set
from towline.ha.leader.election import Candidate
from towline.ha.leader.leadership import Leadership
from towline.ha.leader.lease import RETRY_MS
from towline.log.state.in_sync_file import InSyncRecord
from towline.log.state.role_file import SLAVE
from towline.log.state.truncation_file import Truncation
from towline.node.peers.peer_server import STATE
from towline.node.roles.agreement import Report
from towline.node.roles.role_commands import TRUNCATE
from towline.node.store.confirmed import confirmed_of
from towline.runtime.positions import Duty, Position
from towline.slave.handshake import ReceiverHandshake
from towline.slave.receive import ACK_MS, PAUSE_MS

from .disk import CHECKPOINT, EPOCHS, OFFSETS, OUTCOME, QUEUES, SET, TRUNCATION
from .flushing import Flush
from .machine import Machine
from .network import Link
from .peers import Promises, epochs_of, report
from .sender import CLUSTER, set_frame

TURN_MS: Final = (30, 70)
GREET_MS: Final = 500  # so long a welcome is waited for
METADATA_MS: Final = 200


class EpochsFile:
    """The epochs on the simulated disk."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def load(self) -> Epochs:
        return epochs_of(self._machine)

    def save(self, epochs: Epochs) -> None:
        self._machine.disk.files[EPOCHS] = epochs


class SimulatedHandshake(ReceiverHandshake):
    """The slave's side of the handshake, with the simulated disk."""

    machine: Machine

    def order_truncation(self) -> None:
        self.machine.order({"order": TRUNCATE})
        self.ordered = True

    def _own_facts(self) -> dict[str, Any]:
        return dict(CLUSTER)

    def _confirmed_durably(self) -> int:
        files = self.machine.disk.files
        return int(max(files.get(CHECKPOINT, 0), files.get(QUEUES, 0)))

    def _save_truncation(self, wanted: Truncation) -> None:
        self.machine.group.history.cut(self.machine, wanted.point, accepted=wanted.accept_loss)
        self.machine.disk.files[TRUNCATION] = wanted


class SimulatedCandidate(Candidate):
    """A slave's part in an election, which asks its peers in no time."""

    machine: Machine

    def _reports(self) -> tuple[Report, list[Report]]:
        machine = self.machine
        peers = [peer for peer in machine.peers() if machine.network.meet(machine.number, peer.number)]
        said = [
            peer.processes.answer({"op": STATE}) for peer in peers if peer.processes is not None and not peer.paused
        ]
        return report(machine, SLAVE), [each["report"] for each in said if each is not None]

    def _order(self, order: dict[str, Any]) -> None:
        self.machine.order(order)

    def _last_outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = self.machine.disk.files.get(OUTCOME, {})
        return found

    def _listens(self, address: str) -> bool:
        peer = self.machine.group.machines[int(address.partition(":")[0].removeprefix("node"))]
        return peer.up or not self.machine.network.meet(self.machine.number, peer.number)

    def _boottime_ns(self) -> int:
        now_ns: int = self.machine.clock.boottime_ns()
        return now_ns

    def _is_founder(self) -> bool:
        return self.machine.number == 0


class Slave:
    """What runs on a slave."""

    role = SLAVE

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        view = machine.view(Duty.RECEIVE, SLAVE)
        self._view, self._get = view, machine.positions.get
        self._appended, self._confirmed = view.writer(Position.APPENDED), view.writer(Position.CONFIRMED)
        self._in_sync = view.writer(Position.IN_SYNC)
        self._dispatched = machine.view(Duty.REPUT, SLAVE).writer(Position.DISPATCHED)
        self._visible = confirmed_of(view)
        self.flush = Flush(machine, SLAVE, self._synced)
        self.promises = Promises(machine, SLAVE)
        log: Any = machine.disk.log
        file: Any = EpochsFile(machine)
        self._handshake = SimulatedHandshake(view, log, view.writer(Position.EPOCH), file)
        self._handshake.machine = machine
        if TRUNCATION in machine.disk.files:
            self._handshake.order_truncation()
        self._link: Link | None = None
        self._joined = False
        self._acked, self._acked_ms = (-1, -1), 0
        self._heard_ms = self._asked_ms = machine.clock.monotonic_ms()
        self._pause_until = 0
        self._turn = 0
        self._candidate = self._election() if machine.plan.etcd else None
        self._retry_at = 0
        self._dispatch()
        self._tick()

    def _election(self) -> SimulatedCandidate:
        machine = self.machine
        view = machine.view(Duty.LEASE, SLAVE)
        etcd: Any = machine.etcd
        leadership = Leadership(etcd, view.settings.broker_cluster_name, view.settings.broker_name)
        candidate = SimulatedCandidate(view, etcd, leadership)
        candidate.machine = machine
        return candidate

    # --- turns

    def _tick(self) -> None:
        machine = self.machine
        machine.after(machine.world.between(*TURN_MS), self._tick)
        now = machine.clock.monotonic_ms()
        if self._candidate is not None and now >= self._retry_at:
            try:
                self._candidate.cycle(now)
            except (EtcdUnavailable, MalformedKey):
                self._retry_at = now + RETRY_MS
        self.flush.turn()
        if self._handshake.ordered:
            return
        if self._link is None:
            if now >= self._pause_until:
                self._connect(now)
        elif not self._joined:
            if now - self._asked_ms > GREET_MS:
                self._disconnect("no welcome")
        elif outdated := self._handshake.outdated():
            self._disconnect(outdated)
        elif now - self._heard_ms > self._view.settings.ha_housekeeping_interval:
            self._disconnect("the master is silent")
        else:
            self._acknowledge(now)
            self._follow(now)

    def _synced(self) -> None:
        self._dispatch()
        if self._joined:
            self._acknowledge(self.machine.clock.monotonic_ms())

    def _dispatch(self) -> None:
        visible = self._visible()
        if visible > self._dispatched.get():
            self._dispatched.advance(visible)

    # --- the link

    def _connect(self, now: int) -> None:
        """Greets the next of its peers; one that is no master does not welcome it."""
        machine = self.machine
        peers = machine.peers()
        self._turn += 1
        peer = peers[self._turn % len(peers)]
        generations = {machine.number: machine.generation, peer.number: peer.generation}
        link = Link(machine.network, machine.number, peer.number, generations)
        self._link, self._joined, self._asked_ms = link, False, now
        facts = self._handshake.facts(self._appended.get(), 0)
        facts |= {"epochs": [list(epoch) for epoch in facts["epochs"]], "learner": False, "name": "slave"}
        machine.network.deliver(machine.number, peer.number, lambda: self._greeted(peer, link, facts))

    def _greeted(self, peer: Machine, link: Link, facts: dict[str, Any]) -> None:
        """At the peer: its sender answers, if it has one."""
        here = self.machine

        def answer() -> None:
            greet = getattr(getattr(peer.processes, "sender", None), "greet", None)
            if greet is None:
                refused: Any = LinkRefused("NOT_MASTER", "it is no master")
                back = here.guarded(lambda: self._refused(link, refused), facts["instance"])
            else:
                try:
                    welcome = greet(link, facts)
                    back = here.guarded(lambda: self._welcomed(link, welcome), facts["instance"])
                except LinkRefused as error:
                    said = error
                    back = here.guarded(lambda: self._refused(link, said), facts["instance"])
            here.network.deliver(peer.number, here.number, back)

        if peer.up:
            peer.guarded(answer)()

    def _refused(self, link: Link, error: LinkRefused) -> None:
        if link is self._link and not self._joined:
            self._disconnect(f"{error.code}: {error.sentence}")
            if self._handshake.refused():
                self._pause_until = self.machine.clock.monotonic_ms() + PAUSE_MS

    def _welcomed(self, link: Link, welcome: dict[str, Any]) -> None:
        machine = self.machine
        if link is not self._link or self._joined or self._handshake.ordered:
            return
        try:
            self._handshake.agree(welcome, self._appended.get(), 0)
        except (LinkRefused, MalformedFrame) as error:
            code = error.code if isinstance(error, LinkRefused) else "MALFORMED"
            self._disconnect(f"{code}: {error}")
            if self._handshake.refused():
                self._pause_until = machine.clock.monotonic_ms() + PAUSE_MS
            return
        receive = machine.receiver(lambda message: self._handle(link, message))
        link.attach(machine.number, receive, machine.guarded(lambda: self._lost(link)))
        self._joined, self._acked = True, (-1, -1)
        self._heard_ms = machine.clock.monotonic_ms()
        self._acknowledge(self._heard_ms)
        if machine.world.traced:
            machine.world.say(machine.name, f"follows node {link.master} from {self._appended.get()}")

    def _lost(self, link: Link) -> None:
        if link is self._link:
            self._disconnect("the connection broke")

    def _disconnect(self, why: str) -> None:
        link, self._link, self._joined = self._link, None, False
        if link is not None:
            link.close(self.machine.number)
            if self.machine.world.traced:
                self.machine.world.say(self.machine.name, f"leaves node {link.master}: {why}")

    # --- the stream

    def _handle(self, link: Link, message: Any) -> None:
        if link is not self._link or not self._joined or self._handshake.ordered:
            return
        if outdated := self._handshake.outdated():
            self._disconnect(outdated)
            return
        self._heard_ms = self.machine.clock.monotonic_ms()
        try:
            if isinstance(message, bytes):
                self._record_set(link, message)
            else:
                self._apply(*message)
        except (LinkRefused, MalformedFrame) as error:
            self._disconnect(str(error))
            return
        self.flush.turn()
        self._acknowledge(self._heard_ms)
        self._dispatch()

    def _apply(self, epoch: int, offset: int, data: bytes, confirmed: int) -> None:
        """Appends one slice; anything but the next byte of the followed master ends the link."""
        log = self.machine.disk.log
        if epoch != self._handshake.epoch or offset != log.end:
            raise MalformedFrame(f"a slice at {offset} in epoch {epoch} does not follow {log.end}")
        if confirmed > self._confirmed.get():
            self._confirmed.advance(confirmed)
        if data:
            self._handshake.before_bytes(offset + len(data))
            end = log.append(data)
            self._appended.advance(end)
            self._handshake.holds(end)

    def _record_set(self, link: Link, head: bytes) -> None:
        """Records the set, before it says so; says nothing of one that it does not record."""
        _, epoch, version, master, members, floor = expect_set(head)
        record = InSyncRecord(epoch, version, master, members, floor)
        known: InSyncRecord | None = self.machine.disk.files.get(SET)
        if record.epoch != self._handshake.epoch:
            raise MalformedFrame(f"an in-sync set of epoch {record.epoch}")
        if not record.stands_beside(known):
            assert known is not None
            if known.epoch > record.epoch:
                raise LinkRefused("EPOCH", "the in-sync set comes too late")
            return
        self.machine.disk.files[SET] = record
        self._in_sync.replace(record.members)
        if outdated := self._handshake.outdated():
            raise LinkRefused("EPOCH", outdated)
        link.send(self.machine.number, set_frame(record))

    def _acknowledge(self, now: int) -> None:
        held = (self._appended.get(), self._get(Position.FLUSHED))
        held = (held[0], min(held))
        if self._link is None or (held == self._acked and now - self._acked_ms < ACK_MS):
            return
        limit = held[0] + self._view.settings.ha_window_bytes
        self._link.send(self.machine.number, (self._handshake.epoch, *held, limit))
        self._acked, self._acked_ms = held, now

    # --- the others

    def _follow(self, now: int) -> None:
        """Copies the offsets of groups from the master."""
        if now - self._asked_ms < METADATA_MS or self._link is None:
            return
        self._asked_ms = now
        machine = self.machine
        master = machine.group.machines[self._link.master]
        generation = machine.generation

        def asked() -> None:
            if master.up and master.processes is not None and master.processes.role != SLAVE and not master.paused:
                content = copy.deepcopy(master.disk.files.get(OFFSETS, {}))
                saved = machine.guarded(lambda: machine.disk.files.update({OFFSETS: content}), generation)
                machine.network.deliver(master.number, machine.number, saved)

        machine.network.deliver(machine.number, master.number, asked)

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        return self.promises.answer(question)

    def stop(self) -> None:
        self.gone()

    def gone(self) -> None:
        if self._link is not None:
            self._link.close(self.machine.number)
