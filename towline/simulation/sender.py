"""The sender of a simulated master: the turn of `towline.ha.sender.send` over simulated links."""

from collections.abc import Callable
from dataclasses import astuple
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame
from towline.format.wire.frames import HA_SET, Kind
from towline.ha.sender.membership import Membership
from towline.ha.sender.peers import Peer
from towline.ha.sender.send import FRAMES_PER_TURN, SILENT_MS
from towline.limits import SLAVES_MAX
from towline.log.state.in_sync_file import InSyncRecord
from towline.log.state.role_file import MASTER
from towline.node.peers.epoch_broadcast import EVERY_MS
from towline.node.peers.peer_server import promise_question
from towline.node.roles.role_commands import AGREE
from towline.node.store.confirmed import confirmed_of, written_of
from towline.replication.flow_control import FlowControl
from towline.replication.handshake import DEPOSED, START, LogRange, SenderHandshake, SlaveGreeting
from towline.runtime.positions import Duty, Position

from .disk import SET
from .machine import Machine
from .network import Link
from .peers import Promises, epochs_of

CLUSTER: Final = {"cluster": "DefaultCluster", "store": "0" * 32}
FLOW_US: Final = 20_000


class SetFile:
    """The in-sync set on the simulated disk."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def load(self) -> InSyncRecord | None:
        return self._machine.disk.files.get(SET)

    def save(self, record: InSyncRecord) -> None:
        self._machine.disk.files[SET] = record


class Sender:
    """One life of the sender. `moved` is called when REPLICATED has moved."""

    def __init__(self, machine: Machine, moved: Callable[[], None]) -> None:
        self._machine, self._moved = machine, moved
        view = machine.view(Duty.SEND, MASTER)
        self._settings, self._get = view.settings, machine.positions.get
        self._epoch = self._get(Position.EPOCH)
        epochs = epochs_of(machine)
        log: Any = machine.disk.log
        file: Any = SetFile(machine)
        self._handshake = SenderHandshake(view, log, epochs)
        self._replicated = view.writer(Position.REPLICATED)
        self._confirmed, self._written = confirmed_of(view), written_of(view)
        self._on_disk = self._settings.flush_disk_type.value == "SYNC_FLUSH"
        self.promises = Promises(machine, MASTER)
        self.links: dict[Link, Peer] = {}
        self._by_peer: dict[bytes, Link] = {}
        self._numbers = 0
        self._lines = machine.positions.slaves()
        for line in self._lines:
            line.set(connected=False, appended=0, flushed=0)
        self._membership = Membership(view, self._send_head, epoch=self._epoch, epoch_start=epochs[-1].start, file=file)
        self._told: set[int] = set()
        self._tell_at = self._now() + EVERY_MS
        self._waits_for_flow = False
        self.ended = False

    def _now(self) -> int:
        return self._machine.clock.monotonic_ms()

    def _send_head(self, peer: Peer, head: bytes) -> None:
        self._by_peer[peer.identity].send(self._machine.number, head)

    def end(self) -> None:
        """Its process ends: links break."""
        self.ended = True
        for link in list(self.links):
            link.close(self._machine.number)

    # --- slaves that come and go

    def greet(self, link: Link, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts of a welcome. Raises LinkRefused."""
        slave = SlaveGreeting.of(facts)
        self._replace_link(slave.node, slave.instance)
        log_range = LogRange(0, self._get(self._written))
        try:
            welcome = self._handshake.welcome(slave, log_range)
        except LinkRefused as refused:
            if refused.code == DEPOSED and not self.promises.observe_epoch(slave.newest):
                self._machine.order({"order": AGREE})
            raise
        link.facts = facts | {START: welcome[START]}
        dropped = self._machine.guarded(lambda: self._drop(link))
        receive = self._machine.receiver(lambda message: self._handle(link, message))
        link.attach(self._machine.number, receive, dropped)
        return welcome | CLUSTER

    def _replace_link(self, node: int, instance: int) -> None:
        for link, peer in list(self.links.items()):
            if peer.node != node:
                continue
            if link.facts["instance"] != instance and self._now() - peer.heard_ms <= SILENT_MS:
                raise LinkRefused("NODE_TAKEN", f"a slave that calls itself node {node} is linked")
            self._drop(link)

    def _join(self, link: Link, appended: int, flushed: int, limit: int) -> None:
        facts, end, now = link.facts, self._get(self._written), self._now()
        try:
            self._replace_link(facts["node"], facts["instance"])
        except LinkRefused:
            link.close(self._machine.number)
            return
        taken = {peer.place for peer in self.links.values()}
        place = next(place for place in range(SLAVES_MAX) if place not in taken)
        if appended != facts[START] or flushed > appended:
            link.close(self._machine.number)
            return
        self._numbers += 1
        peer = Peer(b"%d" % self._numbers, "slave", place, appended, appended, flushed, now, limit)
        peer.node, peer.on_disk, peer.flow = facts["node"], self._on_disk, FlowControl(self._flow_rate(), now)
        self.links[link], self._by_peer[peer.identity] = peer, link
        self._membership.join(peer, end, now)
        if self._machine.world.traced:
            said = f"has node {peer.node} as a slave from {appended}, its own log ends at {end}"
            self._machine.world.say(self._machine.name, said)

    def _flow_rate(self) -> int:
        return self._settings.max_ha_transfer_byte_in_second if self._settings.ha_flow_control_enable else 0

    def _drop(self, link: Link) -> None:
        peer = self.links.pop(link, None)
        link.close(self._machine.number)
        if peer is not None:
            self._membership.leave(peer)
            self._lines[peer.place].set(connected=False, appended=peer.appended, flushed=peer.flushed)
            if self._machine.world.traced:
                self._machine.world.say(self._machine.name, f"slave {peer.node} left at {peer.appended}")

    # --- what slaves say

    def _handle(self, link: Link, message: Any) -> None:
        if self.ended or self._machine.number in link.closed:
            return
        peer = self.links.get(link)
        if isinstance(message, bytes):
            if peer is not None:
                try:
                    self._membership.acknowledged(peer, message)
                except MalformedFrame:
                    self._drop(link)
            self.turn()
            return
        epoch, appended, flushed, limit = message
        if epoch != self._epoch:
            self._drop(link)
        elif peer is None:
            self._join(link, appended, flushed, limit)
        elif peer.acknowledge(appended, flushed, limit, self._now()) is not None:
            self._drop(link)
        self.turn()

    # --- its turn

    def turn(self) -> None:
        if self.ended:
            return
        self._confirm()
        now, end, confirmed = self._now(), self._get(self._written), self._confirmed()
        for link, peer in list(self.links.items()):
            self._stream(link, peer, end, confirmed, now)
            if now - peer.heard_ms > self._settings.ha_housekeeping_interval:
                self._drop(link)
        self._publish(now)
        if now >= self._tell_at:
            self._tell_at = now + EVERY_MS
            self._tell_peers()

    def _stream(self, link: Link, peer: Peer, end: int, confirmed: int, now: int) -> None:
        frames, batch, log = 0, self._settings.ha_transfer_batch_size, self._machine.disk.log
        while frames < FRAMES_PER_TURN and (room := peer.room(end, batch, now)):
            data = bytes(log.data[peer.sent : peer.sent + room])
            link.send(self._machine.number, (self._epoch, peer.sent, data, confirmed))
            peer.sent_confirmed, peer.last_sent_ms = confirmed, now
            peer.was_sent(len(data))
            frames += 1
        if peer.flow.is_throttled and peer.sent < end and not self._waits_for_flow:
            self._waits_for_flow = True
            self._machine.after(FLOW_US, self._flow_on)
        due = now - peer.last_sent_ms >= self._settings.ha_send_heartbeat_interval
        if not frames and (due or (confirmed != peer.sent_confirmed and not peer.in_flight)):
            link.send(self._machine.number, (self._epoch, peer.sent, b"", confirmed))
            peer.sent_confirmed, peer.last_sent_ms = confirmed, now

    def _flow_on(self) -> None:
        self._waits_for_flow = False
        self.turn()

    def _publish(self, now: int) -> None:
        if self._get(Position.PROMISED) > self._epoch:
            return
        end = self._get(self._written)
        self._membership.cycle(self.links.values(), self._replicated.get(), end, now)
        for peer in self.links.values():
            line = self._lines[peer.place]
            line.set(connected=True, appended=peer.appended, flushed=peer.flushed, node=peer.node)
        self._confirm()

    def _confirm(self) -> None:
        if self._get(Position.PROMISED) > self._epoch:
            return  # fenced: what was not confirmed may be cut off, and no reader is to see it
        value = self._membership.replicated(self._get(self._written))
        if value > self._replicated.get():
            self._replicated.advance(value)
            self._moved()

    def _tell_peers(self) -> None:
        """Tells peers that are not its slaves of its epoch, until each has promised."""
        machine, slaves = self._machine, {peer.node for peer in self.links.values()}
        question = promise_question(self._epoch, machine.settings)
        for peer in machine.peers():
            if peer.number not in slaves | self._told:
                machine.ask(peer, question, self._told_one)

    def _told_one(self, number: int, said: dict[str, Any] | None) -> None:
        if said is not None and said.get("granted"):
            self._told.add(number)


def set_frame(record: InSyncRecord) -> bytes:
    """The answer of a slave that has recorded the set."""
    return HA_SET.pack(Kind.HA_SET_ACK, *astuple(record))
