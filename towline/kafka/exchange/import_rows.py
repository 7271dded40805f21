"""The records of a partition that become messages, and a count of those that do not."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from towline.kafka.log.partition import Transactions
from towline.kafka.log.scan import is_control

from .encoding import Rows
from .import_plan import Choices, Counted, Part


@dataclass(frozen=True, slots=True)
class Piece:
    """`size`: bytes of the partition's log that it was read from."""

    rows: Rows
    dropped: Counted
    size: int


def read_pieces(part: Part, choices: Choices, start: int) -> Iterator[Piece]:
    """From offset `start` on. Raises MalformedLog, RecordsTooLarge."""
    partition = part.partition()
    transactions = partition.transactions() if part.transactional else Transactions([], part.end)
    for columns in partition.read(start, part.end):
        control = is_control(columns.batches)[columns.row]
        committed = transactions.are_committed(columns)
        kept = committed.copy()
        if choices.tombstones == "drop":
            kept &= columns.records.value.sizes >= 0
        dropped = Counted(
            control=int(control.sum()),
            aborted=int((~committed & ~control).sum()),
            tombstones=int((committed & ~kept).sum()),
        )
        yield Piece(Rows.of(columns, np.asarray(kept)), dropped, int(columns.batches["size"].sum()))
