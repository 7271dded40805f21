"""The ha receiver of a slave: appends the master's CommitLog bytes at the exact offset."""

import gc
import json
import time
from typing import Any, ClassVar, Final

from towline.errors import AppendMismatch, DiskFull, LinkRefused, MalformedFrame, StoreNotWritable, SyncFailed
from towline.format.wire.frames import HA_ACK, HA_DATA, HA_SET, Buffer, Kind, expect, expect_set, kind_of
from towline.limits import LOOK_MS, MIB, SLEEP_MAX_MS
from towline.log.commitlog.commit_log import CommitLogReader, LogTail
from towline.log.errors import SegmentNotMade
from towline.log.files.store_files import write_atomically
from towline.log.state.identity import IdentityFile
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncFile, InSyncRecord
from towline.node.peers.master_link import MasterLink
from towline.node.process.context import Node
from towline.node.store.tail import open_tail
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings_model import FlushDiskType
from towline.runtime.stage_times import Stage, StageTimes

from .handshake import ReceiverHandshake
from .rocketmq.rules import Rule
from .rocketmq.stream import RocketmqStream

ACK_MS: Final = 1000
FULL_DISK_PAUSE_MS: Final = 1000
PAUSE_MS: Final = 5000  # after a master with whose log ours has nothing in common
DRAIN_MS: Final = 5000  # a disk may take seconds for the sync that a confirmation waits for
DRAIN_ACK_MS: Final = 500
SILENT_MS: Final = 1500  # a master that is there answers each acknowledgement of a slave that stops
BYTES_PER_TURN: Final = 8 * MIB
HIGH_WATER: Final = 1024
SLICE_MAX: Final = 16 * MIB  # of one frame; also what a killed receiver may have left behind APPENDED


_TROUBLE: Final = (
    MalformedFrame,
    LinkRefused,
    AppendMismatch,
    DiskFull,
    SegmentNotMade,
    StoreNotWritable,
    SyncFailed,
)


