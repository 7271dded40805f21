"""What a log says of its producers, batch by batch: their sequences, open transactions, and those that were aborted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from towline.kafka.errors import MalformedBytes
from towline.kafka.format import batch, control
from towline.kafka.format.batch import NONE
from towline.kafka.format.control import ControlType
from towline.kafka.format.producer_snapshot import Producer
from towline.kafka.format.records import Bytes
from towline.kafka.format.transaction_index import Aborted

from .reading import decode
from .scan import Batches


@dataclass(slots=True)
class _State:
    epoch: int = NONE
    last_sequence: int = NONE
    last_offset: int = NONE
    offset_delta: int = 0
    timestamp: int = NONE
    coordinator_epoch: int = NONE
    open_since: int = NONE

    def enter(self, epoch: int) -> None:
        """A new epoch begins its sequences anew."""
        if epoch != self.epoch:
            self.epoch, self.last_sequence, self.last_offset, self.offset_delta = epoch, NONE, NONE, 0


class Producers:
    """The producers of one partition up to an offset."""

    def __init__(self, known: Iterable[Producer] = ()) -> None:
        self._states = {one.producer_id: _State(*one[1:]) for one in known}

    def snapshot(self) -> list[Producer]:
        """By their numbers."""
        return [
            Producer(
                number,
                state.epoch,
                state.last_sequence,
                state.last_offset,
                state.offset_delta,
                state.timestamp,
                state.coordinator_epoch,
                state.open_since,
            )
            for number, state in sorted(self._states.items(), key=lambda pair: pair[0])
        ]

    def first_open(self, *, but: int = NONE) -> int | None:
        """Where the oldest open transaction begins, that of producer `but` aside."""
        found = (state.open_since for number, state in self._states.items() if number != but and state.open_since >= 0)
        return min(found, default=None)

    def add(self, data: Bytes, batches: Batches) -> Iterator[Aborted]:
        """Takes batches of a segment in their order; yields each transaction that they abort.

        Raises MalformedBytes where a control batch has no record that ends a transaction.
        """
        ours = batches[(batches["producer_id"] >= 0) & (batches["magic"] == batch.MAGIC)]
        for row in range(len(ours)):
            one = ours[row]
            if int(one["attributes"]) & batch.CONTROL:
                aborted = self._end(data, ours[row : row + 1])
                if aborted is not None:
                    yield aborted
            else:
                self._append(one)

    def _append(self, one: np.void) -> None:
        state = self._states.setdefault(int(one["producer_id"]), _State())
        state.enter(int(one["producer_epoch"]))
        first, last = int(one["base_offset"]), int(one["last_offset"])
        sequence = int(one["base_sequence"])
        state.last_sequence = sequence if sequence < 0 else batch.added(sequence, last - first)
        state.last_offset, state.offset_delta, state.timestamp = last, last - first, int(one["max_timestamp"])
        if int(one["attributes"]) & batch.TRANSACTIONAL and state.open_since < 0:
            state.open_since = first

    def _end(self, data: Bytes, row: Batches) -> Aborted | None:
        """What a control batch ends; an empty one, which compaction left, ends nothing."""
        if not row["record_count"][0]:
            return None
        records = decode(data, row).records
        try:
            kind = control.decode_key(records.key.at(0))
            if kind not in control.ENDS:
                return None
            coordinator_epoch = control.decode_value(records.value.at(0))
        except MalformedBytes as error:
            raise MalformedBytes(error.rule, int(row["position"][0]), error.found) from None
        number, offset = int(row["producer_id"][0]), int(row["base_offset"][0])
        state = self._states.setdefault(number, _State())
        first, state.open_since = state.open_since, NONE
        state.enter(int(row["producer_epoch"][0]))
        state.coordinator_epoch, state.timestamp = coordinator_epoch, int(records.timestamp[0])
        if first < 0 or kind != ControlType.ABORT:
            return None
        other = self.first_open(but=number)
        return Aborted(number, first, offset, offset + 1 if other is None else other)
