"""Where the source of a stream ends now: asked for again and again, so nothing is opened anew while a node runs on.

Ends are those of records and never pass what is confirmed: of a running node where reput has come, else the safe end of
the files, at the end of the last whole record before it.
"""

import importlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from towline.arrow.boundaries import boundaries
from towline.arrow.selection import Selection
from towline.client.link.routes import group_routes
from towline.format.record.rules import Rule
from towline.log.queues.consume_queue import ConsumeQueueFiles

from .errors import BadOption
from .offsets import Integers, QueueKey, Source, sizes_of
from .options import SourceOptions
from .planning import check_topics, dealt, delays_of, in_time, offset_at, refuse_batch_queues, shows_due_times
from .reading import Partition, QueuePartition, Reading
from .stores import StoreFacts, StoreKind, StoreView

_LIVE: Final = "towline.spark.live"
_REMOTE: Final = "towline.spark.remote"

Bounds = dict[QueueKey, tuple[int, int]]


class Queues(Protocol):
    """Queues that a stream reads, of a store or behind an endpoint."""

    def source(self) -> Source: ...

    def queues(self) -> Bounds:
        """(min, max) of every queue that is wanted."""
        ...

    def since(self, bounds: Bounds, selection: Selection) -> Bounds:
        """The same without what is older than the selection's beginning, as far as a search finds it."""
        ...

    def offset_at(self, key: QueueKey, span: tuple[int, int], time_ms: int) -> int:
        """The first offset in `span` of a message that was stored then or later."""
        ...

    def is_settled(self) -> bool:
        """Whether what is behind the ends was cut off, and does not only come later."""
        ...

    def sizes(self, key: QueueKey, first: int, count: int) -> Integers:
        """Sizes of up to `count` messages from number `first` on, as stored; 0 where there is none."""
        ...

    def partitions(self, ranges: Bounds) -> list[Partition]: ...

    def delays(self, how: Reading) -> tuple[int, ...]:
        """By level - 1, where the reading shows when delayed messages are due."""
        ...

    def close(self) -> None: ...


