"""Measures decoding on one core: all columns, those of the head, those of a queue's rebuild.

Beside them a decoder that takes record by record and gives all columns. Everything takes its turn in each round, over
segments that are mapped and in the page cache; seconds are of the process's CPU, since nothing here runs in threads.
Kernels are loaded before, as they are in a worker that has read a segment.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from towline.arrow.columns import COLUMNS
from towline.arrow.decode import batches
from towline.arrow.kernels import LONG_READ, expect_read
from towline.arrow.selection import Selection
from towline.errors import BenchFailed
from towline.format.java_hash import string_hash
from towline.format.record.columns import Bytes
from towline.format.record.properties import KEYS, NAME_END, PAIR_END, TAGS, UNIQ_KEY
from towline.format.record.record import LAYOUT, Host
from towline.log.files.segment_files import segment_name
from towline.places import Store

from .made_log import MadeLog

NARROW: Final = tuple(
    name for name in COLUMNS if name not in ("body", "properties", "tags", "keys", "uniqKey", "tagsCode")
)
QUEUE: Final = ("topic", "queueId", "queueOffset", "commitLogOffset", "size", "sysFlag", "storeTimestamp", "tagsCode")
EVERYTHING: Final = Selection(system=True, halves=True)
PLAIN_RECORDS: Final = 200_000

Note = Callable[[str], None]


def measure(log: MadeLog, rounds: int, note: Note) -> dict[str, Any]:
    """Records and bytes a second, and how many times as fast as record by record; medians of the rounds."""
    arrays = _mapped(log)
    expect_read(LONG_READ)
    for _ in batches(arrays[0], 0, 0, len(arrays[0]), COLUMNS):
        pass  # the allocator has its memory, and Arrow its functions
    plain_bytes = arrays[0][: min(len(arrays[0]), PLAIN_RECORDS * log.record_size, log.end)].tobytes()
    taken: dict[str, list[float]] = {name: [] for name in ("all", "narrow", "queue", "plain")}
    for number in range(rounds):
        note(f"decoding, round {number + 1} of {rounds}")
        taken["plain"].append(_plain_seconds(plain_bytes))
        taken["all"].append(_seconds(log, arrays, COLUMNS, Selection()))
        taken["narrow"].append(_seconds(log, arrays, NARROW, Selection()))
        taken["queue"].append(_seconds(log, arrays, QUEUE, EVERYTHING))
    rates = {name: [1 / seconds for seconds in each] for name, each in taken.items()}
    return {
        "all_per_s": median(rates["all"]),
        "narrow_per_s": median(rates["narrow"]),
        "queue_per_s": median(rates["queue"]),
        "plain_per_s": median(rates["plain"]),
        "all_of_plain": _ratio(taken["plain"], taken["all"]),
        "narrow_of_plain": _ratio(taken["plain"], taken["narrow"]),
        "all_gb_s": median(rates["all"]) * log.record_size / 1e9,
        "queue_gb_s": median(rates["queue"]) * log.record_size / 1e9,
    }


def _ratio(slow: list[float], fast: list[float]) -> float:
    return median(one / other for one, other in zip(slow, fast, strict=True))


def _mapped(log: MadeLog) -> list[Bytes]:
    """The segments, read once so that they are in the page cache, the last one cut at the log's end."""
    arrays = []
    for base in range(0, log.end, log.segment_size):
        array = np.memmap(Store(log.root).commitlog / segment_name(base), dtype=np.uint8, mode="r")
        array.max()
        arrays.append(np.asarray(array)[: log.end - base])
    return arrays


def _seconds(log: MadeLog, arrays: list[Bytes], columns: Sequence[str], selection: Selection) -> float:
    """For each record."""
    count = 0
    started = time.process_time()
    for number, array in enumerate(arrays):
        for batch in batches(array, number * log.segment_size, 0, len(array), columns, selection):
            count += batch.num_rows
    taken = time.process_time() - started
    if count != log.total:
        raise BenchFailed(f"{count} records were decoded, the log holds {log.total}")
    return taken / count


def _plain_seconds(data: bytes) -> float:
    """For each record, decoded by `plain`."""
    started = time.process_time()
    count = sum(1 for _ in plain(data))
    return (time.process_time() - started) / count


def plain(data: bytes) -> Iterator[tuple[Any, ...]]:
    """All columns of every record (of version 1, with IPv4 hosts), record by record; hosts and tags are made once."""
    texts: dict[tuple[bytes, int], str] = {}
    codes: dict[str | None, int] = {None: 0}
    at, unpack, size = 0, LAYOUT.unpack_from, LAYOUT.size
    while at + size <= len(data):
        head = unpack(data, at)
        body_at = at + size
        topic_at = body_at + head[-1] + 1
        properties_at = topic_at + data[topic_at - 1] + 2
        end = at + head[0]
        if end > len(data):
            break
        pairs = {}
        for item in data[properties_at:end].decode("utf-8", "replace").split(PAIR_END):
            name, _, value = item.partition(NAME_END)
            if value:
                pairs[name] = value
        born, store = (head[9], head[10]), (head[12], head[13])
        for host in (born, store):
            if host not in texts:
                texts[host] = str(Host(*host))
        tags = pairs.get(TAGS)
        if tags not in codes:
            codes[tags] = string_hash(tags or "")
        topic = data[topic_at : properties_at - 2].decode()
        body = data[body_at : topic_at - 1]
        yield (
            *(topic, head[3], head[5], tags, pairs.get(KEYS), pairs.get(UNIQ_KEY), body, pairs, head[4]),
            *(head[8] * 1000, texts[born], head[11] * 1000, texts[store], "", head[6], head[0], head[7]),
            *(head[2], head[14], head[15], codes[tags]),
        )
        at = end
