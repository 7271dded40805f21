"""Counts and request latencies of a producer."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
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

    @classmethod
    def of(cls, parts: "Sequence[Reservoir]") -> "Reservoir":
        """One sample of several: of each as many durations as its part of all."""
        whole, total = cls(), sum(part.count for part in parts)
        size, at = len(whole._samples), 0
        for part in parts:
            taken = part._samples[: min(part.count, size)]
            share = len(taken) if total <= size else min(len(taken), size * part.count // total)
            whole._samples[at : at + share] = taken[:share]
            at += share
        whole.count = total if at == size else at
        return whole

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
    through_ring: int = 0  # of these, through shared memory
    links_lost: int = 0
    bytes_acknowledged: int = 0
    latency: Reservoir = field(default_factory=Reservoir)  # of each answered request, from its send to its answer

    @classmethod
    def sum(cls, parts: "Sequence[Statistics]") -> "Statistics":
        names = [each.name for each in fields(cls) if each.name != "latency"]
        totals = {name: sum(getattr(part, name) for part in parts) for name in names}
        return cls(**totals, latency=Reservoir.of([part.latency for part in parts]))
