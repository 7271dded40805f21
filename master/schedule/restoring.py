"""Restores stored records of a form to the messages that they carry, many at once, sorted by topic and queue.

A promoted node may lack a topic that its master created just before it died: then only delayed messages name it. It is
created when the first of them is due (`MissingTopics`). A deleted topic stays deleted.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from towline.errors import NotInLog
from towline.format.files.topics import GROUP_PREFIXES, read_topics
from towline.format.record.rules import Rule
from towline.format.wire.frames import Group
from towline.kernels.base.directory import NONE, QueueDirectory
from towline.kernels.jit.rows import RESTORED
from towline.kernels.put.restore import look, make
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.config_file import ConfigFile

Places = npt.NDArray[np.int64]
Sizes = npt.NDArray[np.int32]
Rows = npt.NDArray[np.void]  # of RESTORED


@dataclass(frozen=True, slots=True)
class Restored:
    """A put's groups and records.

    `count` is the number restored; `lost` are the places of records that no topic of this node takes.
    """

    groups: list[Group]
    records: memoryview
    count: int
    lost: Places


class RealQueues:
    """The topics of this node by number, and the number of queues of each; read again when the file changes."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self.directory = QueueDirectory()
        self.counts: Sizes = np.zeros(0, dtype=np.int32)
        self.deleted: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Reads the file if it changed. Raises MalformedFile."""
        try:
            found = self._file.path.stat()
        except FileNotFoundError:  # none yet, or it is just being replaced
            return
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self._seen:
            return
        table = read_topics(self._file.load() or {}, str(self._file.path))
        topics, self.deleted = table.topics, frozenset(table.deleted)
        self.directory = QueueDirectory()
        counts = np.ones(len(topics), dtype=np.int32)
        for name, topic in topics.items():
            counts[self.directory.add(name.encode(), 0)] = max(1, topic.write_queue_nums)
        self.counts, self._seen = counts, stamp


class TopicCreator(Protocol):
    """Sends questions to put; `done` is told whether put did what was asked."""

    def ask(self, op: str, done: Callable[[bool], None], **facts: Any) -> bool: ...


class MissingTopics:
    """Has put create topics with at least `queues` queues; a group's topic gets what it needs."""

    def __init__(self, creator: TopicCreator, queues: int, log: logging.Logger) -> None:
        self._creator, self._queues, self._log = creator, queues, log
        self._asked: set[str] = set()

    def make(self, wanted: Mapping[str, int]) -> None:
        """Asks put for the topics; `wanted` maps names to numbers of queues. The caller checks again later."""
        for name, queues in wanted.items():
            if name in self._asked:
                continue
            least = 1 if name.startswith(GROUP_PREFIXES) else self._queues
            if self._creator.ask("create_topic", partial(self._answered, name), topic=name, queues=max(least, queues)):
                self._asked.add(name)

    def _answered(self, name: str, done: bool) -> None:
        self._asked.discard(name)
        if done:
            message = (
                "the topic %s is made: delayed messages belong to it, and the master before had no time to tell of it"
            )
            self._log.warning(message, name)


