"""ConsumeQueueExt units of queues that were built anew, queue by queue: what reput writes beside them (spec 3.5, 7.3).

Where a unit stands follows from how many entries of its queue have one before it, which no task of the log knows. So
units come when the queues stand, and with them the queues once more, in a directory of their own: their entries hold
addresses then. What a task reads nobody writes any more, so an attempt that is repeated writes the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.errors import TowlineError
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FilterTable, read
from towline.format.files.consume_queue_ext import encode_units
from towline.format.record.columns import field, parts_of, wider_by
from towline.format.record.forms import SCHEDULE_TOPIC
from towline.format.record.record import BORN_HOST_IPV6
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles, Entries, is_filler, places_of
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.log.queues.queue_build import Stretch
from towline.log.repair.rebuild import FILES_OPEN_MAX
from towline.places import Store

from .errors import ScratchNotSeen
from .rebuild_tasks import RebuildPlan

_BLOCK: Final = 65_536  # entries
_TASKS: Final = 4  # for each core


@dataclass(frozen=True, slots=True)
class UnitWork:
    """Queues of one task."""

    queues: tuple[Stretch, ...]


def work_of(queues: Sequence[Stretch], parallel: int) -> list[UnitWork]:
    """The queues dealt out, the longest first."""
    ordered = sorted(queues, key=lambda queue: queue.first - queue.end)
    count = min(len(ordered), _TASKS * max(1, parallel))
    return [UnitWork(tuple(ordered[number::count])) for number in range(count)]


def subscriptions(store: Path, bloom: tuple[int, int] | None) -> FilterTable | None:
    """What reput would evaluate now; None where units have no bitmaps. Raises MalformedFile."""
    if bloom is None:
        return None
    path = Store(store).config / "consumerFilter.json"
    return read(ConfigFile(path).load() or {}, Bloom(*bloom), str(path))


def build_units(plan: RebuildPlan, work: UnitWork) -> str:
    """Units and queues that lead to them. What was refused; empty when they were built."""
    assert plan.units is not None
    size = plan.settings.queue_file_size
    source = ConsumeQueueFiles(plan.built_queues, size, FILES_OPEN_MAX)
    made = ConsumeQueueFiles(plan.extended_queues, size, FILES_OPEN_MAX, apart=True)
    files = ConsumeQueueExtFiles(plan.built_units, plan.units.file_size, FILES_OPEN_MAX)
    extending = None
    try:
        with plan.scratch.attempt():
            made.watch()
            extending = _Extending(plan, source, made, files)
            for queue in work.queues:
                extending.extend(queue)
            if plan.scratch.elsewhere:
                made.sync_all()
    except ScratchNotSeen:
        raise
    except TowlineError as error:
        return str(error)
    finally:
        if extending is not None:
            extending.close()
        for each in (source, made, files):
            each.close()
    return ""


class _Extending:
    def __init__(
        self, plan: RebuildPlan, source: ConsumeQueueFiles, made: ConsumeQueueFiles, files: ConsumeQueueExtFiles
    ) -> None:
        """Raises MalformedFile."""
        assert plan.units is not None
        self._source, self._made, self._files = source, made, files
        self._table = subscriptions(Path(plan.store), plan.units.bloom)
        self._log = plan.reader()

    def extend(self, queue: Stretch) -> None:
        """Numbers without an entry, which are lost, stay empty: holes come when all tasks have ended."""
        at, position = queue.first, 0
        while at < queue.end:
            entries = self._source.raw(queue.name, queue.queue_id, at, min(_BLOCK, queue.end - at)).copy()
            rows = np.flatnonzero((entries["record_size"] > 0) & ~is_filler(entries))
            if len(rows) and queue.name != SCHEDULE_TOPIC:  # whose code is the time of delivery
                units = self._units(queue.name, entries[rows])
                addresses, position = self._files.write(queue.name, queue.queue_id, position, units)
                entries["tags_code"][rows] = addresses
            self._made.write(queue.name, queue.queue_id, at, entries)
            at += len(entries)

    def _units(self, topic: str, entries: Entries) -> NDArray[np.uint8]:
        places, sizes = places_of(entries), entries["record_size"].astype(np.int64)
        times = np.empty(len(entries), np.int64)
        properties: list[bytes] = []
        filtered = self._table is not None and bool(self._table.of_topic(topic))
        bases = places - places % self._log.segment_size
        for base in np.unique(bases).tolist():
            rows = np.flatnonzero(bases == base)
            data, at = self._log.array(base), places[rows] - base
            moved = at + wider_by(field(data, at, "sys_flag"), BORN_HOST_IPV6)
            times[rows] = field(data, moved, "store_timestamp")
            if filtered:
                starts = parts_of(data, at, sizes[rows]).properties_start.tolist()
                ends = (at + sizes[rows]).tolist()
                properties += [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
        found = self._table.bitmaps(topic, properties) if self._table is not None else None
        bitmaps = np.zeros((len(entries), 0), np.uint8) if found is None else found
        return encode_units(entries["tags_code"].astype(np.int64), times, bitmaps)

    def close(self) -> None:
        self._log.close()
