"""The ha receiver of a slave: takes CommitLog bytes from the master and appends them at the exact offset."""

import gc
import zlib
from typing import Any, ClassVar, Final

import numpy as np

from towline.errors import DiskFull, LinkRefused, MalformedFrame
from towline.format.frames import HA_ACK, HA_DATA, Buffer, Kind, expect, kind_of
from towline.limits import KIB, MIB, SLEEP_MAX_MS
from towline.log.commit_log import CommitLogReader, LogTail
from towline.log.errors import SegmentNotMade
from towline.log.identity import IdentityFile
from towline.node.context import Node
from towline.node.greeting import own_facts
from towline.node.master_link import MasterLink
from towline.node.tail import open_tail
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Position

TAIL_CRC_MAX: Final = 64 * KIB
ACK_MS: Final = 1000
FULL_DISK_PAUSE_MS: Final = 1000
DRAIN_MS: Final = 1500
BYTES_PER_TURN: Final = 8 * MIB
HIGH_WATER: Final = 1024
SLICE_MAX: Final = 16 * MIB  # of one frame; also what a killed receiver may have left behind APPENDED


class ReceiveAgent:
    duty: ClassVar[Duty] = Duty.RECEIVE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._appended = node.writer(Position.APPENDED)
        self._confirmed = node.writer(Position.CONFIRMED)
        self._log_min = node.writer(Position.LOG_MIN)
        self._epoch = 0
        self._acked = (-1, -1)
        self._acked_ms = 0
        self._heard_ms = 0
        self._drain_until: int | None = None
        self._full_until: int | None = None  # there is no tail yet: when it is tried again

    def on_start(self, bell: Doorbell) -> None:
        node = self._node
        self._ringer = node.ringer(Duty.FLUSH, Duty.REPUT)
        self._reader = CommitLogReader(node.store.commitlog, node.settings.mapped_file_size_commit_log)
        self._appended.advance(max(self._appended.get(), self._log_min.get()))
        self._open_tail()
        self._link = MasterLink(node, bell, frame_size_max=SLICE_MAX, high_water=HIGH_WATER)
        gc.disable()

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        if self._full_until is not None and (now < self._full_until or not self._open_tail()):
            return 0
        if not self._link.connected:
            return self._connect(now) if self._link.due(now) else 0
        done = self._take(now)
        self._acknowledge(now)
        if now - self._heard_ms > self._node.settings.ha_housekeeping_interval:
            self._link.leave("the master is silent")
        elif self._link.lost:
            self._link.leave("the connection broke")
        return done or int(self._tail.prepare())

    def sleep_ms(self) -> int:
        return SLEEP_MAX_MS

    def wait(self, timeout_ms: int) -> bool:
        return self._link.wait(timeout_ms)

    def drain(self) -> bool:
        """Nothing more is appended; what is here gets acknowledged, until the master says that it is confirmed.

        Then reput can put the last record into its queue, and the stop is clean.
        """
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        confirmed = self._confirmed.get() >= self._appended.get()
        return confirmed or not self._link.connected or now >= self._drain_until

    def on_close(self) -> None:
        if hasattr(self, "_link"):
            self._link.close()

    def _open_tail(self) -> bool:
        """False on a full disk: nothing is received until there is room, and what is here is served (H7)."""
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
            return 0
        self._heard_ms, self._acked = now, (-1, -1)
        self._acknowledge(now)
        self._node.log.info("follows the master from %d", self._tail.position)
        return 1

    def _facts(self) -> dict[str, Any]:
        """The greeting: where our log ends, and the CRC of what stands before that, so that two histories never mix."""
        end, low = self._tail.position, self._log_min.get()
        size = self._node.settings.mapped_file_size_commit_log
        empty = end == low
        tail = b"" if empty else bytes(self._reader.slice(tail_start(self._reader, low, end), end))
        self._reader.close()
        facts = own_facts(self._node, "slave")
        if empty:
            facts["store"] = ""  # an empty slave takes the master's store id over
        settings = self._node.settings
        return facts | {
            "name": f"{settings.broker_name}-{settings.broker_id}",  # the first is its master's too
            "end": end,
            "empty": empty,
            "segment_size": size,
            "tail_size": len(tail),
            "tail_crc": zlib.crc32(tail),
        }

    def _agree(self, welcome: dict[str, Any]) -> None:
        start = welcome.get("start")
        if not isinstance(start, int) or not isinstance(welcome.get("epoch"), int):
            raise MalformedFrame("the master's welcome names no start of the stream")
        self._epoch = welcome["epoch"]
        if start != self._tail.position:
            if self._tail.position != self._log_min.get():
                raise MalformedFrame(f"the master wants to begin at {start}, our log ends at {self._tail.position}")
            self._tail.close()
            self._log_min.advance(start)
            self._appended.advance(start)  # killed before this line, the next start does it
            self._tail = open_tail(self._node, SLICE_MAX)
        IdentityFile(self._node.store.root).take_over(str(welcome["cluster"]), str(welcome["store"]))

    # --- the stream

    def _take(self, now: int) -> int:
        done = taken = 0
        try:
            while taken < BYTES_PER_TURN and (parts := self._link.receive()) is not None:
                done += 1
                self._heard_ms = now
                taken += self._apply(parts)
        except (MalformedFrame, LinkRefused, DiskFull, SegmentNotMade) as error:
            self._line.count(Counter.REFUSED)
            self._link.leave(str(error))
        if done:
            self._ringer.ring()
        return done

    def _apply(self, parts: list[Buffer]) -> int:
        """Append one slice. Anything but the next byte of our log from the master we greeted ends the link.

        What comes after the stop was asked for is left to the next start; it only tells what is confirmed.
        """
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
            if ARMED:
                reach("receive.before_append")
            end = self._tail.append_raw(offset, memoryview(data))
            if ARMED:
                reach("receive.after_append")
            self._appended.advance(end)
            self._line.count(Counter.BYTES, size)
            self._line.count(Counter.BATCHES)
        return int(size)

    def _acknowledge(self, now: int) -> None:
        held = (self._appended.get(), self._node.positions.get(Position.FLUSHED))
        held = (held[0], min(held))
        if held == self._acked and now - self._acked_ms < ACK_MS:
            return
        limit = held[0] + self._node.settings.ha_window_bytes
        if ARMED:
            reach("receive.before_ack")
        if self._link.send([HA_ACK.pack(Kind.HA_ACK, self._epoch, *held, limit)]):
            self._acked, self._acked_ms = held, now


def tail_start(log: CommitLogReader, low: int, end: int) -> int:
    """Where the bytes before `end` begin that tell two histories apart: TAIL_CRC_MAX of them that are not all zero.

    Behind the blank of a full segment there are only zeros, up to a request's size of them, and they are everywhere
    the same. Not before the segment or `low`.
    """
    first = max(low, log.segment_of(end - 1))
    zeros = True
    while zeros and end > first:
        start = max(first, end - TAIL_CRC_MAX)
        zeros = not np.frombuffer(log.slice(start, end), dtype=np.uint8).any()
        end = start
    return max(first, end - TAIL_CRC_MAX)  # what was found may be no more than the blank


def build(node: Node) -> ReceiveAgent:
    return ReceiveAgent(node)
