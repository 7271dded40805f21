"""What a slave counts of its master's puts, per queue, as RocketMQ's slaves do: there is no put process that could.

Counted is what is dispatched since the node was started, what a start derives anew included.
"""

import numpy as np
from numpy.typing import NDArray

from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.dispatch import Batch
from towline.node.process.context import Node
from towline.runtime.store_stats import StoreStats

Numbers = NDArray[np.int64]


class FollowedPuts:
    """A few word stores for each queue; no requests and no times, which only put knows."""

    def __init__(self, node: Node, directory: QueueDirectory) -> None:
        self._stats = StoreStats.own(node.runtime.put_stats, node.generation, node.clock.now_ms())
        self._directory = directory
        self._noted: list[Numbers] = []  # queues, messages, bytes of a batch, a row each

    def note(self, batch: Batch) -> None:
        """A batch is on its way to its queues; its rows are views that the next one overwrites."""
        queues, place, messages = np.unique(batch.rows["queue_index"], return_inverse=True, return_counts=True)
        sizes = np.bincount(place, weights=batch.rows["size"])
        self._noted.append(np.stack((queues, messages, sizes)).astype(np.int64))

    def settle(self) -> None:
        """All that was noted is dispatched."""
        queues, messages, sizes = self._noted[0] if len(self._noted) == 1 else _together(self._noted)
        self._noted.clear()
        topic, queue_id = self._directory.topic, self._directory.queue_id
        for queue, count, size in zip(queues.tolist(), messages.tolist(), sizes.tolist(), strict=True):
            self._stats.add(topic(queue), queue_id(queue), count, size, requests=0)

    def forget(self) -> None:
        """What was noted comes again."""
        self._noted.clear()


def _together(noted: list[Numbers]) -> tuple[Numbers, Numbers, Numbers]:
    """One row for each queue of several batches."""
    all_of_them = np.concatenate(noted, axis=1)
    queues, place = np.unique(all_of_them[0], return_inverse=True)
    messages, sizes = (np.bincount(place, weights=row).astype(np.int64) for row in all_of_them[1:])
    return queues, messages, sizes
