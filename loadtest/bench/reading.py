"""Shared by the benchmarks of reading: a filled node, and one pass of a consumer over a queue."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from towline.client.columns import Columns
from towline.client.consumer import Consumer
from towline.errors import BenchFailed
from towline.limits import MIB

from .client import PutClient
from .node import BenchNode
from .shapes import TOPIC, Load

SILENT_MS: Final = 20_000
BATCH_BYTES: Final = 4 * MIB
BATCH_COUNT: Final = 65_536
AT_ONCE: Final = 64  # requests between two checks of the room that is left

Use = Callable[[Columns], int]


@dataclass(frozen=True, slots=True)
class Pass:
    """One reading of a queue: messages that came, their record bytes, seconds, and what was made of them.

    `over`: messages that were gone over, whether a filter let them through or not.
    """

    messages: int
    size: int
    seconds: float
    used: int
    over: int

    @property
    def rate(self) -> float:
        """Messages gone over per second."""
        return self.over / self.seconds


def fill(client: PutClient, node: BenchNode, load: Load, messages: int) -> int:
    """At least so many messages, acknowledged, flushed and dispatched; how many there are."""
    put = 0
    while put < messages:
        requests = min(AT_ONCE, -(-(messages - put) // load.shape.records))
        client.send(load, requests)
        put += requests * load.shape.records
    node.await_dispatched()
    node.await_flushed()
    return put


def read_all(
    endpoint: str, use: Use, *, until: int, queue_id: int = 0, batch: int = BATCH_BYTES, **options: Any
) -> Pass:
    """Reads a queue from its first message to offset `until`, a batch after the other. Raises BenchFailed."""
    messages = size = used = 0
    with Consumer(endpoint, TOPIC, queues=[queue_id], max_bytes=batch, max_count=BATCH_COUNT, **options) as consumer:
        consumer.position()  # the link stands before the clock runs
        started = time.perf_counter()
        while consumer.position()[queue_id] < until:
            columns = consumer.poll_columns(SILENT_MS)
            if columns is None:
                raise BenchFailed("the serve process does not answer")
            messages += len(columns)
            size += len(columns.records)
            used += use(columns)
        seconds = time.perf_counter() - started
        over = consumer.position()[queue_id]
    return Pass(messages, size, seconds, used, over)
