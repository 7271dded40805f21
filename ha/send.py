"""The ha sender of a master: streams CommitLog slices to slaves and collects what they hold."""

import gc
import zlib
from typing import Any, ClassVar, Final

from towline.errors import LinkRefused, MalformedFrame, NotInLog
from towline.format.frames import ANSWER, ASK, HA_ACK, HA_DATA, Kind, expect, json_part, kind_of, read_json
from towline.limits import MIB, SLAVES_MAX, SLEEP_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.greeting import encode_refusal
from towline.link.poller import Poller
from towline.link.server import Request, Sent, Server
from towline.log.commit_log import CommitLogReader
from towline.node.confirmed import confirmed_of, written_of
from towline.node.context import Node
from towline.node.endpoints import endpoints_of
from towline.node.greeting import own_facts
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings_model import FlushDiskType

from .metadata import read_metadata
from .peers import Peer, replicated

REQUESTS_PER_TURN: Final = 256
FRAMES_PER_TURN: Final = 64
HIGH_WATER: Final = 1024
GRACE_MS: Final = 100  # a link outlives its last frame so long: a slave loses what it has not read when it ends
DRAIN_MS: Final = 1000
LOOK_MS: Final = 250  # between two looks for segments that went while a slave still wanted them


class SendAgent:
    duty: ClassVar[Duty] = Duty.SEND

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._on_disk = node.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replicated = node.writer(Position.REPLICATED)
        self._confirmed = confirmed_of(node)
        self._written = written_of(node)
        self._peers: dict[bytes, Peer] = {}
        self._epoch = 0
        self._looked_ms = 0
        self._drain_until: int | None = None

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._node.settings
        self._log = CommitLogReader(node.store.commitlog, settings.mapped_file_size_commit_log)
        self._ringer = node.ringer(Duty.PUT, Duty.REPUT)
        for slave in node.positions.slaves():  # whoever was connected to an earlier process has to greet again
            slave.set(connected=False, appended=slave.appended, flushed=slave.flushed)
        self._context = new_context()
        self._server = Server(
            self._context,
            endpoints_of(settings, node.runtime, "master")["ha"],
            own=own_facts(node, "ha"),
            greet=self._greet,
            frame_size_max=MIB,
            high_water=HIGH_WATER,
        )
        self._poller = Poller(self._server, bell.fileno())
        gc.freeze()

    def do_work(self) -> int:
        done = 0 if self._poller.was_silent() else self._take_requests()
        confirmed, end = self._confirmed(), self._node.positions.get(self._written)
        now = self._node.clock.monotonic_ms()
        self._let_go(now)
        for peer in list(self._peers.values()):
            done += self._stream(peer, end, confirmed, now)
            self._check_heard(peer, now)
        done += self._log.let_go(now)
        return done + self._publish()

    def sleep_ms(self) -> int:
        return SLEEP_MAX_MS

    def wait(self, timeout_ms: int) -> bool:
        return self._poller.poll(timeout_ms) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        """Until every slave holds everything and knows that it is confirmed, or the time is over."""
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        end = self._node.positions.get(Position.APPENDED)
        behind = [peer for peer in self._peers.values() if self._is_behind(peer, end, now)]
        return not behind or now >= self._drain_until

    def _is_behind(self, peer: Peer, end: int, now: int) -> bool:
        return peer.flushed < end or peer.told_confirmed < end or now - peer.told_ms < GRACE_MS

    def on_close(self) -> None:
        if hasattr(self, "_server"):
            self._server.close()
            close_context(self._context)

    # --- slaves that come and go

    def _greet(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Facts for the welcome; LinkRefused with both sides' values when the two logs do not fit together."""
        if facts.get("role") != "slave":
            return {"now": self._node.clock.now_ms(), "epoch": self._epoch}
        settings, positions = self._node.settings, self._node.positions
        low, end = self._oldest(), positions.get(self._written)
        try:
            size, theirs, empty = int(facts["segment_size"]), int(facts["end"]), bool(facts["empty"])
            tail_size, tail_crc = int(facts["tail_size"]), int(facts["tail_crc"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LinkRefused("FACTS", f"a slave's greeting lacks a fact or has a wrong one: {error}") from None
        if size != settings.mapped_file_size_commit_log:
            ours = settings.mapped_file_size_commit_log
            raise LinkRefused("SEGMENT_SIZE", f"your segments have {size} bytes and ours {ours}")
        if empty:
            return {"start": positions.get(Position.LOG_MIN), "epoch": self._epoch, "end": end}
        if theirs > end:
            raise LinkRefused("OFFSET", f"your log ends at {theirs} and ours holds {low} to {end}")
        if theirs - min(tail_size, 1) < low:
            raise self._cleaned(theirs)
        if not 0 <= tail_size <= min(theirs - low, size) or self._crc(theirs - tail_size, theirs) != tail_crc:
            raise LinkRefused("DIVERGED", f"your last {tail_size} bytes before {theirs} are not ours")
        return {"start": theirs, "epoch": self._epoch, "end": end}

    def _crc(self, start: int, end: int) -> int:
        try:
            return zlib.crc32(self._log.slice(start, end)) if end > start else 0
        except NotInLog:
            raise self._cleaned(end) from None

    def _oldest(self) -> int:
        """Where the log begins for a slave: segments that go are there until connected slaves have them."""
        self._log.refresh()
        low = self._node.positions.get(Position.LOG_MIN)
        return min(low, self._log.queue.bases[0]) if self._log.queue.bases else low

    def _cleaned(self, theirs: int) -> LinkRefused:
        """What a slave is told that needs bytes which have been deleted."""
        return LinkRefused(
            "OFFSET",
            f"your log ends at {theirs} and ours begins at {self._oldest()}: what follows yours was deleted; stop this "
            "slave, move its store directory away and start it on an empty one, which joins where our log begins",
        )

    def _join(self, request: Request, appended: int, flushed: int, limit: int) -> Peer | None:
        """The first acknowledgement after a greeting: it says where the stream begins."""
        name = str(request.session.facts.get("name", ""))
        for other in [peer for peer in self._peers.values() if peer.name == name]:
            self._part(other)
        taken = {peer.place for peer in self._peers.values()}
        free = [place for place in range(SLAVES_MAX) if place not in taken]
        facts, end = request.session.facts, self._node.positions.get(self._written)
        if facts["empty"]:  # the log may begin further on than when it greeted
            low, segment = self._node.positions.get(Position.LOG_MIN), self._log.segment_of(appended)
            fits = appended == segment and self._oldest() <= appended <= low
        else:
            fits = appended == facts["end"]
        if not free or not fits or flushed > appended:
            return None
        now = self._node.clock.monotonic_ms()
        peer = Peer(request.peer, name, free[0], appended, appended, flushed, now, limit)
        self._peers[request.peer] = peer
        self._node.log.info("slave %s joined at %d, our log ends at %d", name, appended, end)
        return peer

    def _part(self, peer: Peer) -> None:
        self._peers.pop(peer.identity, None)
        self._server.forget(peer.identity)
        line = self._node.positions.slaves()[peer.place]
        line.set(connected=False, appended=peer.appended, flushed=peer.flushed)
        self._node.log.warning("slave %s left at %d", peer.name, peer.appended)

    def _check_heard(self, peer: Peer, now: int) -> None:
        if now - peer.heard_ms > self._node.settings.ha_housekeeping_interval:
            self._part(peer)

    # --- what slaves say

    def _take_requests(self) -> int:
        done = 0
        while done < REQUESTS_PER_TURN and (request := self._server.receive()) is not None:
            done += 1
            try:
                self._handle(request)
            except MalformedFrame as error:
                self._reject(request, str(error))
        return done

    def _handle(self, request: Request) -> None:
        kind = kind_of(request.parts[0])
        if kind == Kind.ASK and len(request.parts) == 2:
            _, request_id = expect(ASK, request.parts[0])
            facts = read_metadata(self._node.store, read_json(request.parts[1]))
            self._server.send(request.peer, [ANSWER.pack(Kind.ANSWER, 0, request_id, 0), json_part(facts)])
            return None
        if kind != Kind.HA_ACK or request.session.facts.get("role") != "slave":
            raise MalformedFrame(f"kind {kind} is no word of a slave")
        _, epoch, appended, flushed, limit = expect(HA_ACK, request.parts[0])
        peer = self._peers.get(request.peer)
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

    def _reject(self, request: Request, why: str) -> None:
        self._line.count(Counter.REFUSED)
        self._node.log.warning("the link of a slave is cut: %s", why)
        if request.peer in self._peers:
            self._part(self._peers[request.peer])
        self._server.drop(request)

    # --- what slaves are sent

    def _stream(self, peer: Peer, end: int, confirmed: int, now: int) -> int:
        frames = 0
        batch = self._node.settings.ha_transfer_batch_size
        while frames < FRAMES_PER_TURN and (room := peer.room(end, batch)):
            try:
                data = self._log.slice(peer.sent, peer.sent + room)  # ends at the segment's border
            except NotInLog:
                self._cut_off(peer)
                return frames
            if not self._say(peer, [self._head(peer, len(data), confirmed), data], confirmed, now):
                return frames
            peer.was_sent(len(data))
            self._line.count(Counter.BYTES, len(data))
            frames += 1
        due = now - peer.told_ms >= self._node.settings.ha_send_heartbeat_interval
        if not frames and (due or confirmed != peer.told_confirmed):
            self._say(peer, [self._head(peer, 0, confirmed)], confirmed, now)
        return frames

    def _cut_off(self, peer: Peer) -> None:
        """It was waited for as long as the settings allow; what it needs next is deleted."""
        self._line.count(Counter.REFUSED)
        refused = self._cleaned(peer.sent)
        self._node.log.error("slave %s cannot go on: %s", peer.name, refused.sentence)
        self._server.send(peer.identity, encode_refusal(refused))
        self._part(peer)

    def _let_go(self, now: int) -> None:
        """Of segments that every slave has and the log has not; deleted ones must not be sent from a mapping."""
        if now - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now
        low = self._node.positions.get(Position.LOG_MIN)
        wanted = min((peer.sent for peer in self._peers.values()), default=low)
        self._log.release_below(min(low, wanted))
        if wanted < low:
            self._log.refresh()

    def _head(self, peer: Peer, size: int, confirmed: int) -> bytes:
        return HA_DATA.pack(Kind.HA_DATA, size, self._epoch, peer.sent, confirmed)

    def _say(self, peer: Peer, parts: list[Any], confirmed: int, now: int) -> bool:
        sent = self._server.send(peer.identity, parts, copy=False)
        if sent is Sent.GONE:
            self._part(peer)
        elif sent is Sent.SENT:
            peer.told_confirmed, peer.told_ms = confirmed, now
        return sent is Sent.SENT

    def _publish(self) -> int:
        lines = self._node.positions.slaves()
        end = self._node.positions.get(self._written)
        for peer in self._peers.values():
            gap = end - peer.appended
            peer.caught_up = peer.caught_up or gap <= self._node.settings.ha_max_gap_not_in_sync
            lines[peer.place].set(connected=True, appended=peer.appended, flushed=peer.flushed)
        value = replicated(self._peers.values(), self._node.settings.in_sync_replicas - 1, on_disk=self._on_disk)
        if value <= self._replicated.get():
            return 0
        self._replicated.advance(value)
        self._ringer.ring()
        return 1


def build(node: Node) -> SendAgent:
    return SendAgent(node)
