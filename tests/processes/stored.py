"""What a store holds, read from its files alone: records by queue, queues and index against the log, the log itself."""

import random
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from towline.client.message import ReceivedMessage
from towline.format.files.consume_queue import ENTRY
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import is_address, opened
from towline.log.queues.index_service import IndexService
from towline.places import Store

from .load import Load
from .nodes import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, Pair

SAMPLE: Final = 60  # keys that are looked up
FAR: Final = 1 << 62
Queue = tuple[str, int]


class Stored:
    """A store whose log ends at `end`. Nothing may be appended meanwhile."""

    def __init__(self, store: Store, end: int, segment: int = SEGMENT, queue_file: int = QUEUE_FILE) -> None:
        self.store, self.end, self._segment = store, end, segment
        self.log = CommitLogReader(store.commitlog, segment)
        self.log.load()
        self.queues = ConsumeQueueFiles(store.consumequeue, queue_file, 64)
        self.units = opened(store.consumequeue_ext, 64)

    def entries(self, topic: str, queue_id: int) -> np.ndarray:
        """All entries of a queue, over all its files, as they would be without units."""
        parts, start = [], 0
        while len(part := self.queues.read(topic, queue_id, start, QUEUE_FILE)):
            parts.append(part)
            start += len(part)
        entries = np.concatenate(parts) if parts else np.empty(0, dtype=ENTRY)
        addresses = entries["tags_code"].astype(np.int64)
        rows = np.flatnonzero(is_address(addresses))
        if self.units is not None and len(rows):
            found = self.units.read(topic, queue_id, addresses[rows], 0)
            entries["tags_code"][rows] = np.where(found.found, found.tags_codes, addresses[rows])
        return entries

    def read(self, topic: str) -> Counter[tuple[str, int]]:
        """(unique key, CRC of the body as it is stored) of every message of a topic, found through its queues."""
        found: Counter[tuple[str, int]] = Counter()
        for name, queue_id in self.queues.list_queues():
            if name != topic:
                continue
            for number, entry in enumerate(self.entries(name, queue_id)):
                record = self.log.record(int(entry["physical_offset"]), self.end)
                message = ReceivedMessage(record)
                assert (len(record), message.topic) == (int(entry["record_size"]), topic)
                assert (message.queue_id, message.queue_offset) == (queue_id, number)
                assert message.physical_offset == int(entry["physical_offset"])
                found[message.unique_key or "", zlib.crc32(message.body) & 0x7FFF_FFFF] += 1
        return found

    def check_queues(self, *, more: bool = False) -> int:
        """The queues are what a fresh derivation from the log gives, entry for entry. How many entries.

        `more`: queues and entries of what the log holds behind the end may be there too.
        """
        derived = self._derive()
        assert more or sorted(derived) == self.queues.list_queues()
        for (topic, queue_id), rows in derived.items():
            found = self.entries(topic, queue_id)[: len(rows) if more else None]
            assert [number for number, *_ in rows] == list(range(len(rows))), f"{topic}/{queue_id} has a gap"
            assert len(found) == len(rows), f"{topic}/{queue_id} has {len(found)} entries, the log {len(rows)}"
            wanted = np.array([row[1:] for row in rows], dtype=ENTRY)
            assert (found == wanted).all(), f"{topic}/{queue_id} is not what the log says"
        return sum(map(len, derived.values()))

    def check_index(self, load: Load) -> None:
        """A sample of unique keys and keys is found; each chain ends."""
        index = IndexService(self.store.index, SLOTS, INDEXES)
        index.load()
        numbers = random.Random(load.seed).sample(range(load.count), SAMPLE)
        acked = set(load.acked)
        for number in numbers:
            if load.keys[number] not in acked:
                continue
            for key in (load.keys[number], f"{load.topic}-{number // 2}"):
                offsets = index.query(load.topic, key, 0, FAR)
                hits = [ReceivedMessage(self.log.record(offset, self.end)).unique_key for offset in offsets]
                assert load.keys[number] in hits, f"{key} leads to {hits}"
                assert len(set(offsets)) == len(offsets), f"{key} leads to a record twice: {offsets}"
        index.close()

    def check_zeros_behind(self) -> None:
        """Nothing stands behind the log's end (H1)."""
        for base in self.log.queue.bases:
            if base + self._segment > self.end:
                assert not self.log.array(base)[max(0, self.end - base) :].any(), f"stale bytes behind {self.end}"

    def close(self) -> None:
        self.queues.close()
        if self.units is not None:
            self.units.close()
        assert self.log.close(), "somebody holds bytes of the log"

    def _derive(self) -> dict[Queue, list[tuple[int, int, int, int]]]:
        """Queue -> (queue offset, physical offset, size, tags code), in the order of the log."""
        directory = QueueDirectory()
        scan = DispatchScan(self.log, directory)
        derived: dict[Queue, list[tuple[int, int, int, int]]] = defaultdict(list)
        at = self.log.queue.min_offset
        while at < self.end:
            batch = scan.read(at, self.end)
            assert batch.end > at or (batch.rule == 0 and not batch.waits), f"{batch.rule.name} at {at} of {self.end}"
            for row in batch.rows[["queue_index", "queue_offset", "phy", "size", "tags_code"]].tolist():
                queue = directory.topic(row[0]).decode(), directory.queue_id(row[0])
                derived[queue].append(row[1:])
            at = batch.end
        return derived


def check_load(stored: Stored, load: Load) -> int:
    """Every acknowledged message is there exactly as it was sent, nothing that was never sent. Returns the doubles."""
    found = stored.read(load.topic)
    strangers = [pair for pair in found if load.sent.get(pair[0]) != pair[1]]
    assert not strangers, f"never sent like this: {strangers[:3]}"
    lost = [key for key in load.acked if (key, load.sent[key]) not in found]
    assert not lost, f"lost {len(lost)} of {len(load.acked)} acknowledged messages, the first {lost[:3]}"
    return sum(found.values()) - len(found)


def check_same_log(ours: Path, theirs: Path, end: int, low: int = 0) -> None:
    """Byte for byte over what both hold (H1), from the segment `low` on."""
    names = sorted(path.name for path in ours.iterdir() if low <= int(path.name) < end)
    assert names == sorted(path.name for path in theirs.iterdir() if low <= int(path.name) < end)
    for name in names:
        size = min(SEGMENT, end - int(name))
        first, second = (np.memmap(side / name, dtype=np.uint8, mode="r")[:size] for side in (ours, theirs))
        assert np.array_equal(first, second), f"{name} differs at {int(name) + int((first != second).argmax())}"


@dataclass(frozen=True)
class Counted:
    """Of distinct unique keys; nothing was lost."""

    acked: int
    doubled: int
    outcomes: Counter[str]

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.items())
        return f"acked {self.acked}, lost 0, doubled {self.doubled} ({outcomes})"


def check_pair(pair: Pair, load: Load) -> Counted:
    """Everything that must hold after a bad day."""
    end = pair.await_caught_up()
    doubled = set()
    for node in pair.nodes:
        stored = Stored(node.store, end)
        doubled.add(check_load(stored, load))
        stored.check_queues()
        stored.check_index(load)
        stored.check_zeros_behind()
        stored.close()
    check_same_log(pair.master.store.commitlog, pair.slave.store.commitlog, end)
    assert len(doubled) == 1, f"master and slave differ: {doubled}"
    return Counted(len(set(load.acked)), doubled.pop(), load.outcomes)
