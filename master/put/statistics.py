"""What put counts of the requests it stored: per queue, and how long they took (RocketMQ's StoreStatsService)."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from towline.format.wire.frames import Group
from towline.node.process.context import Node
from towline.runtime.store_stats import SLOW_PUT_MS, StoreStats

TELL_MS: Final = 1000  # the log hears of slow puts once in this time


class PutStatistics:
    """A few word stores for each group and each request; the table is in shared memory."""

    def __init__(self, node: Node) -> None:
        self._log = node.log
        self._stats = StoreStats.own(node.runtime.put_stats, node.generation, node.clock.now_ms())
        self._slow = self._slowest_ms = 0
        self._tell_at = 0

    def stored(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._stats.add(group.topic, group.queue_id, group.count, group.size)

    def served(self, topic: bytes, queue_id: int, messages: int, size: int, requests: int) -> None:
        """Requests of one queue that were stored."""
        self._stats.add(topic, queue_id, messages, size, requests)

    def answered(self, arrived_ms: int, now_ms: int, count: int = 1) -> None:
        """So many stored requests, whatever their answer. Times are monotonic ms."""
        took_ms = now_ms - arrived_ms
        if self._stats.took(took_ms, count):
            self._slow += count
            self._slowest_ms = max(self._slowest_ms, took_ms)
            self.tell(now_ms)

    def all_answered(self, came: Sequence[int], now_ms: int) -> None:
        """Stored requests that came one after the other."""
        if came[0] == came[-1]:
            self.answered(came[0], now_ms, len(came))
            return
        for arrived_ms, count in Counter(came).items():
            self.answered(arrived_ms, now_ms, count)

    def tell(self, now_ms: int) -> None:
        """Of slow puts since it told last."""
        if not self._slow or now_ms < self._tell_at:
            return
        told = "%d puts took more than %d ms from their arrival to their answer, the slowest %d ms"
        self._log.warning(told, self._slow, SLOW_PUT_MS, self._slowest_ms)
        self._slow = self._slowest_ms = 0
        self._tell_at = now_ms + TELL_MS
