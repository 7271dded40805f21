"""One CommitLog, and ConsumeQueues derived from it: what put, flush and reput of a node do, in one process.

A group is one call of the append, which validates and stamps every record of it; its sync is one msync. Queues are
written beside that, without a sync: they can be derived again.
"""

import time
from pathlib import Path
from typing import Final

import numpy as np

from towline.errors import BenchFailed
from towline.format.files.durable import Durable
from towline.format.record.record import LAYOUT
from towline.format.wire.frames import GROUP as GROUP_LAYOUT
from towline.format.wire.frames import PUT, Group, encode_put
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.base.forms import RealTopics
from towline.kernels.base.ownership import own_values
from towline.kernels.jit.rows import APPEND, GROUP, PUT_QUEUE, REQUEST, RequestStatus, Sender, fields_of
from towline.kernels.put import append
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT, RESULT_SIZE
from towline.limits import MESSAGE_BODY_MAX, REQUEST_GROUPS_MAX
from towline.loadtest.bench.kernel import HOST
from towline.loadtest.bench.shapes import NEVER, TOPIC
from towline.log.commitlog.commit_log import CommitLogReader, LogTail
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import warm
from towline.log.files.segment_files import create_segment, publish, segment_name
from towline.log.files.store_files import AbortFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.queue_build import QueueBuild, files_open_max
from towline.log.queues.queue_writer import QueueWriter
from towline.log.state.durable_file import DurableFile
from towline.places import Store

from .load import Bytes, Load, Numbers, records_of

QUEUE_FILE: Final = 300_000 * 20  # bytes, RocketMQ's default
DURABLE_EVERY_S: Final = 1.0  # as flush of a node writes the durable offset
_STAGED: Final = "staged"
_QUEUE_AT: Final = PUT.size + GROUP_LAYOUT.offset["queue_id"]


class OneLog:
    """The store in a directory, from its making until the process ends."""

    def __init__(self, directory: Path, load: Load) -> None:
        self._store, self._load = Store(directory), load
        for place in (self._store.commitlog, self._store.consumequeue, self._store.staging):
            place.mkdir(parents=True)
        AbortFile(directory).create(1)
        self._tail = LogTail(_segment(self._store, load.segment), load.segment, 0, _no_next)
        self._durable, self._durable_at, self._synced = DurableFile(directory), 0.0, 0
        log = CommitLogReader(self._store.commitlog, load.segment)
        log.load()
        self._build, self._derived = QueueBuild(log, ()), 0
        files = ConsumeQueueFiles(self._store.consumequeue, QUEUE_FILE, 1)
        self._writer = QueueWriter(files, self._build.directory, files_open_max())
        self._fill_rows()

    @property
    def room(self) -> bool:
        """Whether another group fits."""
        return self._tail.fits(self._records.size)

    def prepare(self, queues: Numbers, rows: Numbers) -> None:
        """The group that `append` takes: requests as they come from clients."""
        count = len(queues)
        ids = queues.astype(">i4")[:, None].view(np.uint8)
        self._records[:count] = self._pool[rows]
        each = self._records[:count].reshape(count, self._load.together, -1)
        each[:, :, self._id_at : self._id_at + ids.shape[1]] = ids[:, None, :]
        self._heads[:count, _QUEUE_AT : _QUEUE_AT + ids.shape[1]] = ids
        self._requests["status"][:count] = RequestStatus.WAITING
        self._count = count

    def append(self) -> None:
        """The group is in the log. Raises BenchFailed."""
        state, size = self._state, self._records[: self._count].size
        state.at, state.end = self._tail.window(size)
        state.written = state.size = 0
        state.store_timestamp = time.time_ns() // 1_000_000
        done = append.append_rows(self._requests, 0, self._count, self._marks, self._answers, self._appender)
        if done != append.DONE:
            found = [RequestStatus(status).name for status in self._requests["status"][: self._count].tolist()]
            raise BenchFailed(f"the append came back with {done}: {sorted(set(found))}")
        self._tail.moved(state.at)

    def sync(self) -> int:
        """What was appended before is on the disk; how many syncs that took."""
        end, done = self._tail.position, 0
        if end > self._synced:
            self._tail.segment.sync(self._synced, end)
            self._synced, done = end, 1
        if time.monotonic() - self._durable_at > DURABLE_EVERY_S:
            self._durable.save(Durable(flushed=self._synced))
            self._durable_at, done = time.monotonic(), done + 1
        return done

    def derive(self) -> None:
        """Queues have an entry for each record."""
        for batch in self._build.batches(self._derived, self._tail.position):
            for one in self._build.rounds(batch):
                self._writer.write(one.runs, one.entries)
            self._derived = batch.end

    def _fill_rows(self) -> None:
        """Rows of requests that point to heads and records, which `prepare` overwrites."""
        load = self._load
        self._pool = records_of(load)
        size = self._pool.shape[1]
        self._id_at = LAYOUT.offset["queue_id"]
        head = np.frombuffer(encode_put(1, 0, NEVER, [Group(TOPIC.encode(), 0, load.together, size)]), np.uint8)
        self._heads = np.tile(head, (load.group, 1))
        self._records: Bytes = np.zeros((load.group, size), np.uint8)
        self._requests = np.zeros(load.group, REQUEST)
        for name, data in (("head", self._heads), ("records", self._records)):
            self._requests[name] = data.ctypes.data + np.arange(load.group) * data.shape[1]
            self._requests[f"{name}_size"] = data.shape[1]
        self._requests["sender"] = Sender.CLIENT
        states = np.zeros(1, APPEND)
        self._state = fields_of(states)[0]
        self._state.now_ms, self._state.body_max, self._state.stamped_at = 1, MESSAGE_BODY_MAX, 8
        self._state.bytes_max = self._state.request_limit = load.group * size + 1
        self._state.checks = FROM_CLIENT | CHECK_CRC
        directory, queues = QueueDirectory(), np.zeros(load.queues, PUT_QUEUE)
        for queue in range(load.queues):
            directory.add(TOPIC.encode(), queue)
        queues["access"] = Sender.CLIENT
        known = directory.arrays, queues, np.zeros(load.queues, np.int64), np.zeros(append.PLACES_SIZE, np.int64)
        groups, positions = np.zeros(REQUEST_GROUPS_MAX, GROUP), np.zeros(16, np.uint8)
        terms = own_values("DefaultCluster"), HOST, RealTopics().at(0, 0), np.zeros(RESULT_SIZE, np.int64)
        watched = np.zeros(0, np.int64)
        self._appender: append.Appender = (states, self._tail.array, positions, watched, known, groups, terms)
        self._marks = np.zeros(8 * append.MARKS_SIZE, np.uint8)
        self._answers = np.zeros((load.group + 1) * append.ANSWER_MAX, np.uint8)


def _segment(store: Store, size: int) -> MappedFile:
    """Made and warm, as allocate has it before put needs it."""
    staged = create_segment(store.staging, size, _STAGED)
    warm(staged, size)
    target = store.commitlog / segment_name(0)
    publish(staged, target)
    return MappedFile.open(target, size, writable=True)


def _no_next(base: int) -> MappedFile:
    raise BenchFailed(f"a second segment at {base} was asked for")
