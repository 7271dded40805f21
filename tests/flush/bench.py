"""A node's files and shared memory, on which a flush process can be started again and again."""

import logging
from pathlib import Path

import numpy as np

from towline.flush.service import FlushAgent
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.identity import IdentityFile
from towline.node.process.context import Node
from towline.node.store.transient_pool import open_pool
from towline.places import Runtime, Store
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import read_settings

SEGMENT = 1 << 20
ENTRY = (100).to_bytes(8, "big") + (50).to_bytes(4, "big") + bytes(8)


class MovedClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Bench:
    def __init__(self, root: Path, *, segment: int = SEGMENT, **settings: object) -> None:
        self.store, self.runtime = Store(root / "store"), Runtime(root / "run")
        for directory in (self.store.commitlog, self.store.consumequeue, self.store.index, self.store.run):
            directory.mkdir(parents=True)
        self.runtime.root.mkdir()
        given = {"mapped_file_size_commit_log": segment} | settings
        self.settings = read_settings(None, {key: str(value) for key, value in given.items()}, {})
        self.clock = MovedClock()
        self.positions = Positions.create(self.runtime.positions, 1)
        QueueEnds.create(self.runtime.queue_ends).close()
        self.ends = QueueEnds.open(self.runtime.queue_ends, writable=True)
        self.files = ConsumeQueueFiles(self.store.consumequeue, self.settings.mapped_file_size_consume_queue, 8)
        DurableFile(self.store.root).save(Durable())
        IdentityFile(self.store.root).create("DefaultCluster")
        self.pool_state = open_pool(self.node_of(Duty.RECOVER), 0)

    @property
    def node(self) -> Node:
        return self.node_of(Duty.FLUSH)

    def node_of(self, duty: Duty) -> Node:
        log = logging.getLogger(duty.label)
        return Node(self.store, self.runtime, self.settings, self.positions, duty, 1, log, self.clock)

    def flush(self) -> FlushAgent:
        """A flush process that begins its duty."""
        agent = FlushAgent(self.node)
        agent.on_start(Doorbell(self.runtime.bell("flush"), self.node.line))
        return agent

    def make_segment(self, base: int) -> Path:
        path = self.store.commitlog / segment_name(base)
        with path.open("xb") as segment:
            segment.truncate(self.settings.mapped_file_size_commit_log)
        return path

    def move(self, position: Position, value: int, duty: Duty = Duty.PUT) -> None:
        self.positions.writer(position, duty).advance(value)

    def dispatch(self, topic: bytes, count: int, end: int, timestamp: int = 0) -> None:
        """As reput does: queue bytes, queue end, time, DISPATCHED; `end` is where the newest record ends."""
        place = self.ends.find(topic, 0)
        first = 0 if place < 0 else self.ends.max_offset(place)
        self.files.write(topic.decode(), 0, first, ENTRY * count)
        place = self.ends.add(topic, 0, first, first, 0) if place < 0 else place
        self.ends.move_all(*np.array([[place], [first + count], [end]]))
        self.move(Position.INDEXED, end, Duty.REPUT)
        self.move(Position.DISPATCHED_TIMESTAMP, timestamp, Duty.REPUT)
        self.move(Position.DISPATCHED, end, Duty.REPUT)

    def durable(self) -> Durable:
        found = DurableFile(self.store.root).load()
        assert found is not None
        return found

    def checkpoint(self) -> Checkpoint:
        return CheckpointFile(self.store.root).load() or Checkpoint()