class ReceiveAgent:
    """The duty cycle of the receiver."""

    duty: ClassVar[Duty] = Duty.RECEIVE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._appended = node.writer(Position.APPENDED)
        self._confirmed = node.writer(Position.CONFIRMED)
        self._log_min = node.writer(Position.LOG_MIN)
        self._in_sync = InSyncFile(node.store)
        self._times = StageTimes(node.positions, Stage.RECEIVE)
        self._in_sync_published = node.writer(Position.IN_SYNC)
        self._epoch = 0
        self._pause_until = 0
        self._status_written = (False, "")
        self._compared = False  # this log's end with a master's, once since this process has started
        self._acked = (-1, -1)
        self._acked_ms = 0
        self._heard_ms = 0
        self._drain_until: int | None = None
        self._full_until: int | None = None  # there is no tail yet: when it is tried again

    def on_start(self, bell: Doorbell) -> None:
        node = self._node
        settings = node.settings
        at_once = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH or settings.wake_flush_when_put_message
        self._flush_doorbell = node.ringer(*((Duty.FLUSH,) if at_once else ()))  # else it checks by the clock
        self._reput_doorbell = node.ringer(Duty.REPUT)
        self._reader = CommitLogReader(node.store.commitlog, node.settings.mapped_file_size_commit_log)
        self._appended.advance(max(self._appended.get(), self._log_min.get()))
        self._open_tail()
        if (known := self._in_sync.load()) is not None:
            self._in_sync_published.replace(known.members)
        node.store.link.unlink(missing_ok=True)
        self._handshake = ReceiverHandshake(node, self._reader, node.writer(Position.EPOCH))
        if node.store.truncate.exists():  # the process before recorded it, and may not have come to order it
            self._handshake.order_truncation()
        self._link: MasterLink | RocketmqStream
        if settings.rocketmq_master_address is None:
            self._link = MasterLink(node, bell, frame_size_max=SLICE_MAX, high_water=HIGH_WATER)
        else:
            self._link = RocketmqStream(node, bell, self._reader)
        gc.disable()

    def adjust(self) -> None:
        self._link.adjust()

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        if self._full_until is not None and (now < self._full_until or not self._open_tail()):
            return 0
        self._write_status()
        if self._handshake.ordered:
            return 0
        if not self._link.connected:
            return self._connect(now) if self._link.due(now) and now >= self._pause_until else 0
        if outdated := self._handshake.outdated():
            self._link.disconnect(outdated)
            return 0
        began_ns, visible = time.monotonic_ns(), self._visible()
        done, taken = self._receive(now)
        self._acknowledge(now)
        if taken:
            took_ns = time.monotonic_ns() - began_ns
            self._times.add(took_ns)
            self._line.count(Counter.BUSY_NS, took_ns)
            self._flush_doorbell.ring()
        if self._visible() > visible:
            self._reput_doorbell.ring()  # behind the acknowledgement, which a client waits for
        if now - self._heard_ms > self._node.settings.ha_housekeeping_interval:
            self._link.disconnect("the master is silent")
        elif self._link.lost:
            self._link.disconnect("the connection broke")
        return done or int(self._tail.prepare())

    def _write_status(self) -> None:
        """Writes for `towline slave status` whom the slave follows, or why nobody."""
        said = (self._link.connected, self._link.trouble)
        if said == self._status_written or not any(said):
            return
        self._status_written, now = said, self._node.clock.now_ms()
        refused = list(self._link.refused.args) if self._link.refused is not None else None
        self._compared = self._compared or said[0] or (refused is not None and refused[0] == Rule.AHEAD.name)
        news = {"connected": said[0], "address": self._link.address, "why": said[1], "refused": refused, "since": now}
        news["compared"] = self._compared
        try:
            write_atomically(self._node.store.link, json.dumps(news).encode())
        except (DiskFull, StoreNotWritable, SyncFailed) as error:  # news, not the truth
            self._node.log.warning("%s", error)

    def sleep_ms(self) -> int:
        if self._link.connected or self._handshake.ordered:
            return LOOK_MS
        now = self._node.clock.monotonic_ms()
        return max(self._link.due_ms(now), min(SLEEP_MAX_MS, max(self._pause_until, self._full_until or 0) - now))

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._link.wait(timeout_ms, rest)

    def drain(self) -> bool:
        """Appends nothing more; acknowledges what is here until the master reports it confirmed.

        Then reput can put the last record into its queue, and the stop is clean.
        """
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until, self._acked = now + DRAIN_MS, (-1, -1)  # the credit goes back at once
            self._heard_ms = now
        confirmed = self._confirmed.get() >= self._appended.get()
        over = now >= self._drain_until or now - self._heard_ms > SILENT_MS
        return confirmed or over or not self._link.connected

    def on_close(self) -> None:
        if hasattr(self, "_link"):
            self._link.close()

    def _open_tail(self) -> bool:
        """Opens the tail. False on a full disk: nothing is received until there is room, and reads are served (H7)."""
        try:
            self._tail: LogTail = open_tail(self._node, SLICE_MAX)
        except DiskFull as error:
            self._full_until = self._node.clock.monotonic_ms() + FULL_DISK_PAUSE_MS
            self._node.log.error("nothing is received until there is room: %s", error)
            return False
        self._full_until = None
        return True

    # --- the link

    def _connect(self, now: int) -> int:
        if not self._link.connect(self._facts(), self._agree):
            if self._handshake.refused():
                self._pause_until = now + PAUSE_MS
            return 0
        self._heard_ms, self._acked = now, (-1, -1)
        self._acknowledge(now)
        self._node.log.info("follows the master from %d", self._tail.position)
        return 1

    def _facts(self) -> dict[str, Any]:
        settings = self._node.settings
        return self._handshake.facts(self._tail.position, self._log_min.get()) | {
            "name": f"{settings.broker_name}-{settings.broker_id}",  # the first is its master's too
            "learner": settings.async_learner,
        }

    def _agree(self, welcome: dict[str, Any]) -> None:
        try:
            self._begin_stream(welcome)
        except (DiskFull, StoreNotWritable, SyncFailed) as error:  # without them written nothing is received
            raise LinkRefused("STORE", str(error)) from error

    def _begin_stream(self, welcome: dict[str, Any]) -> None:
        start = self._handshake.agree(welcome, self._tail.position, self._log_min.get())
        if start != self._tail.position:
            self._tail.close()
            self._log_min.advance(start)
            self._appended.advance(start)  # killed before this line, the next start does it
            self._tail = open_tail(self._node, SLICE_MAX)
        if isinstance(self._link, RocketmqStream):  # whoever waits for its end, or promotes, has to know it at once
            self._confirmed.advance(max(self._confirmed.get(), self._link.masters_end))
        IdentityFile(self._node.store.root).take_over(str(welcome["cluster"]), str(welcome["store"]))
        self._epoch = self._handshake.epoch

    # --- the stream

    def _receive(self, now: int) -> tuple[int, int]:
        """Receives slices; returns how many messages, and how many bytes of the log."""
        done = taken = 0
        try:
            while taken < BYTES_PER_TURN and (parts := self._link.receive()) is not None:
                done += 1
                self._heard_ms = now
                taken += self._apply(parts)
        except _TROUBLE as error:
            self._line.count(Counter.REFUSED)
            self._link.disconnect(str(error))
        return done, taken

    def _visible(self) -> int:
        """The end up to which reput may go, except for a sync, after which flush wakes it."""
        return min(self._appended.get(), self._confirmed.get())

    def _apply(self, parts: list[Buffer]) -> int:
        """Appends one slice. Anything but the next byte of our log from the greeted master ends the link.

        After a stop was requested slices are left to the next start; they only say what is confirmed.
        """
        if kind_of(parts[0]) == Kind.HA_SET:
            self._record_set(parts[0])
            return 0
        if kind_of(parts[0]) != Kind.HA_DATA:
            raise MalformedFrame(f"kind {kind_of(parts[0])} is no word of a master")
        _, size, epoch, offset, confirmed = expect(HA_DATA, parts[0])
        data = parts[1] if len(parts) == 2 else b""
        if self._drain_until is not None and epoch == self._epoch:
            data, size, offset = b"", 0, self._tail.position
        if epoch != self._epoch or offset != self._tail.position or len(data) != size:
            raise MalformedFrame(
                f"a slice of {len(data)} bytes at {offset} in epoch {epoch} does not follow {self._tail.position} "
                f"in epoch {self._epoch}"
            )
        if confirmed > self._confirmed.get():  # also where the slice finds no room: what is here is served
            self._confirmed.advance(confirmed)
        if size:
            self._handshake.before_bytes(offset + size)
            if ARMED:
                reach("receive.before_append")
            end = self._tail.append_raw(offset, memoryview(data))
            if ARMED:
                reach("receive.after_append")
            self._appended.advance(end)
            self._handshake.holds(end)
            self._line.count(Counter.BYTES, size)
            self._line.count(Counter.BATCHES)
        return int(size)

    def _record_set(self, head: Buffer) -> None:
        """Records the in-sync set on disk before it is acknowledged: the master removes no member before that (H14)."""
        _, *fields = expect_set(head)
        epoch, version, master, members, floor = fields
        record = InSyncRecord(epoch, version, master, members, max(floor, FLOOR_UNKNOWN))
        if record.epoch != self._epoch or record.members < 0:
            raise MalformedFrame(f"an in-sync set of epoch {record.epoch}; the master we follow has {self._epoch}")
        if ARMED:
            reach("receive.before_set")
        known = self._in_sync.load()
        if known is not None and not record.stands_beside(known):
            self._handle_set_error(record, known)
            return
        if known != record:
            self._in_sync.save(record)
        self._in_sync_published.replace(record.members)
        # A promise that was given meanwhile may have named the set before this one, and whoever asked for it goes by
        # that. Checked after the write: one that is not seen here has named this set.
        if outdated := self._handshake.outdated():
            raise LinkRefused("EPOCH", outdated)
        self._link.send([HA_SET.pack(Kind.HA_SET_ACK, *fields)])

    def _handle_set_error(self, record: InSyncRecord, known: InSyncRecord) -> None:
        """Leaves a set that is not on disk unacknowledged.

        Raises LinkRefused where another master has recorded a set since.
        """
        newer = f"set {known.version} of epoch {known.epoch}, of node {known.master}, is recorded here"
        if known.epoch > record.epoch:
            raise LinkRefused("EPOCH", f"the in-sync set {record.ids} of epoch {record.epoch} comes too late: {newer}")
        self._node.log.warning("the in-sync set %s, version %d, is not recorded: %s", record.ids, record.version, newer)

    def _acknowledge(self, now: int) -> None:
        held = (self._appended.get(), self._node.positions.get(Position.FLUSHED))
        held = (held[0], min(held))
        every_ms = ACK_MS if self._drain_until is None else DRAIN_ACK_MS
        if held == self._acked and now - self._acked_ms < every_ms:
            return
        limit = held[0] + (self._node.settings.ha_window_bytes if self._drain_until is None else 0)
        if ARMED:
            reach("receive.before_ack")
        if self._link.send([HA_ACK.pack(Kind.HA_ACK, self._epoch, *held, limit)]):
            self._acked, self._acked_ms = held, now


def build(node: Node) -> ReceiveAgent:
    return ReceiveAgent(node)
