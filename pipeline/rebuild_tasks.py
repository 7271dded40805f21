"""The tasks of `rebuild`, without Spark. Executors need the package, numba and the store's files.

A task decodes a split of the log and writes; what it returns says what it wrote. The log below its end does not change,
and an entry's place follows from its record, so an attempt that is repeated, doubled or late writes the same bytes.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from towline.errors import TowlineError
from towline.format.files.consume_queue import SIZE
from towline.limits import KIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_build import IndexPart, build_index_file
from towline.log.queues.queue_build import LeadingHole, QueueBuild, Stretch, build_queues
from towline.log.recovery.recovery import RecoverySettings
from towline.log.repair.rebuild import FILES_OPEN_MAX
from towline.node.store.store_shape import UnitShape
from towline.places import Store

from .errors import ScratchNotSeen
from .scratch import Scratch

WRITE_BACK_MIN: Final = 256 * KIB  # of one queue


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """Log offsets [start, end), whole segments but for the log's own ends; `start` is a record's start."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """What all tasks of a run share. `end` is that of the log, taken once."""

    store: str
    scratch: Scratch
    settings: RecoverySettings
    delays_ms: tuple[int, ...]
    end: int
    queues: bool = True
    units: UnitShape | None = None

    @property
    def built_queues(self) -> Path:
        return self.scratch.path / "consumequeue"

    @property
    def extended_queues(self) -> Path:
        """The same queues with addresses of units."""
        return self.scratch.path / "extended"

    @property
    def built_units(self) -> Path:
        return self.scratch.path / "consumequeue_ext"

    @property
    def whole_queues(self) -> Path:
        """Those that take the old ones' place."""
        return self.built_queues if self.units is None else self.extended_queues

    @property
    def built_index(self) -> Path:
        return self.scratch.path / "index"

    def reader(self) -> CommitLogReader:
        reader = CommitLogReader(Store(Path(self.store)).commitlog, self.settings.segment_size)
        reader.load()
        return reader


@dataclass(frozen=True, slots=True)
class Built:
    """What a task wrote of a split; or what it met and refused, which a retry would meet again."""

    records: int = 0
    keys: int = 0
    stretches: tuple[Stretch, ...] = ()
    holes: tuple[LeadingHole, ...] = ()
    refused: str = ""


def build_split(plan: RebuildPlan, split: Split) -> Built:
    """The queues of a split, written to their places. What is no error of the store is raised, for Spark to retry."""
    reader = plan.reader()
    build = QueueBuild(reader, plan.delays_ms, apart=True)
    files = ConsumeQueueFiles(plan.built_queues, plan.settings.queue_file_size, FILES_OPEN_MAX, apart=True)
    try:
        with plan.scratch.attempt():
            files.watch()
            built = build_queues(build, files, split.start, split.end)
            for _ in built if plan.queues else build.batches(split.start, split.end):
                pass
            if plan.scratch.elsewhere:
                files.sync_all()
            elif plan.queues:
                _begin_write_back(files, build.stretches())
    except ScratchNotSeen:
        raise
    except TowlineError as error:
        return Built(refused=str(error))
    finally:
        files.close()
        reader.close()
    return Built(build.records, build.keys, tuple(build.stretches()), tuple(build.holes))


def _begin_write_back(files: ConsumeQueueFiles, stretches: Iterable[Stretch]) -> None:
    """The disk works while tasks do; of queues that got little in this split the last sync writes more at once."""
    for stretch in stretches:
        if (stretch.end - stretch.first) * SIZE >= WRITE_BACK_MIN:
            files.begin_write_back(stretch.name, stretch.queue_id, stretch.first, stretch.end)


@dataclass(frozen=True, slots=True)
class IndexWork:
    """One index file, and the name it gets."""

    part: IndexPart
    name: str


def build_index(plan: RebuildPlan, work: IndexWork) -> str:
    """One index file, published under its name. What was refused; empty when it was built."""
    settings = plan.settings
    assert settings.index_slots is not None
    reader = plan.reader()
    try:
        with plan.scratch.attempt() as own:
            path = build_index_file(reader, plan.end, work.part, own, settings.index_slots, settings.index_indexes)
            link_whole(path, plan.built_index / work.name)
    except ScratchNotSeen:
        raise
    except TowlineError as error:
        return str(error)
    finally:
        reader.close()
    return ""


def link_whole(made: Path, target: Path) -> None:
    """Publishes a whole file. Another attempt may have done so: its file holds the same."""
    with suppress(FileExistsError):
        os.link(made, target)
    made.unlink()
