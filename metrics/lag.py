"""How far consumer groups are behind: in messages by offsets and queue ends, in seconds by the oldest unread message.

Offsets are those of consumerOffset.json, which serve writes every `flush_consumer_offset_interval`. When a message was
stored stands in the log alone: for at most TIMES_MAX queues of a scrape it is read, those with the most unread messages
first. What was read stays known until the group moves on there, so a queue that stands still is found.
"""

import time
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.errors import PositionsUnusable
from towline.log.commitlog.commit_log import CommitLogReader, store_time
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.node.process.context import Node
from towline.runtime.queue_ends import QueueEnds

from .saved import SavedFile

TIMES_MAX: Final = 64  # queues of a scrape whose oldest unread message is looked up, within
TIMES_MAX_S: Final = 0.004
NONE: Final = -1  # no offset, or no time that is known
_QUEUES: Final = 1 << 32  # more than a topic has
_NEVER: Final = np.iinfo(np.int64).max
_FILES_OPEN: Final = 16
_SEGMENTS_OPEN: Final = 4

Numbers = npt.NDArray[np.int64]
Pair = tuple[str, str]  # topic, group
Stored = dict[Pair, dict[str, int]]  # offsets by queue


@dataclass(frozen=True, slots=True)
class PairLag:
    """What a group has not read of a topic. `oldest_ms`: when the oldest of it was stored, 0 if that is not known;
    `oldest_at`: where that stands in the log, NONE if it is not known."""

    topic: str
    group: str
    messages: int
    oldest_ms: int
    oldest_at: int = NONE


def read_stored(content: dict[str, Any], path: str) -> Stored:
    """Offsets by topic and group; what is no such table is none."""
    table = content.get("offsetTable")
    found: Stored = {}
    for key, queues in table.items() if isinstance(table, dict) else ():
        topic, _, group = key.partition("@")
        if topic and group and isinstance(queues, dict):
            found[topic, group] = queues
    return found


class Queues:
    """The queues that there are, by topic. A place keeps its queue, so names are read once."""

    def __init__(self, ends: QueueEnds) -> None:
        self.ends = ends
        self.names: list[tuple[str, int]] = []  # by place
        self.topics: dict[str, int] = {}  # their numbers
        self.order = self.keys = np.empty(0, np.int64)  # places by topic and queue; topic and queue as one number
        self.begins = np.zeros(1, np.int64)  # of each topic in `order`, and the end

    def refresh(self) -> bool:
        """Whether there are more."""
        before = len(self.names)
        for place in range(before, self.ends.count):
            end = self.ends.read(place)
            self.names.append((end.topic.decode("utf-8", "replace"), end.queue_id))
        if len(self.names) == before:
            return False
        for topic, _ in self.names[before:]:
            self.topics.setdefault(topic, len(self.topics))
        keys = np.array([_QUEUES * self.topics[topic] + queue for topic, queue in self.names], np.int64)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        self.begins = np.searchsorted(self.keys, _QUEUES * np.arange(len(self.topics) + 1))
        return True


@dataclass(frozen=True, slots=True)
class Rows:
    """A row for each queue of a topic that a group has offsets of, as columns.

    `times`: when the message at `known_at` was stored, 0 for nowhere; `physical`: its offset in the log. All three are
    filled by scrapes.
    """

    pairs: list[Pair] = field(default_factory=list)
    places: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    pair_of: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    offsets: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    known_at: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    times: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    physical: Numbers = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, stored: Stored, queues: Queues, before: "Rows") -> "Rows":
        """What is known of times is kept where groups, topics and queues are those of before."""
        pairs = [pair for pair in stored if pair[0] in queues.topics]
        topics = np.array([queues.topics[topic] for topic, _ in pairs], np.int64)
        begins, ends = queues.begins[topics], queues.begins[topics + 1]
        counts = ends - begins
        starts = np.cumsum(counts) - counts  # of each pair among the rows
        pair_of = np.repeat(np.arange(len(pairs)), counts)
        places = queues.order[np.arange(len(pair_of)) + (begins - starts)[pair_of]]
        offsets = np.full(len(places), NONE, np.int64)
        said = [stored[pair] for pair in pairs]
        of_pair = np.repeat(np.arange(len(pairs)), [len(each) for each in said])
        numbers = np.fromiter(map(int, chain.from_iterable(said)), np.int64, len(of_pair))
        values = np.fromiter(chain.from_iterable(each.values() for each in said), np.int64, len(of_pair))
        keys = _QUEUES * topics[of_pair] + numbers
        at = np.minimum(np.searchsorted(queues.keys, keys), max(0, len(queues.keys) - 1))
        there = queues.keys[at] == keys if len(queues.keys) else np.zeros(len(keys), np.bool_)
        offsets[(at - begins[of_pair] + starts[of_pair])[there]] = values[there]
        if pairs == before.pairs and np.array_equal(places, before.places):
            return cls(pairs, places, pair_of, offsets, before.known_at, before.times, before.physical)
        nothing = np.full(len(places), NONE)
        return cls(pairs, places, pair_of, offsets, nothing, np.zeros(len(places), np.int64), nothing.copy())


