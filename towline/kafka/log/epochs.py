"""The leader epochs of a partition: which leader wrote what. Kept by `leader-epoch-checkpoint`, and in batches."""

from collections.abc import Iterable, Sequence

import numpy as np

from towline.kafka.errors import MalformedBytes, Rule
from towline.kafka.format import batch
from towline.kafka.format.checkpoints import LeaderEpoch

from .scan import Batches


def added(epochs: Sequence[LeaderEpoch], batches: Batches) -> list[LeaderEpoch]:
    """The list with epochs that these batches begin; those below the last one begin none."""
    found = list(epochs)
    known = found[-1].number if found else batch.NONE
    numbers = batches["leader_epoch"]
    changes = np.concatenate([[True], np.diff(numbers) != 0])[: len(numbers)]
    for row in np.flatnonzero(changes):
        number = int(numbers[row])
        if number > known:
            found.append(LeaderEpoch(number, int(batches["base_offset"][row])))
            known = number
    return found


def merged(kept: Sequence[LeaderEpoch], seen: Iterable[LeaderEpoch]) -> list[LeaderEpoch]:
    """A checkpoint's list with the epochs that the log has behind it."""
    last = kept[-1].number if kept else batch.NONE
    return [*kept, *(epoch for epoch in seen if epoch.number > last)]


def cut(epochs: Iterable[LeaderEpoch], end: int) -> list[LeaderEpoch]:
    """Of a log that ends at `end`: an epoch that would begin there or behind it has gone."""
    return [epoch for epoch in epochs if epoch.start < end]


def begun(epochs: Sequence[LeaderEpoch], start: int) -> list[LeaderEpoch]:
    """Of a log that begins at `start`: the epoch there begins there."""
    later = [epoch for epoch in epochs if epoch.start > start]
    before = [epoch for epoch in epochs if epoch.start <= start]
    return [LeaderEpoch(before[-1].number, start), *later] if before else later


def check(epochs: Sequence[LeaderEpoch], batches: Batches) -> MalformedBytes | None:
    """The first batch whose epoch falls, or is not the one that the checkpoint has for its offset.

    A batch whose epoch is -1 has none. The checkpoint begins where the log does, which may be inside a segment: what
    stands before is not compared with it, and nothing without any epoch.
    """
    numbers = batches["leader_epoch"].astype(np.int64)
    known = numbers >= 0
    greatest = np.maximum.accumulate(np.where(known, numbers, batch.NONE)) if len(numbers) else numbers
    if len(odd := np.flatnonzero(known & (numbers < greatest))):
        row = batches[odd[0]]
        said = f"{row['leader_epoch']} comes after {greatest[odd[0]]}"
        return MalformedBytes(Rule.EPOCHS_FALL, int(row["position"]), said)
    if not epochs:
        return None
    starts = np.array([epoch.start for epoch in epochs])
    named = np.array([batch.NONE, *(epoch.number for epoch in epochs)])
    wanted = named[np.searchsorted(starts, batches["base_offset"], "right")]
    if len(odd := np.flatnonzero(known & (wanted >= 0) & (numbers != wanted))):
        row = batches[odd[0]]
        said = f"{row['leader_epoch']} at offset {row['base_offset']}, where the checkpoint has {wanted[odd[0]]}"
        return MalformedBytes(Rule.EPOCH_UNKNOWN, int(row["position"]), said)
    return None