class Restorer:
    """Reads the rows of stored records (`read`), then writes the messages of the same records (`restore`)."""

    def __init__(self, log: CommitLogReader, queues: RealQueues, *, with_crc: bool) -> None:
        self._log = log
        self._queues = queues
        self._with_crc = with_crc
        self._target = np.zeros(0, dtype=np.uint8)

    def read(self, positions: Places, sizes: Sizes) -> Rows:
        """The topic and queue of each record. A record that has left the log has the rule ENDS_INSIDE."""
        rows = np.zeros(len(positions), dtype=RESTORED)
        bases = positions - positions % self._log.segment_size
        self._queues.refresh()
        directory = self._queues.directory.arrays
        for base in np.unique(bases).tolist():
            picks = np.flatnonzero(bases == base)
            array = self._array(base)
            if array is None:
                rows["rule"][picks] = Rule.ENDS_INSIDE
            else:
                look(array, base, positions, sizes, picks, *directory, self._with_crc, rows)
        return rows

    def text(self, positions: Places, row: int, start: int, length: int) -> bytes:
        """The bytes that a row of `read` refers to."""
        position = int(positions[row])
        array = self._array(position - position % self._log.segment_size)
        return b"" if array is None else array[start : start + length].tobytes()

    def restore(self, positions: Places, rows: Rows, kept: npt.NDArray[np.bool_]) -> Restored:
        """Writes the messages of the `kept` records, one group per queue, in the given order within each queue.

        Records are left out that belong to no topic of this node, or are unreadable. A queue id that the topic lacks is
        taken modulo its number of queues. `records` is overwritten by the next call.
        """
        able = kept & (rows["rule"] == Rule.OK) & (rows["topic"] != NONE)
        picks = np.flatnonzero(able)
        lost = np.flatnonzero(kept & ~able)
        counts = self._queues.counts[rows["topic"][picks]]
        rows["queue_id"][picks] = np.maximum(rows["queue_id"][picks], 0) % counts
        order = picks[np.lexsort((rows["queue_id"][picks], rows["topic"][picks]))]
        sizes = rows["size"][order]
        ends = np.cumsum(sizes)
        places = np.full(len(rows), -1, dtype=np.int64)
        places[order] = ends - sizes
        total = int(ends[-1]) if len(ends) else 0
        if total > self._target.size:
            self._target = np.zeros(max(total, 2 * self._target.size), dtype=np.uint8)
        self._write(positions, rows, order, places)
        return Restored(self._groups(rows, order, ends), self._target.data[:total], len(picks), lost)

    def unknown(self, positions: Places, rows: Rows, kept: npt.NDArray[np.bool_]) -> dict[str, int]:
        """Topics that this node does not know and nobody deleted -> number of queues that these records need."""
        wanted: dict[str, int] = {}
        for place in np.flatnonzero(kept & (rows["rule"] == Rule.OK) & (rows["topic"] == NONE)).tolist():
            name = self.topic(positions, rows, place)
            wanted[name] = max(wanted.get(name, 0), int(rows["queue_id"][place]) + 1)
        return {name: queues for name, queues in wanted.items() if name not in self._queues.deleted}

    def topic(self, positions: Places, rows: Rows, place: int) -> str:
        """The real topic of a record."""
        row = rows[place]
        return self.text(positions, place, int(row["topic_start"]), int(row["topic_length"])).decode("utf-8", "replace")

    def unique_key(self, positions: Places, rows: Rows, place: int) -> str:
        row = rows[place]
        return self.text(positions, place, int(row["key_start"]), int(row["key_length"])).decode("utf-8", "replace")

    def _write(self, positions: Places, rows: Rows, order: Places, places: Places) -> None:
        bases = positions[order] - positions[order] % self._log.segment_size
        for base in np.unique(bases).tolist():
            picks = order[bases == base]
            array = self._array(base)
            assert array is not None, "a segment that was looked into is kept while it is mapped"
            written = make(array, base, positions, picks, places, self._with_crc, rows, self._target)
            assert written == len(picks)

    def _groups(self, rows: Rows, order: Places, ends: Places) -> list[Group]:
        topics, queues = rows["topic"][order], rows["queue_id"][order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (topics[1:] != topics[:-1]) | (queues[1:] != queues[:-1])
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, len(order)))
        bytes_before = np.append(0, ends)
        groups = []
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            size = int(bytes_before[start + count] - bytes_before[start])
            name = self._queues.directory.topic(int(topics[start]))
            groups.append(Group(name, int(queues[start]), count, size))
        return groups

    def _array(self, base: int) -> Any:
        try:
            return self._log.array(base)
        except NotInLog:
            return None


CHUNK_COUNT: Final = 1024  # records of one delivery, which may all be for different queues
