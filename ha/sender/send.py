"""The ha sender of a master: streams CommitLog slices to slaves and collects their acknowledgements."""

import gc
import os
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from towline.errors import DiskFull, LinkRefused, MalformedFile, MalformedFrame, NotInLog, StoreNotWritable, SyncFailed
from towline.format.wire.frames import ANSWER, ASK, HA_ACK, HA_DATA, Kind, expect, json_part, kind_of, read_json
from towline.limits import LOOK_MS, MIB, SLAVES_MAX
from towline.link.context import close_context, new_context
from towline.link.handshake import BAD_FRAME, encode_refusal, read_refusal
from towline.link.poller import Poller
from towline.link.server import Request, Sent, Server
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.state.epoch_file import EpochFile
from towline.node.peers.epoch_broadcast import EpochBroadcast
from towline.node.peers.handshake import own_facts
from towline.node.peers.peer_server import PeerServer, is_before_promotion
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_ring_of
from towline.node.process.endpoints import ha_endpoints
from towline.node.roles.role_commands import AGREE, submit_command
from towline.node.store.confirmed import confirmed_of, written_of
from towline.replication.flow_control import FlowControl
from towline.replication.handshake import DEPOSED, START, LogRange, SenderHandshake, SlaveGreeting
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings_model import FlushDiskType
from towline.runtime.stage_times import Crossings, Stage, StageTimes

from .membership import Membership
from .metadata import Metadata
from .peers import Peer

REQUESTS_PER_TURN: Final = 256
REQUESTS_NS_MAX: Final = 5_000_000  # spent on requests per turn: slaves wait for the log meanwhile
FRAMES_PER_TURN: Final = 64
HIGH_WATER: Final = 1024
GRACE_MS: Final = 100  # a link outlives its last frame so long: a slave loses what it has not read when it ends
DRAIN_MS: Final = 5000  # a disk of ours or of a slave may take seconds for its last sync
SILENT_MS: Final = 3000  # a slave acknowledges every second
FLOW_MS: Final = 10  # until a slave whose flow is limited is sent more
# Clients wait for REPLICATED, and whoever else is woken at that moment takes a core from put and from them.
WAKE_AFTER_NS: Final = 1_000_000
CHECK_EVERY_MS: Final = 250  # between two checks for segments that went while a slave still wanted them


