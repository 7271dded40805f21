"""Flush beside the CommitLog: syncs queues and index, writes the durable-offset file and the checkpoint.

It has its own thread, because these syncs may take long and no acknowledgement waits for them; they run without the
GIL.
"""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from towline.errors import SyncFailed, TowlineError
from towline.format.files.checkpoint import Checkpoint, logics_physical_offset
from towline.format.files.durable import Durable
from towline.format.files.index_file import decode_header
from towline.limits import MIB
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.node.process.context import Node
from towline.node.store.confirmed import confirmed_of
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Position
from towline.runtime.settings_model import BrokerRole

from .policy import QueueFlush

QUEUE_FILES_OPEN_MAX: Final = 64
ENTRY: Final = 20
TOGETHER: Final = 256  # more dirty queues than this are synced by one sync of the file system, once nobody appends
SLICE_S: Final = 0.5  # of syncing queues; then the state files are written, and a stop is seen
BEHIND_MAX: Final = 256 * MIB  # log bytes: a queue with few messages does not hold the watermark back further
FINISH_MAX_S: Final = 10.0
STATE_MAX_S: Final = 1.0  # the state files are never older (H3, spec 6.5)


class SyncGoal(NamedTuple):
    """Queue ends to sync, one by one; then queues are durable for the log up to `dispatched`."""

    dispatched: int
    timestamp: int  # ms, of the newest record before `dispatched`, or earlier
    ends: npt.NDArray[np.int64]
    least: int  # bytes; a queue of which less is dirty is left out


