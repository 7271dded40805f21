"""The duty cycle of reput: scan, write queues, index, publish, ring."""

import gc
import time
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from towline.errors import DiskFull, QueueGap, RuntimeDirectoryFull, TooManyQueues
from towline.format.record.halts import Halt
from towline.format.record.rules import Rule
from towline.kernels.base.directory import QueueDirectory
from towline.limits import KERNEL_BYTES_MAX, REST_MAX_MS
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import RECORDS_MAX, Batch, DispatchScan, records_for
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.log.queues.index_service import IndexService
from towline.log.queues.queue_build import files_open_max
from towline.node.process.context import Node
from towline.node.store.confirmed import confirmed_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Flag, Position, State
from towline.runtime.settings_model import BrokerRole
from towline.runtime.stage_times import Stage, StageTimes
from towline.runtime.store_stats import StoreStats

from .bitmaps import CalcBitMap
from .cleaning import DerivedCleaner
from .deleted import DeletedQueues
from .dispatchers import Dispatcher, configured_dispatchers
from .extensions import ExtensionWriter
from .indexing import IndexDispatcher
from .queues import QueueDispatcher
from .retention import QueueRetention

NEW_FILES_OPEN_MAX: Final = 64  # of files while they are made, beside those
GATHER_QUEUES: Final = 1024  # with more than these, and
GATHER_BACKLOG: Final = KERNEL_BYTES_MAX  # a backlog of more than a batch, entries wait for one write for many batches:
GATHERED_PER_QUEUE: Final = 256  # so many of them, by the number of queues
GATHERED_MAX: Final = 2_621_440
GATHERED_BATCH: Final = RECORDS_MAX
DRAIN_MS: Final = 2000
DISK_FULL_PAUSE_MS: Final = 1000


Numbers = NDArray[np.int64]


class SlavePutStatistics:
    """A slave's put statistics per queue, counted from dispatched records, as on RocketMQ's slaves.

    It counts what is dispatched since the node's start, records derived again included. Requests and latencies are not
    known here.
    """

    def __init__(self, node: Node, directory: QueueDirectory) -> None:
        self._stats = StoreStats.own(node.runtime.put_stats, node.generation, node.clock.now_ms())
        self._directory = directory
        self._batches: list[Numbers] = []  # queues, messages, bytes of a batch, a row each

    def add(self, batch: Batch) -> None:
        """Adds a batch that is being dispatched; its rows are views that the next batch overwrites."""
        queues, place, messages = np.unique(batch.rows["queue_index"], return_inverse=True, return_counts=True)
        sizes = np.bincount(place, weights=batch.rows["size"])
        self._batches.append(np.stack((queues, messages, sizes)).astype(np.int64))

    def commit(self) -> None:
        """Counts the added batches, which are dispatched."""
        queues, messages, sizes = self._batches[0] if len(self._batches) == 1 else _summed(self._batches)
        self._batches.clear()
        topic, queue_id = self._directory.topic, self._directory.queue_id
        for queue, count, size in zip(queues.tolist(), messages.tolist(), sizes.tolist(), strict=True):
            self._stats.add(topic(queue), queue_id(queue), count, size, requests=0)

    def discard(self) -> None:
        """Drops the added batches, which will be sent again."""
        self._batches.clear()


def _summed(batches: list[Numbers]) -> tuple[Numbers, Numbers, Numbers]:
    """One row per queue, summed over several batches."""
    all_of_them = np.concatenate(batches, axis=1)
    queues, place = np.unique(all_of_them[0], return_inverse=True)
    messages, sizes = (np.bincount(place, weights=row).astype(np.int64) for row in all_of_them[1:])
    return queues, messages, sizes


