"""Put's statistics of stored requests: per queue, and their latencies (RocketMQ's StoreStatsService)."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from towline.node.process.context import Node
from towline.runtime.store_stats import SLOW_PUT_MS, StoreStats

REPORT_EVERY_MS: Final = 1000  # the log hears of slow puts once in this time


class PutStatistics:
    """A few word stores per group and request into a table in shared memory."""

    def __init__(self, node: Node) -> None:
        self._log = node.log
        self._stats = StoreStats.own(node.runtime.put_stats, node.generation, node.clock.now_ms())
        self._slow = self._slowest_ms = 0
        self._report_at = 0

    def stored(self, topic: bytes, queue_id: int, messages: int, size: int, requests: int) -> None:
        """Counts stored requests of one queue."""
        self._stats.add(topic, queue_id, messages, size, requests)

    def answered(self, received_ms: int, now_ms: int, count: int = 1) -> None:
        """Counts so many answered requests, whatever the answer. Times are monotonic ms."""
        took_ms = now_ms - received_ms
        if self._stats.took(took_ms, count):
            self._slow += count
            self._slowest_ms = max(self._slowest_ms, took_ms)
            self.report_slow(now_ms)

    def all_answered(self, came: Sequence[int], now_ms: int) -> None:
        """Counts answered requests in the order in which they were received."""
        if came[0] == came[-1]:
            self.answered(came[0], now_ms, len(came))
            return
        for received_ms, count in Counter(came).items():
            self.answered(received_ms, now_ms, count)

    def report_slow(self, now_ms: int) -> None:
        """Logs the slow puts since the last report."""
        if not self._slow or now_ms < self._report_at:
            return
        told = "%d puts took more than %d ms from their arrival to their answer, the slowest %d ms"
        self._log.warning(told, self._slow, SLOW_PUT_MS, self._slowest_ms)
        self._slow = self._slowest_ms = 0
        self._report_at = now_ms + REPORT_EVERY_MS
