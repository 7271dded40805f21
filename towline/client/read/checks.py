"""Checks of received records (`check_crcs`), and the search for an undamaged copy of a damaged one.

A record whose body fails its CRC is requested by its log offset: first from the node that sent it, which checks its own
bytes and counts the damage (`towline master status`), then from the other nodes of the group, which have the same log.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np

from towline.client.columns import SIZES, Columns
from towline.client.errors import DamagedMessage
from towline.client.link.connection import own_facts
from towline.client.link.rpc import Caller
from towline.errors import MalformedRecord, TowlineError
from towline.format.record.record import LAYOUT
from towline.format.record.rules import Rule
from towline.format.wire.frames import Buffer

COPY_MS: Final = 2_000  # for one node to answer with its copy
_CRC: Final = LAYOUT.offset["body_crc"]
_BEHIND_CRC: Final = LAYOUT.offset["queue_id"]
_PLACE: Final = slice(LAYOUT.offset["physical_offset"], LAYOUT.offset["sys_flag"])


@dataclass(frozen=True, slots=True)
class Checked:
    """The records before the first damaged one, None where there are none; and the damage."""

    sound: Columns | None
    damage: DamagedMessage | None = None


def parsed(sizes: Buffer, records: Buffer, topic: str, queue_id: int, broker_name: str, first: int) -> Checked:
    """The records of an answer to a pull from offset `first` on, up to one whose own lengths do not add up.

    Raises MalformedRecord where the sizes do not fit the records.
    """
    try:
        return Checked(Columns(sizes, records, queue_id=queue_id, broker_name=broker_name))
    except MalformedRecord as error:
        if len(sizes) % SIZES.itemsize:
            raise
        ends = np.cumsum(np.frombuffer(sizes, dtype=SIZES).astype(np.int64))
        row = int(np.searchsorted(ends, error.at, side="right"))
        if row >= len(ends) or int(ends[-1]) != memoryview(records).nbytes:
            raise
        broken = bytes(records[error.at : int(ends[row])])
        sound = None
        if row:
            few = sizes[: row * SIZES.itemsize]
            sound = Columns(few, records[: error.at], queue_id=queue_id, broker_name=broker_name)
            first = int(sound.queue_offset[-1]) + 1
        place = int.from_bytes(broken[_PLACE], "big", signed=True)
        return Checked(sound, DamagedMessage(topic, queue_id, first, place, error.sentence, broker_name, broken))


def placed(found: Checked, topic: str, begins: int, following: int, first: int) -> Checked:
    """`found` up to a record that is none of entries [begins, following), in their order: a segment file with the bytes
    of another one holds messages whose CRCs are right. `first` is the first that is wanted still."""
    columns = found.sound
    if columns is None:
        return found
    offsets = columns.queue_offset
    wrong = (offsets < begins) | (offsets >= following)
    wrong[1:] |= offsets[1:] <= offsets[:-1]
    if not np.count_nonzero(wrong):
        return found
    row = int(wrong.argmax())
    due = max(first, int(offsets[row - 1]) + 1 if row else begins)
    problem = f"another message stands in its place, whose QUEUEOFFSET is {offsets[row]}"
    record = bytes(columns.records[columns.start[row] : columns.start[row] + columns.size[row]])
    place = int(columns.physical_offset[row])
    damage = DamagedMessage(topic, columns.queue_id, due, place, problem, columns.broker_name, record)
    return Checked(columns.select(np.arange(len(columns)) < row) if row else None, damage)


class Checks:
    """The CRC check of a reader. `nodes` names the endpoints of the group's nodes. Any thread may use it."""

    def __init__(self, nodes: Callable[[], Sequence[str]], name: str, cluster: str) -> None:
        self._nodes = nodes
        self._facts = own_facts("consumer", name, cluster)

    def check(self, columns: Columns, topic: str) -> Checked:
        """The records, with damaged bodies replaced by an undamaged copy from another node."""
        rows = columns.damaged()
        if not rows:
            return Checked(columns)
        data = bytearray(columns.records)
        for row in rows:
            start, end = int(columns.start[row]), int(columns.start[row] + columns.size[row])
            troubles: list[str] = []
            copy = self._copy(columns, row, troubles)
            if copy is None:
                before = np.arange(len(columns)) < row
                sound = columns.with_records(data).select(before) if row else None
                return Checked(sound, _damage(columns, row, topic, troubles))
            data[start:end] = copy
        return Checked(columns.with_records(data))

    def _copy(self, columns: Columns, row: int, troubles: list[str]) -> bytes | None:
        """The record as some node has it whole. `troubles` take why one has not."""
        start, end = int(columns.start[row]), int(columns.start[row] + columns.size[row])
        body, ours = int(columns.body_start[row]) - start, bytes(columns.records[start:end])
        body_end = body + int(columns.body_size[row])
        for endpoint, theirs in self._copies(int(columns.physical_offset[row]), troubles):
            if _without_body(theirs, body, body_end) == _without_body(ours, body, body_end):
                return theirs
            troubles.append(f"{endpoint}: another message stands there")
        return None

    def _copies(self, place: int, troubles: list[str]) -> Iterator[tuple[str, bytes]]:
        for endpoint in self._nodes():
            try:
                with closing(Caller(endpoint, self._facts)) as caller:
                    found = caller.ask("query_offset", {"offset": place}, COPY_MS).columns
            except TowlineError as error:
                troubles.append(f"{endpoint}: {error.describe()}")
                continue
            if len(found) == 1 and not found.damaged():
                yield endpoint, bytes(found.records)
            else:
                troubles.append(f"{endpoint}: what it sent is damaged too")


def _without_body(record: bytes, body: int, body_end: int) -> tuple[int, bytes, bytes, bytes]:
    """All but a record's body and BODYCRC: where it is equal, two records are copies of one message."""
    return len(record), record[:_CRC], record[_BEHIND_CRC:body], record[body_end:]


def _damage(columns: Columns, row: int, topic: str, troubles: list[str]) -> DamagedMessage:
    start, end = int(columns.start[row]), int(columns.start[row] + columns.size[row])
    offset, place = int(columns.queue_offset[row]), int(columns.physical_offset[row])
    if row:
        offset = max(offset, int(columns.queue_offset[row - 1]) + 1)  # its number may be damaged too
    problem = "; ".join([f"{Rule.BODY_CRC.sentence}, and nobody has it whole", *troubles])
    record = bytes(columns.records[start:end])
    return DamagedMessage(topic, columns.queue_id, offset, place, problem, columns.broker_name, record)