class ReputAgent:
    """The duty cycle of reput."""

    duty: ClassVar[Duty] = Duty.REPUT

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._times = StageTimes(node.positions, Stage.DISPATCH)
        self._dispatched = node.writer(Position.DISPATCHED)
        self._timestamp = node.writer(Position.DISPATCHED_TIMESTAMP)
        self._stopped = node.writer(Position.DISPATCH_STOPPED)
        self._stopped_why = node.writer(Position.DISPATCH_STOPPED_WHY)
        self._indexed = node.writer(Position.INDEXED)
        self._confirmed = confirmed_of(node)
        self._is_master = node.settings.broker_role is not BrokerRole.SLAVE
        self._whole_below = -1  # the confirmed end at which the next record was not whole yet
        self._paused_until = 0
        self._ungathered_until = 0  # below here batches are dispatched one by one: gathering them failed
        self._drain_until: int | None = None

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._node.settings
        self._doorbell = node.ringer(Duty.SERVE)
        self._log = CommitLogReader(node.store.commitlog, settings.mapped_file_size_commit_log)
        directory = QueueDirectory()
        files = ConsumeQueueFiles(node.store.consumequeue, settings.mapped_file_size_consume_queue, NEW_FILES_OPEN_MAX)
        ends = node.queue_ends(writable=True)
        self._deleted = DeletedQueues(
            node, files, ends, lambda topic, queue_id: self._queues.close_queue(topic, queue_id)
        )
        self._extensions = self._make_extensions(files, directory)
        self._queues = QueueDispatcher(files, ends, directory, files_open_max(), self._extensions)
        self._scan = DispatchScan(self._log, directory, settings.delay_levels_ms)
        self._puts = None if self._is_master else SlavePutStatistics(node, directory)
        self._index: IndexDispatcher | None = None
        if settings.message_index_enable:
            slots, indexes = settings.max_hash_slot_num, settings.max_index_num
            between = _reach_before if ARMED else None
            service = IndexService(node.store.index, slots, indexes, writable=True, between=between)
            self._index = IndexDispatcher(service, self._log, node.clock, node.log, self._indexed.get())
        self._cleaner = DerivedCleaner(node, files, ends, self._index, self._log, self._extensions)
        self._retention = QueueRetention(node, files, ends, self._log, self._extensions)
        # A slave learns of subscriptions after records that their births let count: its units have no bitmaps.
        self._bitmaps = CalcBitMap(node) if settings.enable_calc_filter_bit_map and self._is_master else None
        ordered = (self._bitmaps, self._queues, self._index, *configured_dispatchers(settings, node))
        self._dispatchers: list[Dispatcher] = [each for each in ordered if each is not None]
        if self._stopped.get():
            self._line.raise_flag(Flag.LOGIC_QUEUE_ERROR)
        gc.freeze()

    def _make_extensions(self, queues: ConsumeQueueFiles, directory: QueueDirectory) -> ExtensionWriter | None:
        settings = self._node.settings
        if not settings.enable_consume_queue_ext:
            return None
        size = settings.mapped_file_size_consume_queue_ext
        files = ConsumeQueueExtFiles(self._node.store.consumequeue_ext, size, NEW_FILES_OPEN_MAX)
        return ExtensionWriter(files, queues, directory)

    def do_work(self) -> int:
        """Dispatches a batch, and cleans a little of what the log has deleted, or topics no longer keep."""
        done = self._dispatch_next() + self._cleaner.cycle() + self._deleted.cycle() + self._retention.cycle()
        return done + self._log.release_idle(self._node.clock.monotonic_ms())

    def _dispatch_next(self) -> int:
        if self._bitmaps is not None:
            self._bitmaps.refresh()
        start, end = self._dispatched.get(), self._confirmed()
        if self._stopped.get() or self._node.clock.monotonic_ms() < self._paused_until:
            return 0
        low = self._node.positions.get(Position.LOG_MIN)
        if start < low <= end:
            return self._skip_to_log_min(low)
        if start >= end or end == self._whole_below:
            return self._catch_up_index(start)
        self._line.state = State.KERNEL
        began_ns = time.monotonic_ns()
        done = self._dispatch_gathered(start, end) if self._gathers(start, end) else 0
        if not done:
            done = self._dispatch_batch(start, end)
        if done:
            self._times.add(time.monotonic_ns() - began_ns)
        self._line.state = State.RUNNING
        return done + self._catch_up_index(self._dispatched.get())  # under load as well, else it is never caught up

    def _dispatch_batch(self, start: int, end: int) -> int:
        try:
            batch = self._scan.read(start, end, records_for(self._queues.queue_count))
        except TooManyQueues as error:
            return self._stop_at(start, str(error), Halt.TOO_MANY_QUEUES)
        if batch.end == start:
            return self._handle_unreadable(batch, end)
        try:
            return self._dispatch(batch)
        except QueueGap as error:
            if error.physical_offset > start:  # what stands before it is dispatched whole, for all dispatchers
                return self._dispatch_batch(start, error.physical_offset)
            number = Halt.QUEUE_TWICE if error.queue_offset < error.due else Halt.QUEUE_GAP
            return self._stop_at(start, str(error), number)

    def sleep_ms(self) -> int:
        return REST_MAX_MS

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._bell.wait(timeout_ms, rest)

    def drain(self) -> bool:
        """Drains until everything appended is dispatched; what is not confirmed in time is left to the next start."""
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        done = self._dispatched.get() == self._indexed.get() == self._last_confirmed()
        return done or bool(self._stopped.get()) or now >= self._drain_until

    def _last_confirmed(self) -> int:
        """The offset worth waiting for: nothing more is confirmed on a slave without its receiver, or on a fenced
        master."""
        positions = self._node.positions
        end = positions.get(Position.APPENDED)
        if self._is_master:
            fenced = positions.get(Position.PROMISED) > positions.get(Position.EPOCH)
            return max(self._confirmed(), self._dispatched.get()) if fenced else end
        if positions.duty(Duty.RECEIVE).state is not State.STOPPED:
            return end
        return min(end, max(positions.get(Position.CONFIRMED), self._dispatched.get()))

    def on_close(self) -> None:
        """Closes files. The process would do so by ending, but a bench has no process of its own for this."""
        self._retention.close()
        self._queues.close()
        if self._extensions is not None:
            self._extensions.files.close()
        if self._index is not None:
            self._index.close()

    def _dispatch(self, batch: Batch) -> int:
        """Dispatches in the order of H13: queue bytes, queue ends, index, DISPATCHED. Raises QueueGap."""
        for dispatcher in self._dispatchers:
            if ARMED:
                reach(f"reput.before_{dispatcher.name}")
            if not self._put(dispatcher, batch):
                return 0
        self._line.lower_flag(Flag.LOGIC_DISK_FULL | Flag.RUNTIME_FULL)
        if self._index is not None:
            self._signal_index(self._index)
        if self._puts is not None:
            self._puts.add(batch)
        self._publish(batch.start, batch.end, len(batch.rows), _newest(batch))
        return 1

    def _publish(self, start: int, end: int, records: int, newest: int) -> None:
        """Publishes that [start, end) is dispatched; `newest` is the store time of its last record."""
        if ARMED:
            reach("reput.before_dispatched")
        # In whichever order these two were seen: who needs both takes the lesser.
        self._indexed.advance(self._index.position if self._index is not None else end)
        self._timestamp.advance(max(self._timestamp.get(), newest))
        self._dispatched.advance(end)
        if self._puts is not None:
            self._puts.commit()
        if ARMED:
            reach("reput.after_dispatched")
        self._doorbell.ring()
        self._line.count(Counter.MESSAGES, records)
        self._line.count(Counter.BYTES, end - start)
        self._line.count(Counter.BATCHES)

    def _gathers(self, start: int, end: int) -> bool:
        """Whether batches are gathered: only where queues are the sole dispatcher, as others follow published queues
        (H13).

        Queues with extension units do not gather either: units are made from the batch's rows.
        """
        many = self._queues.queue_count > GATHER_QUEUES and end - start > GATHER_BACKLOG
        alone = self._dispatchers == [self._queues] and self._extensions is None
        return many and alone and start >= self._ungathered_until

    def _dispatch_gathered(self, start: int, end: int) -> int:
        """Writes the entries of several batches of a backlog at once; returns 0 where the first batch is to go
        alone."""
        at, records, newest = start, 0, 0
        self._queues.begin(max(GATHERED_BATCH, min(GATHERED_PER_QUEUE * self._queues.queue_count, GATHERED_MAX)))
        try:
            while at < end:
                batch = self._scan.read(at, end, GATHERED_BATCH)
                if batch.end == at or not self._queues.gather(batch):
                    break
                at, records, newest = batch.end, records + len(batch.rows), max(newest, _newest(batch))
                if self._puts is not None:
                    self._puts.add(batch)
            self._queues.commit()
        except (QueueGap, TooManyQueues, DiskFull) as error:
            self._node.log.warning("batches up to %d are dispatched one by one: %s", at, error)
            self._queues.discard()
            if self._puts is not None:
                self._puts.discard()
            self._ungathered_until = max(at, start + 1)
            return 0
        if end - at <= GATHER_BACKLOG:
            self._queues.release()
        if at == start:
            return 0
        self._line.lower_flag(Flag.LOGIC_DISK_FULL | Flag.RUNTIME_FULL)
        self._publish(start, at, records, newest)
        return 1

    def _put(self, dispatcher: Dispatcher, batch: Batch) -> bool:
        """Sends the batch to a dispatcher; False when a full disk stopped it."""
        try:
            dispatcher.put(batch)
        except DiskFull as error:
            self._paused_until = self._node.clock.monotonic_ms() + DISK_FULL_PAUSE_MS
            self._node.log.error("%s", error)
            in_memory = isinstance(error, RuntimeDirectoryFull)
            self._line.raise_flag(Flag.RUNTIME_FULL if in_memory else Flag.LOGIC_DISK_FULL)
        else:
            return True
        return False

    def _skip_to_log_min(self, low: int) -> int:
        """Moves DISPATCHED to the log's beginning where an empty slave joined in the middle of its master's log."""
        if self._index is not None:
            self._index.position = max(self._index.position, low)
        self._indexed.advance(max(self._indexed.get(), low))
        self._dispatched.advance(low)
        return 1

    def _catch_up_index(self, dispatched: int) -> int:
        if self._index is None or self._index.position >= dispatched:
            return 0
        done = self._index.catch_up(dispatched)
        self._signal_index(self._index)
        if not done:
            return 0
        self._indexed.advance(self._index.position)
        return 1

    def _signal_index(self, index: IndexDispatcher) -> None:
        signal = self._line.raise_flag if index.paused else self._line.lower_flag
        signal(Flag.INDEX_ERROR)

    def _handle_unreadable(self, batch: Batch, end: int) -> int:
        """Waits for a record that is incomplete yet, or stops dispatching at a bad one.

        A master appends whole records, though the confirmed end may lie inside of one; a slave's log may end inside of
        one.
        """
        at = batch.end
        if not batch.waits:
            return self._stop_at(at, f"{batch.rule.name}: {batch.rule.sentence}", batch.rule)
        if self._is_master and at + self._scan.claimed(at) > self._node.positions.get(Position.APPENDED):
            return self._stop_at(at, "a record reaches past the end of the log", Rule.SIZE_PAST_END)
        self._whole_below = end
        return 0

    def _stop_at(self, offset: int, why: str, number: Rule | Halt) -> int:
        """Stops at a bad record, which is never skipped: put refuses until it is repaired (DISPATCH_STOPPED)."""
        self._node.log.critical("dispatching stops at offset %d: %s", offset, why)
        self._stopped_why.replace(number)
        self._stopped.advance(offset + 1)
        self._line.raise_flag(Flag.LOGIC_QUEUE_ERROR)
        return 0


def _newest(batch: Batch) -> int:
    return int(batch.rows[-1]["store_timestamp"]) if len(batch.rows) else 0


def _reach_before(step: str) -> None:
    reach(f"reput.before_{step}")


def build(node: Node) -> ReputAgent:
    return ReputAgent(node)
