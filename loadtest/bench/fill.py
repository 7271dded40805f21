"""Fills a running node's store fast with a real one's content: several topics and queues, tags, keys, bodies at random.

Requests are encoded beforehand and sent again and again, so that putting costs the bench no time of its own.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Final

from towline.client.link.keys import KeySource
from towline.client.send.bodies import Bodies
from towline.client.send.encoding import TopicEncoder
from towline.format.record.compression import Compressor
from towline.format.record.record import Host
from towline.format.wire.frames import Group, encode_put
from towline.limits import MESSAGE_BODY_MAX
from towline.link.context import close_context, new_context
from towline.runtime.positions import Position, Positions

from .client import PutClient
from .shapes import LOOPBACK, NEVER, TAG, Load, Shape

TOPICS: Final = ("orders", "payments", "clicks", "mails")
QUEUES: Final = 8  # of each topic
SHAPE: Final = Shape(500, 1024)
SMALL: Final = Shape(1, 100)  # what is put to see that the node acknowledges again
STEP_S: Final = 0.05
REQUESTS_AT_ONCE: Final = 16
GROUPS_AT_ONCE: Final = 1000


def loads_of(shape: Shape, topics: tuple[str, ...], queues: int) -> list[Load]:
    """A load for each queue of each topic, their keys all different."""
    made = []
    for topic, queue_id, records in records_of(shape, topics, queues):
        group = Group(topic.encode(), queue_id, shape.records, len(records))
        heads = [encode_put(number, 0, NEVER, [group]) for number in range(2 * shape.window)]
        made.append(Load(shape, records, heads))
    return made


def records_of(shape: Shape, topics: tuple[str, ...], queues: int) -> Iterator[tuple[str, int, bytes]]:
    """Topic, queue and records of a shape for each queue of each topic, their keys all different."""
    keys = KeySource(LOOPBACK)
    for topic in topics:
        encoder = TopicEncoder(
            topic,
            Host(LOOPBACK, 0),
            keys,
            Compressor(None),
            store_host_ipv6=False,
            body_size_max=MESSAGE_BODY_MAX,
        )
        for queue_id in range(queues):
            bodies = Bodies.of([os.urandom(shape.body) for _ in range(shape.records)])
            yield topic, queue_id, bytes(encoder.encode_bodies(bodies, queue_id, tags=TAG)[0])


class Filler:
    """A producer at wire level, with the loads it sends in turn."""

    def __init__(self) -> None:
        self._context = new_context()
        self._loads = loads_of(SHAPE, TOPICS, QUEUES)
        self._turns: Iterator[Load] = cycle(self._loads)
        self._small = loads_of(SMALL, TOPICS[:1], 1)[0]

    def close(self) -> None:
        close_context(self._context)

    @contextmanager
    def linked(self, endpoint: str) -> Iterator[PutClient]:
        client = PutClient(self._context, endpoint)
        try:
            yield client
        finally:
            client.close()

    def make_topics(self, client: PutClient) -> None:
        for topic in TOPICS:
            client.make_topic(topic, QUEUES)

    def fill(self, client: PutClient, positions: Positions, size: int) -> None:
        """Until the log has `size` bytes."""
        while positions.get(Position.APPENDED) < size:
            client.send(next(self._turns), REQUESTS_AT_ONCE)

    def fill_at(self, client: PutClient, positions: Positions, rate: int, seconds: float) -> None:
        """At `rate` bytes a second for so long."""
        started, start = time.monotonic(), positions.get(Position.APPENDED)
        while (passed := time.monotonic() - started) < seconds:
            if positions.get(Position.APPENDED) - start < passed * rate:
                client.send(next(self._turns), 1)
            else:
                select.select([], [], [], STEP_S)

    def put_one(self, client: PutClient) -> None:
        """One message, acknowledged."""
        client.send(self._small, 1)

    def fill_queues(self, client: PutClient, topics: tuple[str, ...], queues: int) -> None:
        """One message into each queue of each topic."""
        for topic in topics:
            client.make_topic(topic, queues)
            each = [records for _, _, records in records_of(SMALL, (topic,), queues)]
            for first in range(0, queues, GROUPS_AT_ONCE):
                some = range(first, min(first + GROUPS_AT_ONCE, queues))
                groups = [Group(topic.encode(), queue, 1, len(each[queue])) for queue in some]
                records = b"".join(each[queue] for queue in some)
                shape = Shape(len(groups), SMALL.body)
                client.send(Load(shape, records, [encode_put(1, 0, NEVER, groups)]), 1)