class GroupLags:
    """`prepare` is called by one thread, `read` by another."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._offsets: SavedFile[Stored] = SavedFile(node.store.config / "consumerOffset.json", read_stored, {})
        self._queues: Queues | None = None
        self._rows = Rows()

    @property
    def ends(self) -> QueueEnds | None:
        """None before the first `prepare`."""
        return None if self._queues is None else self._queues.ends

    def prepare(self) -> None:
        """Looks for other offsets and new queues, which takes as long as there are many; so no scrape waits for it."""
        if self._queues is None:
            try:
                self._queues = Queues(self._node.queue_ends())
            except PositionsUnusable:
                return
        changed = self._queues.refresh()
        if self._offsets.refresh() or changed:
            try:
                self._rows = Rows.of(self._offsets.content, self._queues, self._rows)
            except (TypeError, ValueError, OverflowError) as error:  # no numbers where numbers belong
                self._node.log.warning("offsets of groups are not understood: %s", error)

    def read(self) -> list[PairLag]:
        """Every topic of every group."""
        rows, queues = self._rows, self._queues
        if queues is None or not rows.pairs:
            return []
        low, high, _ = queues.ends.columns()
        at = np.maximum(rows.offsets, low[rows.places])
        lags = np.maximum(0, high[rows.places] - at)
        self._look_up(rows, queues, at, lags)
        messages = np.bincount(rows.pair_of, lags, len(rows.pairs)).astype(np.int64)
        oldest, first = np.full(len(rows.pairs), _NEVER), np.full(len(rows.pairs), _NEVER)
        known = (lags > 0) & (rows.times > 0) & (rows.known_at == at)
        np.minimum.at(oldest, rows.pair_of[known], rows.times[known])
        np.minimum.at(first, rows.pair_of[known], rows.physical[known])
        oldest[oldest == _NEVER], first[first == _NEVER] = 0, NONE
        found = zip(rows.pairs, messages.tolist(), oldest.tolist(), first.tolist(), strict=True)
        return [PairLag(topic, group, count, ms, where) for (topic, group), count, ms, where in found]

    def close(self) -> None:
        if self.ends is not None:
            self.ends.close()

    def _look_up(self, rows: Rows, queues: Queues, at: Numbers, lags: Numbers) -> None:
        """Reads store times of some queues with unread messages, within the limits of a scrape."""
        wanted = np.flatnonzero((lags > 0) & (rows.known_at != at))
        if len(wanted) > TIMES_MAX:
            wanted = wanted[np.argpartition(-lags[wanted], TIMES_MAX)[:TIMES_MAX]]
        if not len(wanted):
            return
        until = time.monotonic() + TIMES_MAX_S
        with StoreTimes(self._node) as stored:
            for row in wanted.tolist():
                topic, queue_id = queues.names[int(rows.places[row])]
                rows.physical[row], rows.times[row] = stored.of_queue(topic, queue_id, int(at[row]))
                rows.known_at[row] = at[row]
                if time.monotonic() > until:
                    return


class StoreTimes:
    """When records were stored. Its files are open for a moment only, so that cleaning frees what it deletes."""

    def __init__(self, node: Node) -> None:
        store, settings = node.store, node.settings
        self._queues = ConsumeQueueFiles(store.consumequeue, settings.mapped_file_size_consume_queue, _FILES_OPEN)
        self._log = CommitLogReader(store.commitlog, settings.mapped_file_size_commit_log, open_max=_SEGMENTS_OPEN)

    def __enter__(self) -> "StoreTimes":
        return self

    def __exit__(self, *_: object) -> None:
        self._queues.close()
        self._log.close()

    def of_queue(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """Where a queue's message stands in the log, and its epoch ms; (NONE, 0) where there is none."""
        entries = self._queues.read(topic, queue_id, offset, 1)
        if not len(entries):
            return NONE, 0
        physical = int(entries["physical_offset"][0])
        return physical, self.of_record(physical)

    def of_record(self, offset: int) -> int:
        """Epoch ms of the record at this offset of the log; 0 where there is none."""
        return max(0, store_time(self._log, offset))