class StoreTail:
    """A store's files, and the positions of the node that runs on it, if one does. Used by one thread."""

    def __init__(self, options: SourceOptions, selection: Selection) -> None:
        self._options, self._selection = options, selection
        self._root = Path(options.path).resolve()
        self._live: Any = None  # a towline.spark.live.LiveNode
        self._source: Source | None = None
        self._files: ConsumeQueueFiles | None = None  # for sizes
        self._known = (-1, -1)  # a safe end, and the end of the last record before it

    def source(self) -> Source:
        """Raises what StoreView.open raises, UnknownRead for a topic that was named and is none."""
        if self._source is None:
            with self.view() as view:
                check_topics(view, self._options)
                self._source = Source(view.store_id, view.broker_name)
        return self._source

    def view(self) -> StoreView:
        return StoreView.open(self._root, segment_size=self._options.segment_size)

    def log(self) -> tuple[int, int]:
        """(where the log begins, where its last record ends)."""
        live = self._running()
        if live is not None:
            found: tuple[int, int] = live.bounds()
            return found
        with self.view() as view:
            return view.log_min, self._end_of(view)

    def queues(self) -> Bounds:
        live = self._running()
        if live is not None:
            found: Bounds = live.queues()
            return found
        with self.view() as view:
            refuse_batch_queues(view, self._selection, "readMode")
            return {
                (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
                for queue in view.queues
                if self._wants(queue.topic, queue.queue_id)
            }

    def is_settled(self) -> bool:
        """Only a node that runs can say it: of one that starts, the files are behind what it showed before."""
        live = self._running()
        return live is not None and bool(live.is_settled)

    def since(self, bounds: Bounds, selection: Selection) -> Bounds:
        with self.view() as view:
            late = in_time(view, bounds, selection)
        return {key: late.get(key, (high, high)) for key, (_, high) in bounds.items()}

    def offset_at(self, key: QueueKey, span: tuple[int, int], time_ms: int) -> int:
        with self.view() as view:
            return offset_at(view, key, span, time_ms)

    def sizes(self, key: QueueKey, first: int, count: int) -> Integers:
        if self._files is None:
            with self.view() as view:
                self._files = view.facts().queue_files()
        return sizes_of(self._files.read(*key, first, count), count)

    def partitions(self, ranges: Bounds) -> list[Partition]:
        """What the ranges end at was safe when they were planned, whatever the node says while it starts."""
        with self.view() as view:
            facts = view.facts()
            facts = replace(facts, safe_end=max([facts.safe_end, *_file_ends(facts)]))
        return [QueuePartition(facts, tuple(group)) for group in dealt(ranges, self._options)]

    def delays(self, how: Reading) -> tuple[int, ...]:
        if not shows_due_times(how.columns, how.selection):
            return ()
        with self.view() as view:
            return delays_of(view, how.columns, how.selection)

    def close(self) -> None:
        self._leave_node()
        if self._files is not None:
            self._files.close()
            self._files = None

    def _leave_node(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None

    def _wants(self, topic: str, queue_id: int) -> bool:
        return self._selection.wants_topic(topic) and self._options.wants(topic, queue_id)

    def _running(self) -> Any:
        """The node that runs, None without one whose recovery has ended."""
        if self._live is not None and not self._live.is_current:
            self._leave_node()
        if self._live is None:
            with self.view() as view:
                if view.kind is StoreKind.LIVE:
                    self._live = importlib.import_module(_LIVE).open_live(self._root, self._wants)
        return self._live

    def _end_of(self, view: StoreView) -> int:
        facts = view.facts()
        safe_end, end = self._known
        if facts.safe_end == safe_end or not facts.segments:
            return end if facts.segments else facts.log_min
        base = facts.segments[-1]
        start = max(base + facts.start_in(base), end if base <= end <= facts.safe_end else 0)
        found = boundaries(view.array(base), base, start - base, facts.end_in(base))
        damaged = found.rule is not Rule.OK and not found.waits  # then reading decides what becomes of it
        end = base + (facts.segment_size if found.blank else found.end)
        self._known = facts.safe_end, facts.safe_end if damaged else end
        return self._known[1]


class RemoteTail:
    """One group of nodes behind an endpoint, asked by the driver."""

    def __init__(self, options: SourceOptions, selection: Selection) -> None:
        """Raises BadOption for several groups, InvalidEndpoint."""
        self._options, self._selection = options, selection
        found = group_routes(options.endpoint)
        if len(found) != 1:
            raise BadOption("endpoint", options.endpoint, "a stream reads one group of nodes; these are several")
        self._group: Any = None  # a towline.spark.remote.Group
        self._way = found[0]

    def source(self) -> Source:
        return Source("", self._asked.broker_name)

    def queues(self) -> Bounds:
        return {
            (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
            for queue in self._asked.queues()
            if self._selection.wants_topic(queue.topic) and self._options.wants(queue.topic, queue.queue_id)
        }

    def is_settled(self) -> bool:
        return False

    def since(self, bounds: Bounds, selection: Selection) -> Bounds:
        return {key: self._asked.in_time(key, *span) for key, span in bounds.items()}

    def offset_at(self, key: QueueKey, span: tuple[int, int], time_ms: int) -> int:
        found: int = self._asked.offset_at(key, span, time_ms)
        return found

    def sizes(self, key: QueueKey, first: int, count: int) -> Integers:
        found: Integers = self._asked.sizes(key, first, count)
        return found

    def partitions(self, ranges: Bounds) -> list[Partition]:
        made = importlib.import_module(_REMOTE).RemotePartition
        group = self._asked
        return [made(group.endpoints, group.broker_name, tuple(splits)) for splits in dealt(ranges, self._options)]

    def delays(self, how: Reading) -> tuple[int, ...]:
        return ()  # an endpoint serves no system topics

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    @property
    def _asked(self) -> Any:
        if self._group is None:
            self._group = importlib.import_module(_REMOTE).Group(self._way, self._options, self._selection)
        return self._group


def _file_ends(facts: StoreFacts) -> Iterable[int]:
    return (base + length for base, length in facts.lengths.items())
