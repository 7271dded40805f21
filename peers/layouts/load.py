"""What arrives, alike for every layout: batches for queues that a seed draws, in groups acknowledged together."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from peers.plan import body_of
from towline.client.send.bodies import Bodies
from towline.kafka.format.building import build
from towline.kafka.format.records import Records
from towline.limits import GIB, KIB
from towline.loadtest.bench.shapes import TAG, topic_encoder

BATCHES: Final = 64  # different ones, sent again and again to whichever queue is drawn
UNIQUE: Final = "UNIQ_KEY"
_UNIQUE_SIZE: Final = 32

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`together` messages with bodies of `body` bytes are a batch, for one queue; `group` batches arrive at once.

    All that arrives fits one CommitLog segment of `segment` bytes.
    """

    queues: int
    body: int = KIB
    together: int = 8
    group: int = 32
    segment: int = GIB
    seed: int = 1

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    def first(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Queues, and which batch each of them gets: groups in which every queue has its first one."""
        for start in range(0, self.queues, self.group):
            queues = np.arange(start, min(start + self.group, self.queues))
            yield queues, queues % BATCHES

    def then(self) -> Iterator[tuple[Numbers, Numbers]]:
        """The same without an end: whole groups, for queues at random."""
        drawn = np.random.default_rng(self.seed)
        while True:
            yield drawn.integers(self.queues, size=self.group), drawn.integers(BATCHES, size=self.group)


def bodies_of(load: Load) -> list[list[bytes]]:
    """Of each batch, letters."""
    return [[body_of(load.body, at * load.together + one) for one in range(load.together)] for at in range(BATCHES)]


def records_of(load: Load) -> Bytes:
    """A row for each batch: records of queue 0 as our producer encodes them, with TAGS and UNIQ_KEY."""
    encoder = topic_encoder()
    encoded = (encoder.encode_bodies(Bodies.of(bodies), 0, tags=TAG)[0] for bodies in bodies_of(load))
    return np.stack([np.frombuffer(bytes(each), np.uint8) for each in encoded])


def batches_of(load: Load) -> Bytes:
    """A row for each batch: one of Kafka's from offset 0 on, of the same bodies, with headers of the same names."""
    headers = [[("TAGS", TAG.encode()), (UNIQUE, b"0" * _UNIQUE_SIZE)]] * load.together
    offsets, times = range(load.together), [0] * load.together
    keys: list[bytes | None] = [None] * load.together
    return np.stack([build(Records.of(list(offsets), times, keys, bodies, headers)) for bodies in bodies_of(load)])