class SendAgent:
    """The duty cycle of the sender."""

    duty: ClassVar[Duty] = Duty.SEND

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._on_disk = node.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replicated = node.writer(Position.REPLICATED)
        # Otherwise, and without a slave, nobody hurries to hear of it.
        self._waited_for = node.settings.waits_for_slaves
        self._confirmed = confirmed_of(node)
        self._written = written_of(node)
        self._peers: dict[bytes, Peer] = {}
        self._epoch = 0
        self._refused: dict[str, str] = {}
        self._checked_ms = 0
        self._wake_owed_ns = 0  # since when reput and slaves have not heard what is confirmed
        self._drain_until: int | None = None

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._node.settings
        self._log = CommitLogReader(node.store.commitlog, settings.mapped_file_size_commit_log)
        self._put_doorbell = node.ringer(Duty.PUT, *((Duty.ROCKETMQ_HA,) if node.settings.rocketmq_ha_acks else ()))
        self._reput_doorbell = node.ringer(Duty.REPUT)
        for slave in node.positions.slaves():  # whoever was connected to an earlier process has to greet again
            slave.set(connected=False, appended=slave.appended, flushed=slave.flushed)
        self._handshake = SenderHandshake(node, self._log)
        self._epoch = self._handshake.epoch
        self._membership = Membership(node, self._send_head, epoch=self._epoch, epoch_start=self._epoch_start())
        self._peer_server = PeerServer(node)
        self._metadata = Metadata(node.store, settings.mapped_file_size_consume_queue)
        self._context = new_context()
        self._crossings = Crossings(StageTimes(node.positions, Stage.REPLICATE))
        self._epoch_broadcast = EpochBroadcast(node, self._context, self._peer_server)
        self._server = Server(
            self._context,
            ha_endpoints(settings, node.runtime, "master"),
            own=own_facts(node, "ha"),
            keys=key_ring_of(node),
            greet=self._greet,
            refused=self._log_refused,
            counted=lambda: self._line.count(Counter.REFUSED),
            frame_size_max=MIB,
            high_water=HIGH_WATER,
        )
        self._poller = Poller(self._server, bell.fileno())
        gc.freeze()

    def adjust(self) -> None:
        """Slaves are sent what the settings allow now; one that seeds at a rate of its own keeps that. Peers that have
        come hear of the epoch."""
        self._epoch_broadcast.adjust()
        now = self._node.clock.monotonic_ms()
        for peer in self._peers.values():
            if not peer.seeding:
                peer.flow = FlowControl(self._flow_rate(), now)

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        taken = done = 0 if self._poller.was_silent(self._server) else self._receive_requests()
        if taken:
            done += self._publish(now)  # before anything is sent: clients wait for this
        if self._wake_owed_ns and time.monotonic_ns() - self._wake_owed_ns >= WAKE_AFTER_NS:
            self._wake_owed_ns = 0
            self._reput_doorbell.ring()
        confirmed, end = self._confirmed(), self._node.positions.get(self._written)
        if self._peers:
            self._crossings.saw(end)
        for peer in list(self._peers.values()):
            done += self._stream(peer, end, confirmed, now)
            self._check_heard(peer, now)
        if not taken:
            done += self._publish(now)
        self._release_segments(now)
        done += self._log.release_idle(now)
        for asker, request_id, facts in self._metadata.due(now):
            self._answer(asker, request_id, facts)
            done += 1
        return done + self._epoch_broadcast.poll(now, {peer.node for peer in self._peers.values()})

    def sleep_ms(self) -> int:
        if self._wake_owed_ns:
            return 1
        return FLOW_MS if any(peer.flow.is_throttled for peer in self._peers.values()) else LOOK_MS

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        """Drains until every slave holds everything and knows that it is confirmed, or the time is over.

        The slaves of a fenced master have left it.
        """
        if self._node.positions.get(Position.PROMISED) > self._epoch:
            return True
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        end = self._node.positions.get(Position.APPENDED)
        behind = [peer for peer in self._peers.values() if self._is_behind(peer, end, now)]
        return not behind or now >= self._drain_until

    def _is_behind(self, peer: Peer, end: int, now: int) -> bool:
        return peer.flushed < end or peer.sent_confirmed < end or now - peer.last_sent_ms < GRACE_MS

    def on_close(self) -> None:
        if hasattr(self, "_server"):
            self._epoch_broadcast.close()
            self._server.close()
            close_context(self._context)

    # --- slaves that come and go

    def _greet(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts of a welcome. Raises LinkRefused with both sides' values when the two logs do not fit together."""
        if facts.get("role") != "slave":
            port = self._node.settings.listen_port
            return {"now": self._node.clock.now_ms(), "epoch": self._epoch, "listen_port": port}
        slave = SlaveGreeting.of(facts)
        self._replace_link(slave.node, slave.instance)
        log_range = LogRange(self._oldest_offset(), self._node.positions.get(self._written))
        try:
            welcome = self._handshake.welcome(slave, log_range)
        except LinkRefused as refused:
            if refused.code == DEPOSED:
                self._depose(slave)
            raise
        facts[START] = welcome[START]
        return welcome

    def _log_refused(self, facts: Mapping[str, Any], refused: LinkRefused) -> None:
        """Logs a refused peer, once while it goes on trying."""
        who = f"{facts.get('role', 'a stranger')} {facts.get('name', '')!r}, node {facts.get('node')}"
        if self._refused.get(who) != refused.code:
            self._line.count(Counter.REFUSED)
            self._node.log.warning("%s is refused (%s): %s", who, refused.code, refused.sentence)
            if len(self._refused) >= SLAVES_MAX:
                self._refused.clear()
            self._refused[who] = refused.code

    def _depose(self, slave: SlaveGreeting) -> None:
        """Has the role agreed again when a peer knows of a later epoch."""
        if slave.node not in self._node.settings.peers:
            return
        try:
            if not self._peer_server.observe_epoch(slave.newest):
                submit_command(self._node.store.root, {"order": AGREE})
        except (DiskFull, StoreNotWritable, SyncFailed) as error:  # it greets again
            self._node.log.error("who is master cannot be asked: %s", error)

    def _replace_link(self, node: int, instance: int) -> None:
        """Drops the old link of a slave that connects again. Raises LinkRefused where another slave has its id.

        A restarted node counts as another one until its old link is known to be dead.
        """
        now = self._node.clock.monotonic_ms()
        for other in [peer for peer in self._peers.values() if peer.node == node]:
            known = self._server.sessions.get(other.identity)
            same = known is None or known.facts.get("instance") == instance
            if same or now - other.heard_ms > SILENT_MS:
                self._drop_peer(other)
                continue
            confirmed = self._confirmed()
            self._send(other, [self._head(other, 0, confirmed)], confirmed, now)  # whether anybody is there
            if other.identity in self._peers:
                raise LinkRefused("NODE_TAKEN", f"a slave that calls itself node {node} is linked: {other.name}")

    def _oldest_offset(self) -> int:
        """The log's beginning for slaves: segments being deleted stay readable until connected slaves have them."""
        self._log.refresh()
        low = self._node.positions.get(Position.LOG_MIN)
        return min(low, self._log.queue.bases[0]) if self._log.queue.bases else low

    def _join(self, request: Request, appended: int, flushed: int, limit: int) -> Peer | None:
        """Handles the first acknowledgement after a greeting, which says where the stream begins."""
        facts, end = request.session.facts, self._node.positions.get(self._written)
        name = str(facts.get("name", ""))
        try:
            self._replace_link(facts["node"], facts["instance"])
        except LinkRefused as refused:  # two of one number had greeted, and the other one was quicker
            self._node.log.warning("%s", refused.sentence)
            return None
        taken = {peer.place for peer in self._peers.values()}
        free = [place for place in range(SLAVES_MAX) if place not in taken]
        if not free or appended != facts[START] or flushed > appended:
            return None
        self._refused.clear()
        now = self._node.clock.monotonic_ms()
        peer = Peer(request.peer, name, free[0], appended, appended, flushed, now, limit)
        peer.node, peer.learner, peer.on_disk = int(facts["node"]), bool(facts.get("learner")), self._on_disk
        rate, wanted = self._flow_rate(), int(facts.get("seed_rate", 0))
        peer.seeding = bool(wanted) and appended < end
        peer.flow = FlowControl(min(rate or wanted, wanted) if peer.seeding else rate, now)
        self._peers[request.peer] = peer
        self._membership.join(peer, end, now)
        self._node.log.info("slave %s joined at %d, our log ends at %d", name, appended, end)
        return peer

    def _flow_rate(self) -> int:
        """Bytes per second that a slave is sent at most; 0: any."""
        settings = self._node.settings
        return settings.max_ha_transfer_byte_in_second if settings.ha_flow_control_enable else 0

    def _drop_peer(self, peer: Peer) -> None:
        self._peers.pop(peer.identity, None)
        self._membership.leave(peer)
        self._server.evict(peer.identity)
        line = self._node.positions.slaves()[peer.place]
        line.set(connected=False, appended=peer.appended, flushed=peer.flushed)
        self._node.log.warning("slave %s left at %d", peer.name, peer.appended)

    def _check_heard(self, peer: Peer, now: int) -> None:
        if now - peer.heard_ms > self._node.settings.ha_housekeeping_interval:
            self._drop_peer(peer)

    # --- what slaves say

    def _receive_requests(self) -> int:
        done, began_ns = 0, time.monotonic_ns()
        while (
            done < REQUESTS_PER_TURN
            and time.monotonic_ns() - began_ns < REQUESTS_NS_MAX
            and (request := self._server.receive()) is not None
        ):
            done += 1
            try:
                self._handle(request)
            except (MalformedFrame, MalformedFile) as error:
                self._reject(request, str(error))
            except (DiskFull, StoreNotWritable, SyncFailed) as error:  # a promise that cannot be kept is not given
                self._node.log.error("a peer gets no answer: %s", error)
        return done

    def _handle(self, request: Request) -> None:
        kind = kind_of(request.parts[0])
        if kind == Kind.ASK and len(request.parts) == 2:
            _, request_id = expect(ASK, request.parts[0])
            question = read_json(request.parts[1])
            if self._peer_server.answers(question):
                if is_before_promotion(question):
                    self._membership.promoting(request.session.facts.get("node"))
                self._answer(request.peer, request_id, self._peer_server.answer(question))
            else:
                now = self._node.clock.monotonic_ms()
                facts = self._metadata.ask(request.peer, request_id, question, now)
                if facts is not None:
                    self._answer(request.peer, request_id, facts)
            return None
        if kind == Kind.REFUSAL:
            return self._handle_leave(request)
        peer = self._peers.get(request.peer)
        if kind == Kind.HA_SET_ACK and peer is not None:
            return self._membership.acknowledged(peer, request.parts[0])
        if kind != Kind.HA_ACK or request.session.facts.get("role") != "slave":
            raise MalformedFrame(f"kind {kind} is no word of a slave")
        _, epoch, appended, flushed, limit = expect(HA_ACK, request.parts[0])
        if epoch != self._epoch:
            return self._reject(request, f"it follows epoch {epoch}, this is {self._epoch}")
        if peer is None:
            if self._join(request, appended, flushed, limit) is None:
                self._reject(request, f"it begins at {appended} with {flushed} flushed, which is not in our log")
            return None
        bad = peer.acknowledge(appended, flushed, limit, self._node.clock.monotonic_ms())
        if bad is not None:
            self._reject(request, bad.value)
            return None
        if peer.is_stopping:
            peer.sent_confirmed = -1  # it waits to hear what is confirmed, or that somebody is there
        self._confirm()  # clients wait for it, everything else of this turn may come later
        return None

    def _answer(self, peer: bytes, request_id: int, facts: dict[str, Any]) -> None:
        if self._server.send(peer, [ANSWER.pack(Kind.ANSWER, 0, request_id, 0), json_part(facts)]) is Sent.PAUSED:
            self._server.cut_unread(peer)

    def _reject(self, request: Request, why: str) -> None:
        self._line.count(Counter.REFUSED)
        self._node.log.warning("the link of a slave is cut: %s", why)
        if request.peer in self._peers:
            self._drop_peer(self._peers[request.peer])
        self._server.refuse(request, LinkRefused(BAD_FRAME, why))

    def _handle_leave(self, request: Request) -> None:
        """Logs the reason with which a slave ends its link."""
        facts, said = request.session.facts, read_refusal(request.parts)
        self._node.log.warning("%s %r leaves: %s", facts.get("role"), facts.get("name"), said.sentence)
        if request.peer in self._peers:
            self._drop_peer(self._peers[request.peer])
        self._server.evict(request.peer)

    # --- what slaves are sent

    def _stream(self, peer: Peer, end: int, confirmed: int, now: int) -> int:
        frames = 0
        if peer.seeding and peer.sent >= end:  # it has caught up: what it asked for was for the way there
            peer.seeding, peer.flow = False, FlowControl(self._flow_rate(), now)
        batch = self._node.settings.ha_transfer_batch_size
        while frames < FRAMES_PER_TURN and (room := peer.room(end, batch, now)):
            try:
                data = self._log.slice(peer.sent, peer.sent + room)  # ends at the segment's border
            except NotInLog:
                self._cut_off(peer)
                return frames
            if not self._send(peer, [self._head(peer, len(data), confirmed), data], confirmed, now):
                return frames
            if not peer.in_flight:
                os.sched_yield()  # a lone request: ZeroMQ's thread is to send it before this one goes on
            peer.was_sent(len(data))
            self._line.count(Counter.BYTES, len(data))
            frames += 1
        due = now - peer.last_sent_ms >= self._node.settings.ha_send_heartbeat_interval
        brought = peer.in_flight and not peer.is_stopping  # the next slice or answer brings it on
        news = confirmed != peer.sent_confirmed and not brought and not self._wake_owed_ns
        if not frames and (due or news):
            self._send(peer, [self._head(peer, 0, confirmed)], confirmed, now)
        return frames

    def _cut_off(self, peer: Peer) -> None:
        """Cuts off a slave that was waited for as long as the settings allow: the segment it needs next is deleted."""
        self._line.count(Counter.REFUSED)
        refused = self._handshake.cleaned(peer.sent, self._oldest_offset())
        self._node.log.error("slave %s cannot go on: %s", peer.name, refused.sentence)
        self._server.send(peer.identity, encode_refusal(refused))
        self._drop_peer(peer)

    def _release_segments(self, now: int) -> None:
        """Closes deleted segments that every slave has; deleted ones must not be sent from a mapping."""
        if now - self._checked_ms < CHECK_EVERY_MS:
            return
        self._checked_ms = now
        low = self._node.positions.get(Position.LOG_MIN)
        wanted = min((peer.sent for peer in self._peers.values()), default=low)
        self._log.release_below(min(low, wanted))
        if wanted < low:
            self._log.refresh()

    def _head(self, peer: Peer, size: int, confirmed: int) -> bytes:
        return HA_DATA.pack(Kind.HA_DATA, size, self._epoch, peer.sent, confirmed)

    def _send(self, peer: Peer, parts: list[Any], confirmed: int, now: int) -> bool:
        sent = self._server.send(peer.identity, parts, copy=False)
        if sent is Sent.GONE:
            self._drop_peer(peer)
        elif sent is Sent.SENT:
            peer.sent_confirmed, peer.last_sent_ms = confirmed, now
        return sent is Sent.SENT

    def _send_head(self, peer: Peer, head: bytes) -> None:
        if self._server.send(peer.identity, [head]) is Sent.GONE:
            self._drop_peer(peer)

    def _publish(self, now: int) -> int:
        if self._node.positions.get(Position.PROMISED) > self._epoch:
            return 0
        lines = self._node.positions.slaves()
        end = self._node.positions.get(self._written)
        self._membership.cycle(self._peers.values(), self._replicated.get(), end, now)
        for peer in self._peers.values():
            line = lines[peer.place]
            line.set(connected=True, appended=peer.appended, flushed=peer.flushed, node=peer.node)
            line.outside = self._membership.outside(peer, end)
        return self._confirm()

    def _confirm(self) -> int:
        """Advances REPLICATED by the recorded set; returns whether it moved."""
        if self._node.positions.get(Position.PROMISED) > self._epoch:
            return 0  # fenced: what was not confirmed may be cut off, and no reader is to see it
        value = self._membership.replicated(self._node.positions.get(self._written))
        if value <= self._replicated.get():
            return 0
        self._replicated.advance(value)
        self._crossings.passed(value)
        if not (self._waited_for or self._peers):
            return 0
        if self._put_doorbell.ring():
            os.sched_yield()  # put first, though it be woken on this core
        self._wake_owed_ns = self._wake_owed_ns or time.monotonic_ns()
        return 1

    def _epoch_start(self) -> int:
        """The beginning of this master's epoch: it had everything before that when it started."""
        entries = EpochFile(self._node.store).load()
        return entries[-1].start


def build(node: Node) -> SendAgent:
    return SendAgent(node)
