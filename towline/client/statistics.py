"""What a producer did, and how long requests took."""

import random
from dataclasses import dataclass, field
from typing import Final

import numpy as np

SAMPLES_MAX: Final = 16_384
NS_PER_MS: Final = 1e6


class Reservoir:
    """A fair sample of any number of durations (ns) in bounded memory."""

    def __init__(self, size: int = SAMPLES_MAX, seed: int = 0) -> None:
        self._samples = np.zeros(size, dtype=np.int64)
        self._random = random.Random(seed)
        self.count = 0

    def add(self, duration_ns: int) -> None:
        at = self.count
        self.count += 1
        if at >= len(self._samples):
            at = self._random.randrange(self.count)
            if at >= len(self._samples):
                return
        self._samples[at] = duration_ns

    def percentile_ms(self, percent: float) -> float:
        """The duration that `percent` of the sample stay below or reach, in ms; 0 without a sample."""
        taken = self._samples[: min(self.count, len(self._samples))]
        return float(np.percentile(taken, percent)) / NS_PER_MS if len(taken) else 0.0


@dataclass(slots=True)
class Statistics:
    """Counts of messages unless the name says otherwise. Written by the producer's I/O thread; read by anyone."""

    acknowledged: int = 0
    unpromised: int = 0  # stored, but FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE
    failed: int = 0
    retried: int = 0  # sent once more, after a refusal or a lost link
    requests: int = 0
    links_lost: int = 0
    bytes_acknowledged: int = 0
    latency: Reservoir = field(default_factory=Reservoir)  # of each answered request, from its send to its answer
