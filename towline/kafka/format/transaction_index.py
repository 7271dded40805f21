"""An entry of `.txnindex`: a transaction that was aborted, in the segment that has the batch which aborts it.

    at  len  field
     0  2  version            0
     2  8  producer_id        whose transaction it was
    10  8  first_offset       of its first record
    18  8  last_offset        of the record that aborts it
    26  8  last_stable_offset when it was aborted: what readers of what is committed had seen of others up to then

Entries stand in the order of their last offsets. A segment without an aborted transaction has no such file.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from towline.format.layout import Field, Layout
from towline.kafka.errors import MalformedBytes, Rule

LAYOUT: Final = Layout(
    Field("version", "h", "0"),
    Field("producer_id", "q", "whose transaction it was"),
    Field("first_offset", "q", "of its first record"),
    Field("last_offset", "q", "of the record that aborts it"),
    Field(
        "last_stable_offset",
        "q",
        "when it was aborted: what readers of what is committed had seen of others up to then",
    ),
)
SIZE: Final = LAYOUT.size
VERSION: Final = 0
assert SIZE == 34, "Kafka's entries have 34 bytes"


class Aborted(NamedTuple):
    """An aborted transaction; offsets are inclusive but the last stable one."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(entries: Iterable[Aborted]) -> bytes:
    """34 bytes for each."""
    return b"".join(LAYOUT.pack(VERSION, *entry) for entry in entries)


def decode(data: bytes) -> list[Aborted]:
    """Raises MalformedBytes where it is no whole number of entries, has another version, or does not rise."""
    found: list[Aborted] = []
    for at in range(0, len(data), SIZE):
        if at + SIZE > len(data):
            raise MalformedBytes(Rule.INDEX_SIZE, at, f"{len(data) - at} bytes stand behind the last entry of {SIZE}")
        version, *rest = LAYOUT.unpack_from(data, at)
        entry = Aborted(*rest)
        if version != VERSION:
            raise MalformedBytes(Rule.VERSION, at, f"an entry of version {version}")
        if found and entry.last_offset <= found[-1].last_offset:
            raise MalformedBytes(Rule.INDEX_ORDER, at, f"{entry.last_offset} comes after {found[-1].last_offset}")
        if entry.first_offset > entry.last_offset:
            raise MalformedBytes(
                Rule.TRANSACTION, at, f"it begins at {entry.first_offset} and ends at {entry.last_offset}"
            )
        found.append(entry)
    return found
