"""The tasks of `lookup`: find messages of many keys. Arrow and numpy only, no Spark.

By a scan: keys of all messages are read, and of those found everything else. By the index: every task walks the chains
of one index file for all keys at once, and what the entries lead to is compared with the keys, since a hash is no key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from towline.arrow.columns import schema_of
from towline.arrow.decode import chosen
from towline.errors import MalformedFile
from towline.format.files.index_file import ENTRY, HEADER_SIZE, KEY_SEPARATOR, SLOT, decode_header, entry_at, file_size
from towline.format.java_hash import index_hashes
from towline.format.record.columns import Bytes, Integers, field
from towline.format.record.properties import KEY_SEPARATOR as BETWEEN_KEYS
from towline.format.record.record import MAGIC_V1, MAGIC_V2, SIZE_MIN
from towline.log.files.store_files import IndexShape
from towline.spark.errors import MessagesGone
from towline.spark.reading import Partition, Reading, read
from towline.spark.stores import StoreFacts

KEY, UNIQUE_KEY = "key", "uniqueKey"
LOOKED_AT: Final = ("keys", "uniqKey", "commitLogOffset")
SHOWN: Final = (
    *("topic", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp"),
    *("tags", "keys", "uniqKey", "reconsumeTimes", "size"),
)
_ASKED: Final = (pa.field("asked", pa.string(), nullable=False), pa.field("kind", pa.string(), nullable=False))
STEPS_MAX: Final = 4_096  # behind it a look at every entry of the file costs less
_WORD: Final = 0xFFFF_FFFF


@dataclass(frozen=True)
class Wanted:
    """The keys that are searched for, none twice; `body`: the messages' bodies, too."""

    keys: tuple[str, ...]
    body: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (*SHOWN, "body") if self.body else SHOWN

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*_ASKED, *schema_of(self.columns)])

    @cached_property
    def _values(self) -> pa.StringArray:
        return pa.array(self.keys, pa.string())

    def hits(self, batch: pa.RecordBatch) -> pa.Table:
        """Of messages with LOOKED_AT: (asked, kind, row), a row for each asked key that a message has."""
        unique = np.flatnonzero(self._among(batch["uniqKey"]))
        words = pc.split_pattern(batch["keys"], BETWEEN_KEYS)
        owners, texts = pc.list_parent_indices(words).to_numpy(zero_copy_only=False), words.flatten()
        plain = np.flatnonzero(self._among(texts))
        rows = np.concatenate([unique, owners[plain]]).astype(np.int64)
        kinds = pa.array([UNIQUE_KEY] * len(unique) + [KEY] * len(plain), pa.string())
        asked = pa.concat_arrays([batch["uniqKey"].take(pa.array(unique)), texts.take(pa.array(plain))])
        found = pa.table({"asked": asked, "kind": kinds, "row": rows})
        # A key that is named twice, or is the unique key as well, is one hit.
        once = found.group_by(["asked", "row"], use_threads=False).aggregate([("kind", "max")])
        return pa.table({"asked": once["asked"], "kind": once["kind_max"], "row": once["row"]})

    def found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of messages with `columns`: a row of `schema` for each hit."""
        hits = self.hits(batch)
        rows = batch.take(hits["row"].combine_chunks())
        asked, kind = (hits[name].combine_chunks() for name in ("asked", "kind"))
        return pa.RecordBatch.from_arrays([asked, kind, *rows.columns], schema=self.schema)

    def _among(self, texts: pa.StringArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.is_in(texts, value_set=self._values).to_numpy(
            zero_copy_only=False
        )
        return found


@dataclass(frozen=True)
class Scan:
    """Task n reads partition n; `reading` is of LOOKED_AT, `showing` of what is found."""

    wanted: Wanted
    facts: StoreFacts
    partitions: tuple[Partition, ...]
    reading: Reading
    showing: Reading

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        for batch in read(self.partitions[number], self.reading):
            rows = pc.unique(self.wanted.hits(batch)["row"])
            if len(rows):
                places = np.sort(batch["commitLogOffset"].take(rows).to_numpy())
                yield from messages(self.wanted, self.facts, places, self.showing)


@dataclass(frozen=True)
class IndexWalk:
    """Task n walks index file n. A message whose keys stand in two files is found by both tasks."""

    wanted: Wanted
    facts: StoreFacts
    files: tuple[str, ...]
    shape: IndexShape
    topics: tuple[str, ...]
    reading: Reading

    @cached_property
    def _hashes(self) -> Integers:
        """Of every key in every topic, each once."""
        texts = [f"{topic}{KEY_SEPARATOR}{key}" for topic in self.topics for key in self.wanted.keys]
        return np.unique(index_hashes(texts)).astype(np.int64)

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        path = Path(self.files[number])
        try:
            file = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        except FileNotFoundError:
            why = "cleaning deleted the index file with the messages that it leads to"
            raise MessagesGone(str(path), "the keys of an index file", why) from None
        places = walk(file, str(path), self.shape, self._hashes)
        yield from messages(self.wanted, self.facts, places, self.reading)


def walk(file: Bytes, path: str, shape: IndexShape, hashes: Integers) -> Integers:
    """Log offsets that an index file has for these hashes, in order, none twice.

    All chains go one step at a time; of those that are longer than STEPS_MAX the rest is found among all entries.
    Entries are below the header's count and point back, so a chain ends even where it is damaged. Raises
    MalformedFile.
    """
    expected = file_size(shape.slots, shape.indexes)
    if len(file) != expected:
        problem = f"{shape.slots} slots and {shape.indexes} entries make {expected} bytes, it has {len(file)}"
        raise MalformedFile(path, problem)
    slots = file[HEADER_SIZE : entry_at(shape.slots, 0)].view(SLOT)
    entries = file[entry_at(shape.slots, 0) :].view(ENTRY)
    count = min(decode_header(file[:HEADER_SIZE].tobytes()).index_count, shape.indexes)
    at = slots[hashes % shape.slots].astype(np.int64)
    found: list[Integers] = []
    going = np.flatnonzero((at > 0) & (at < count))
    for _ in range(STEPS_MAX):
        here = entries[at[going]]
        same = here["key_hash"] == hashes[going]
        found.append(here["physical_offset"][same].astype(np.int64))
        previous = here["previous"].astype(np.int64)
        goes_on = (previous > 0) & (previous < at[going])
        at[going] = previous
        going = going[goes_on]
        if not len(going):
            break
    else:
        same = np.isin(entries["key_hash"][1:count], hashes[going])
        found.append(entries["physical_offset"][1:count][same].astype(np.int64))
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def messages(wanted: Wanted, facts: StoreFacts, places: Integers, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Of the records at these log offsets, in order, those with a wanted key; what leads nowhere is skipped."""
    places = places[(places >= facts.log_min) & (places < facts.safe_end)]
    bases = places - places % facts.segment_size
    for base in np.unique(bases).tolist():
        log = facts.array(base)
        positions = places[bases == base] - base
        positions = positions[positions + SIZE_MIN <= len(log)]
        magic = field(log, positions, "magic") & _WORD
        stands = field(log, positions, "physical_offset") == base + positions
        stands &= (magic == MAGIC_V1) | (magic == MAGIC_V2)
        how = reading.decoding(facts.broker_name, force_property_crc=facts.force_property_crc)
        for batch in chosen(log, base, positions[stands], wanted.columns, reading.selection, **how):
            found = wanted.found(batch)
            if found.num_rows:
                yield found
