"""Selection of messages, from positions on, before any column is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from towline.filter import tags as tag_filter
from towline.format.files.topics import SYSTEM_PREFIXES, SYSTEM_TOPICS, is_system_topic
from towline.format.record.columns import Integers
from towline.format.record.forms import HALF_TOPIC
from towline.format.record.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY
from towline.format.record.record import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

from .heads import Heads
from .pairs import pairs_of
from .slices import slices, text

Rows = NDArray[np.bool_]
EVERY_OFFSET: Final = (0, 2**63 - 1)
# By a topic's first byte: whether a hidden topic has the same.
_MAY_BE_HIDDEN: Final = np.zeros(256, np.bool_)
_MAY_BE_HIDDEN[[ord(name[0]) for name in (*SYSTEM_TOPICS, *SYSTEM_PREFIXES, HALF_TOPIC)]] = True


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The conditions on messages, which must hold all at once; None, and the defaults, are no condition.

    `topics` by name; `topic_pattern` as a regular expression for the whole name; `queues` maps (topic, queue id) to the
    queue offsets [first, end), `queue_ids` holds for every topic. `start_offset` and `end_offset` are physical,
    `start_ms` and `end_ms` store times, all [start, end). `tags` is a subscription as `a || b`; `keys` wants one of
    these among a message's KEYS, `uniq_keys` one of these as its UNIQ_KEY.

    System topics (spec 1.4; %RETRY% and %DLQ% are none) are hidden unless `system`, or named in `topics` or `queues`.
    Halves, which are messages of the half topic and those prepared or rolled back by SYSFLAG, unless `halves`.
    Raises BadExpression for tags that are no subscription, re.error for a pattern that is none.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: Mapping[tuple[str, int], tuple[int, int]] | None = None
    queue_ids: frozenset[int] | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    tags: str = tag_filter.ALL
    keys: frozenset[str] | None = None
    uniq_keys: frozenset[str] | None = None
    system: bool = False
    halves: bool = False
    _tags: tag_filter.Tags = field(init=False, repr=False)
    _pattern: re.Pattern[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tags", tag_filter.parse(self.tags))
        object.__setattr__(self, "_pattern", None if self.topic_pattern is None else re.compile(self.topic_pattern))

    @property
    def fields(self) -> frozenset[str]:
        """The fields that `Heads` must read for it."""
        wanted = set()
        if self.start_offset is not None or self.end_offset is not None:
            wanted.add("physical_offset")
        if self.start_ms is not None or self.end_ms is not None:
            wanted.add("store_timestamp")
        if self.queue_ids is not None:
            wanted.add("queue_id")
        if self.queues is not None:
            wanted |= {"queue_id", "queue_offset"}
        return frozenset(wanted)

    def wants_topic(self, topic: str) -> bool:
        """Whether messages of the topic may be wanted."""
        named = self._named
        if named is not None and topic not in named:
            return False
        if self._pattern is not None and not self._pattern.fullmatch(topic):
            return False
        if topic == HALF_TOPIC:
            return self.halves
        return self.system or not is_system_topic(topic) or named is not None

    def keep(self, heads: Heads) -> Heads:
        """The selected records, which were read with `fields`; cheap conditions are checked first."""
        for judge in (self._by_place, self._by_topic, self._by_properties):
            rows = judge(heads)
            if rows is not None and not rows.all():
                heads = heads.keep(rows)
        return heads

    @cached_property
    def _named(self) -> frozenset[str] | None:
        """Topics that are asked for by name."""
        if self.queues is None:
            return self.topics
        queued = frozenset(topic for topic, _ in self.queues)
        return queued if self.topics is None else queued & self.topics

    def _by_place(self, heads: Heads) -> Rows | None:
        """By offset, time, queue id and SYSFLAG."""
        rows = np.ones(len(heads), np.bool_)
        for name, start, end in (
            ("physical_offset", self.start_offset, self.end_offset),
            ("store_timestamp", self.start_ms, self.end_ms),
        ):
            if start is not None:
                rows &= heads[name] >= start
            if end is not None:
                rows &= heads[name] < end
        if self.queue_ids is not None:
            rows &= np.isin(heads["queue_id"], list(self.queue_ids))
        if not self.halves:
            kind = heads.sys_flag & TRANSACTION_MASK
            rows &= (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)
        return rows

    def _by_topic(self, heads: Heads) -> Rows | None:
        """By name; where only hidden topics are left out, names are read of those that begin as one of them does."""
        asked = self._named is not None or self._pattern is not None
        if not asked and self.system and self.halves:
            return None
        starts, sizes = heads.parts.topic_start, heads.parts.topic_size
        if not asked:
            maybe = np.flatnonzero(_MAY_BE_HIDDEN[heads.log.take(starts)])
            rows = np.ones(len(heads), np.bool_)
            if len(maybe):
                rows[maybe] = self._wanted_topics(*_topics(heads, starts[maybe], sizes[maybe]))
            return rows
        names, codes = _topics(heads, starts, sizes)
        rows = self._wanted_topics(names, codes)
        if self.queues is not None:
            rows &= self._in_queues(heads, names, codes)
        return rows

    def _wanted_topics(self, names: list[str], codes: NDArray[Any]) -> Rows:
        rows: Rows = np.array([self.wants_topic(name) for name in names], np.bool_)[codes]
        return rows

    def _in_queues(self, heads: Heads, names: list[str], codes: NDArray[Any]) -> Rows:
        assert self.queues is not None
        rows = np.zeros(len(heads), np.bool_)
        numbers = {name: number for number, name in enumerate(names)}
        for (topic, queue_id), (first, end) in self.queues.items():
            if topic in numbers:
                offset = heads["queue_offset"]
                here = (codes == numbers[topic]) & (heads["queue_id"] == queue_id)
                rows |= here & (offset >= first) & (offset < end)
        return rows

    def _by_properties(self, heads: Heads) -> Rows | None:
        if self._tags.everything and self.keys is None and self.uniq_keys is None:
            return None
        pairs = pairs_of(heads)
        rows = np.ones(len(heads), np.bool_)
        if not self._tags.everything:
            rows &= _is_in(pairs.values(TAGS), self._tags.names)
        if self.uniq_keys is not None:
            rows &= _is_in(pairs.values(UNIQ_KEY), self.uniq_keys)
        if self.keys is not None:
            words = pc.split_pattern(pairs.values(KEYS), KEY_SEPARATOR)
            owner = pc.list_parent_indices(words).to_numpy()
            found = np.zeros(len(heads), np.bool_)
            found[owner[_is_in(words.flatten(), self.keys)]] = True
            rows &= found
        return rows


def _topics(heads: Heads, starts: Integers, sizes: Integers) -> tuple[list[str], NDArray[Any]]:
    """The names that occur, and the number of each record's."""
    topics = text(slices(heads.log, starts, starts + sizes, "topic")).dictionary_encode()
    return topics.dictionary.to_pylist(), topics.indices.to_numpy()


def _is_in(values: pa.StringArray, wanted: Any) -> Rows:
    found: Rows = pc.is_in(values, value_set=pa.array(list(wanted), pa.string())).to_numpy(zero_copy_only=False)
    return found
