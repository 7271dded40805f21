"""Requests of a benchmark: so many records with bodies of so many bytes, encoded as the producer encodes them."""

import os
from dataclasses import dataclass
from typing import Final

from towline.client.link.keys import KeySource
from towline.client.send.bodies import Bodies
from towline.client.send.encoding import TopicEncoder
from towline.format.record.compression import Compressor
from towline.format.record.record import Host
from towline.format.wire.frames import Group, encode_put
from towline.limits import KIB, MESSAGE_BODY_MAX

TOPIC: Final = "bench"
TAG: Final = "red"
WINDOWS: Final = {1: 512, 64: 64}  # requests on their way, by records in each
WINDOW: Final = 16  # of larger requests
BODIES: Final = (100, KIB)
RECORDS: Final = (1, 64, 500)
LOOPBACK: Final = bytes((127, 0, 0, 1))
NEVER: Final = (1 << 62) - 1  # a deadline


@dataclass(frozen=True, slots=True)
class Shape:
    """A request: `records` records with bodies of `body` bytes."""

    records: int
    body: int

    @property
    def window(self) -> int:
        return WINDOWS.get(self.records, WINDOW)

    def __str__(self) -> str:
        return f"{self.records} x {self.body} B"


@dataclass(frozen=True, slots=True)
class Load:
    """A shape's records back to back, and the heads of a window's requests: only their ids differ."""

    shape: Shape
    records: bytes
    heads: list[bytes]

    @property
    def record_size(self) -> int:
        return len(self.records) // self.shape.records


def topic_encoder() -> TopicEncoder:
    """Of TOPIC, as a producer on this machine encodes."""
    return TopicEncoder(
        TOPIC,
        Host(LOOPBACK, 0),
        KeySource(LOOPBACK),
        Compressor(None),
        store_host_ipv6=False,
        body_size_max=MESSAGE_BODY_MAX,
    )


def load_of(shape: Shape) -> Load:
    """Random bodies, one tag, a unique key each; queue 0 of TOPIC."""
    encoder = topic_encoder()
    bodies = Bodies.of([os.urandom(shape.body) for _ in range(shape.records)])
    records = bytes(encoder.encode_bodies(bodies, 0, tags=TAG)[0])
    group = Group(TOPIC.encode(), 0, shape.records, len(records))
    # Twice the window, so that no two requests on their way share an id.
    return Load(shape, records, [encode_put(number, 0, NEVER, [group]) for number in range(2 * shape.window)])