class Housekeeper:
    """The housekeeping thread. `log_synced` is called after each sync of the log, `finish` once at a clean stop."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        self._node = node
        self._policy = QueueFlush(
            settings.flush_interval_consume_queue,
            settings.flush_consume_queue_least_pages,
            settings.flush_consume_queue_thorough_interval,
        )
        self._interval_s = min(settings.flush_interval_consume_queue / 1000, STATE_MAX_S)
        self._segment_size = settings.mapped_file_size_commit_log
        self._durable_file = DurableFile(node.store.root)
        self._durable = self._durable_file.load() or Durable()
        self._checkpoint_file = CheckpointFile(node.store.root)
        self._checkpoint = self._checkpoint_file.load() or Checkpoint()
        self._stored_checkpoint = self._checkpoint
        self._confirmed = confirmed_of(node)
        self._is_slave = settings.broker_role is BrokerRole.SLAVE
        self._derived_failed = node.writer(Position.DERIVED_SYNC_FAILED)  # then the watermark stands still
        self._ends = node.queue_ends()
        self._queues = ConsumeQueueFiles(
            node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUE_FILES_OPEN_MAX
        )
        self._queues.watch()
        self._extensions: ConsumeQueueExtFiles | None = None
        if settings.enable_consume_queue_ext:
            size = settings.mapped_file_size_consume_queue_ext
            self._extensions = ConsumeQueueExtFiles(node.store.consumequeue_ext, size, QUEUE_FILES_OPEN_MAX)
        self._goal: SyncGoal | None = None  # for which one slice of time was not enough
        self._synced = self._known_synced()
        self._index_done: set[Path] = set()
        self._physic_timestamp = self._checkpoint.physic_msg_timestamp
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def log_synced(self, timestamp: int, *, rolled: bool) -> None:
        """Notes a sync of the log, with every record up to store time `timestamp`."""
        self._physic_timestamp = max(self._physic_timestamp, timestamp)
        if rolled:
            self._wake.set()

    def sync_failed(self) -> None:
        with self._lock:
            self._store_durable(failed=True)

    def finish(self) -> None:
        self.stop()
        self._round(thorough=True, last=True)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(FINISH_MAX_S)

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            try:
                self._round(thorough=False)
            except (OSError, TowlineError):
                self._node.log.exception("queues or state files could not be synced; the next round tries again")

    def _round(self, *, thorough: bool, last: bool = False) -> None:
        with self._lock:
            now = self._node.clock.monotonic_ms()
            if self._goal is not None and not last:
                self._flush_derived(thorough=thorough)
            elif thorough or self._policy.due(now):
                thorough = thorough or self._policy.thorough(now)
                self._flush_derived(thorough=thorough, last=last)
                self._policy = self._policy.after(now, thorough=thorough)
            self._store_durable(failed=self._durable.sync_failed)
            self._store_checkpoint()
            self._queues.close_removed()  # their blocks are free when nobody has them open

    def _flush_derived(self, *, thorough: bool, last: bool = False) -> None:
        """Syncs queues and index. A failed sync is reported once, and ends their durability until the node starts
        again.

        A later sync of the same pages means nothing (H5), also by another flush process: a start of the node cuts
        queues and index back to the watermark and derives the rest.
        """
        try:
            self._flush_queues(thorough=thorough, last=last)
        except SyncFailed as error:
            self._goal = None
            self._derived_failed.advance(1)
            self._node.log.critical("queues and index are not called durable from here on, restart the node: %s", error)

    def _flush_queues(self, *, thorough: bool, last: bool) -> None:
        """Syncs every queue up to a goal, then moves the watermark, where recovery starts to dispatch.

        Thousands of queues take more than one slice of time. The next slices pursue the same goal, so the watermark
        moves though every queue grows meanwhile. `last`: nobody appends any more, and time is not limited.
        """
        goal = self._next_goal(thorough=thorough) if last or self._goal is None else self._goal
        self._goal = None
        if goal is None or self._derived_failed.get():
            return
        before = np.zeros(len(goal.ends), dtype=np.int64)
        before[: len(self._synced)] = self._synced
        self._synced = before
        places = np.flatnonzero((goal.ends - before) * ENTRY >= goal.least)
        if last and len(places) > TOGETHER:
            self._queues.sync_all()
            before[places] = goal.ends[places]
        elif self._sync_slice(goal, places, all_of_them=last) < len(places):
            self._goal = goal
            self._wake.set()
            return
        if np.array_equal(before, goal.ends):
            index_timestamp = self._sync_index()
            self._durable = replace(self._durable, queues_durable=goal.dispatched)
            self._checkpoint = replace(
                self._checkpoint,
                logics_msg_timestamp=max(goal.timestamp, self._checkpoint.logics_msg_timestamp),
                index_msg_timestamp=max(index_timestamp, self._checkpoint.index_msg_timestamp),
            )

    def _next_goal(self, *, thorough: bool) -> SyncGoal | None:
        """A goal up to everything that is dispatched by now; None when that is durable already."""
        positions = self._node.positions
        timestamp = positions.get(Position.DISPATCHED_TIMESTAMP)
        dispatched = min(positions.get(Position.INDEXED), positions.get(Position.DISPATCHED))
        if dispatched <= self._durable.queues_durable:
            return None
        far = dispatched - self._durable.queues_durable >= BEHIND_MAX
        least = self._policy.least_bytes(thorough=thorough or far)
        return SyncGoal(dispatched, timestamp, self._ends.max_offsets(), least)

    def _sync_slice(self, goal: SyncGoal, places: npt.NDArray[np.int64], *, all_of_them: bool) -> int:
        """Syncs queues one by one, at least one, until the time is over; returns how many."""
        over = time.monotonic() + SLICE_S
        for done, place in enumerate(map(int, places), 1):
            end = self._ends.read(place)
            if self._extensions is not None:  # before the mark counts the entries that point to them
                self._extensions.sync(end.topic.decode(), end.queue_id)
            self._queues.sync(end.topic.decode(), end.queue_id, int(self._synced[place]), int(goal.ends[place]))
            self._synced[place] = goal.ends[place]
            if not all_of_them and (self._stopped or time.monotonic() > over):
                return done
        return len(places)

    def _known_synced(self) -> npt.NDArray[np.int64]:
        """Queue offsets that are certainly on disk: reput wrote them before this process, and their syncer has exited.

        That holds for a queue whose newest record is below the watermark; of any other nothing is known. Ends are read
        before the newest record's, which reput stores first.
        """
        synced = self._ends.max_offsets()
        for place in range(len(synced)):
            end = self._ends.read(place)
            if end.physical_end > self._durable.queues_durable:
                synced[place] = end.min_offset
        return synced

    def _sync_index(self) -> int:
        """Syncs index files; returns the store time that the last full one covers (spec 4.3)."""
        files = sorted(path for path in self._node.store.index.iterdir() if path.name.isdecimal())
        covered = 0
        self._index_done.difference_update(files[-1:])  # a restarted reput may have gone back to it
        for path in files:
            if path in self._index_done:
                continue
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # its records have left the log
                continue
            try:
                _sync(fd, path)
                if path != files[-1]:
                    self._index_done.add(path)
                    covered = decode_header(os.pread(fd, 40, 0)).end_timestamp
            finally:
                os.close(fd)
        return covered

    def _store_durable(self, *, failed: bool) -> None:
        positions = self._node.positions
        flushed = positions.get(Position.FLUSHED)
        durable = Durable(
            flushed=flushed,
            segment_base=flushed - flushed % self._segment_size,
            queues_durable=self._durable.queues_durable,
            log_min=positions.get(Position.LOG_MIN),
            sync_failed=failed or bool(positions.get(Position.SYNC_FAILED)),
        )
        if durable != self._durable_file.state:
            if ARMED:
                reach("flush.before_watermark")
            durable = self._durable_file.save(durable)
        self._durable = durable

    def _store_checkpoint(self) -> None:
        """Writes the checkpoint from the state file just written, so that nothing in it is later than the disk.

        A master knows no other master, and writes 0 for its offset as RocketMQ does.
        """
        flushed = self._durable.flushed
        confirmed = self._node.positions.get(Position.CONFIRMED) if self._is_slave else 0
        checkpoint = replace(
            self._checkpoint,
            physic_msg_timestamp=self._physic_timestamp,
            master_flushed_offset=min(confirmed, flushed),
            confirm_phy_offset=min(self._confirmed(), flushed),
            logics_physical_offset=logics_physical_offset(min(self._durable.queues_durable, flushed)),
        )
        if checkpoint != self._stored_checkpoint:
            self._checkpoint_file.save(checkpoint)
        self._checkpoint = self._stored_checkpoint = checkpoint


def _sync(fd: int, path: Path) -> None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise SyncFailed(str(path), 0, 0, error.errno or 0, error.strerror or "") from error
