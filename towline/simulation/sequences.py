"""Idempotent producers at a simulated put: the product's, over a simulated log."""

import ctypes
from itertools import islice
from typing import Final

import numpy as np

from towline.format.record.rules import Rule
from towline.format.wire.frames import Group
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import DISPATCH, KEY
from towline.log.commitlog.dispatch import Batch
from towline.master.put.producers import Producers, Scan
from towline.master.put.sequences import Claim
from towline.node.process.context import Node

from .disk import Log, records_of
from .machine import Machine

TOPIC: Final = "t"
_RECORDS_MAX: Final = 200  # of a read
_NO_KEYS: Final = np.zeros(0, KEY)


class LogScan:
    """Reads a simulated log. All queues count together: the offset of a record is its number in the log."""

    def __init__(self, log: Log, directory: QueueDirectory) -> None:
        self._log, self._directory = log, directory

    def read(self, start: int, end: int) -> Batch:
        data = bytes(self._log.data[start:end])
        found = list(islice(records_of(data, 0, len(data)), _RECORDS_MAX))
        rows, first = np.zeros(len(found), DISPATCH), self._log.records(start)
        rows["size"] = sizes = np.array([record.size for record in found], np.int64)
        rows["phy"] = start + np.array([record.end for record in found], np.int64) - sizes
        rows["queue_offset"] = first + np.arange(len(found))
        rows["store_timestamp"] = [record.stored_ms for record in found]
        queues = [record.queue for record in found]
        numbers = {queue: self._directory.add(TOPIC.encode(), queue) for queue in sorted(set(queues))}
        rows["queue_index"] = [numbers[queue] for queue in queues]
        stop = start + (found[-1].end if found else 0)
        return Batch(start, stop, start, np.frombuffer(data, np.uint8), rows, _NO_KEYS, Rule.OK, waits=False)


class SimulatedProducers(Producers):
    """The idempotent producers of a simulated put."""

    def __init__(self, node: Node, machine: Machine, end: int) -> None:
        super().__init__(node, end)
        self._machine = machine

    def claim(self, records: bytes, group: Group) -> Claim | None:
        """What a request claims."""
        held = ctypes.c_char_p(records)
        return self.claim_of(ctypes.cast(held, ctypes.c_void_p).value or 0, len(records), group)

    def _first_read(self) -> int:
        """A record's start, as a segment begins with one."""
        return self._machine.disk.log.whole(max(0, self._end - self._machine.plan.sequences.recovered_bytes))

    def _scan(self, directory: QueueDirectory) -> Scan:
        return LogScan(self._machine.disk.log, directory)

    def _draw(self, bits: int) -> int:
        return self._machine.world.random.getrandbits(bits)
