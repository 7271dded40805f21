"""`rebuild`: the ConsumeQueues and IndexFiles of a store anew from its CommitLog, by many tasks at once.

Built beside the old ones and exchanged with them when they are whole, so a run that fails or is killed leaves the store
as it was, and the next one begins anew. docs/decisions/0035 says why nothing is shuffled.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from towline.format.files.consume_queue import hole
from towline.format.files.index_file import file_name
from towline.limits import GIB
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_build import index_parts
from towline.log.queues.queue_build import Stretch, Whole, cover, remove_deleted
from towline.log.recovery.quarantine import Quarantine
from towline.log.recovery.recovery import FoundLog, find_log, recover
from towline.log.repair.rebuild import FILES_OPEN_MAX, carry_over, now_ms, replace_directory, save_derived, sync_files
from towline.log.state.topics_file import read_table
from towline.node.process.context import runtime_of
from towline.node.store.pool_state import bytes_in_pool
from towline.node.store.store_access import exclusive_access
from towline.node.store.store_shape import shape_of, units_of
from towline.node.supervise.snapshot_store import discard_snapshots
from towline.places import Store
from towline.spark.errors import NotAStore

from .errors import AttemptsGoOn, IllegalOption, LogInPool, NotRebuilt
from .job import Column, Job, Result, many
from .options import option, store_option
from .progress import Progress
from .rebuild_tasks import IndexWork, RebuildPlan, Split, build_index, build_split
from .rebuild_units import build_units, subscriptions, work_of
from .scratch import Scratch, fence, make_scratch
from .tasks import SparkTasks, Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES: Final = GIB  # of the log for one task: a task costs some 70 ms, in which a core reads 250 MB
FENCE_S: Final = 60.0
_NAME: Final = "rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    store: str = store_option("Store directory of a node that does not run, or of a real broker.")
    parts: Literal["all", "queues", "index"] = option("What is built anew.", default="all")
    old: Literal["keep", "remove"] = option("What stood there before: kept in diverged/, or removed.", default="keep")
    config: str | None = option("The node's configuration, where the files do not show its sizes.", default=None)


@dataclass(kw_only=True)
class Rebuilt:
    """Queues as they stand now, and what was read for them. `kept` is where the old ones are."""

    found: FoundLog
    queues: list[Stretch] = field(default_factory=list)
    records: int = 0
    keys: int = 0
    index_files: int = 0
    kept: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 3)


def rebuild(options: RebuildOptions, tasks: Tasks) -> Rebuilt:
    """Raises StoreTaken or DutyTaken while a node runs; NotRebuilt, QueueGap, AttemptsGoOn with the store as it was."""
    store = Store(Path(options.store).resolve())
    if store.restoring.exists():
        raise NotAStore(str(store.root), "a restore into it has not ended: `towline store restore` goes on with it")
    config = Path(options.config) if options.config is not None else None
    settings, delays_ms = shape_of(store, config)
    wants_index = options.parts != "queues" and settings.index_slots is not None
    if options.parts == "index" and not wants_index:
        raise IllegalOption("parts", "the store has no index, or its sizes are not known: give --config")
    with exclusive_access(store):
        if pooled := bytes_in_pool(runtime_of(store.root)):
            raise LogInPool(str(store.root), pooled)
        done = Rebuilt(found=find_log(store, settings))
        scratch = make_scratch(store.staging, _NAME)
        try:
            plan = RebuildPlan(
                store=str(store.root),
                scratch=scratch,
                settings=settings,
                delays_ms=delays_ms,
                end=done.found.end,
                queues=options.parts != "index",
                units=units_of(store, config) if options.parts != "index" else None,
            )
            if plan.units is not None:
                subscriptions(store.root, plan.units.bloom)  # what is wrong with them is said before anything is read
            _build(plan, tasks, done, index=wants_index)
            _exchange(store, options, plan, done)
        finally:
            _leave(scratch)
    return done


def splits_of(found: FoundLog, segment_size: int, parallel: int) -> tuple[Split, ...]:
    """The log in splits of whole segments, about SPLIT_BYTES each, so that all who work at once have as much."""
    base = found.log_min - found.log_min % segment_size
    rounds = max(1, round((found.end - base) / (SPLIT_BYTES * parallel)))
    segments = -(-(found.end - base) // segment_size)
    count = min(rounds * parallel, segments)
    borders = [base + -(-number * segments // count) * segment_size for number in range(count + 1)] if count else []
    return tuple(Split(max(start, found.log_min), min(end, found.end)) for start, end in pairwise(borders))


def _build(plan: RebuildPlan, tasks: Tasks, done: Rebuilt, *, index: bool) -> None:
    files = ConsumeQueueFiles(plan.whole_queues, plan.settings.queue_file_size, FILES_OPEN_MAX)
    for directory in dict.fromkeys((plan.built_queues, plan.whole_queues, plan.built_index)):
        directory.mkdir()
    files.watch()  # no error of write-back is missed by the last sync
    splits = splits_of(done.found, plan.settings.segment_size, tasks.parallel)
    try:
        with done.lap("queues"):
            log = tasks.run("the log", partial(build_split, plan), splits)
        if refused := [part.refused for part in log if part.refused]:
            raise NotRebuilt(refused[0])
        done.records, done.keys = sum(part.records for part in log), sum(part.keys for part in log)
        stretches = (stretch for part in log for stretch in part.stretches)
        wholes = cover(stretches, (hole for part in log for hole in part.holes))
        if plan.units is not None:
            with done.lap("units"):
                _build_units(plan, tasks, [whole.built for whole in wholes])
        if index:
            with done.lap("index"):
                done.index_files = _build_index(plan, tasks, splits, [part.keys for part in log])
        with done.lap("finish"):
            fence(plan.scratch, FENCE_S)
            if plan.queues:
                done.queues = _finish(plan, files, wholes, done.found)
            files.sync_all()
    finally:
        files.close()


def _build_index(plan: RebuildPlan, tasks: Tasks, splits: Sequence[Split], keys: Sequence[int]) -> int:
    now = datetime.now()
    work = [
        IndexWork(part, file_name(now + timedelta(milliseconds=part.number)))
        for part in index_parts([split.start for split in splits], keys, plan.settings.index_indexes)
    ]
    refused = [said for said in tasks.run("index files", partial(build_index, plan), work) if said]
    if refused:
        raise NotRebuilt(refused[0])
    return len(work)


def _build_units(plan: RebuildPlan, tasks: Tasks, queues: Sequence[Stretch]) -> None:
    plan.built_units.mkdir()
    refused = [said for said in tasks.run("units", partial(build_units, plan), work_of(queues, tasks.parallel)) if said]
    if refused:
        raise NotRebuilt(refused[0])


def _finish(plan: RebuildPlan, files: ConsumeQueueFiles, wholes: list[Whole], found: FoundLog) -> list[Stretch]:
    """What no task can know: holes and fillers before a queue's first entry, queues without records, deleted topics."""
    for whole in wholes:
        name, queue_id = whole.built.name, whole.built.queue_id
        for missing in whole.holes:
            files.write(name, queue_id, missing.first, hole(missing.at) * (missing.end - missing.first))
        files.fill_before(name, queue_id, whole.built.first)
    store, built = Store(Path(plan.store)), [whole.built for whole in wholes]
    last = max((path_base for path_base in _bases(store)), default=0)
    stale = range(found.end, max(found.end, last + plan.settings.segment_size))
    built += carry_over(store.consumequeue, files, built, found.log_min, stale)
    remove_deleted(files, read_table(store), found.log_min, found.end, built)
    for units in list(plan.built_units.glob("*/*")):
        if not (plan.whole_queues / units.relative_to(plan.built_units)).is_dir():
            shutil.rmtree(units)
    return sorted(built)


def _bases(store: Store) -> Iterator[int]:
    return (int(path.name) for path in store.commitlog.iterdir() if path.name.isdecimal())


def _exchange(store: Store, options: RebuildOptions, plan: RebuildPlan, done: Rebuilt) -> None:
    """New for old. A kill between the two exchanges leaves a store of which both halves are of the same log."""
    diverged, now = Quarantine(store.root), now_ms()

    def take(old: Path) -> None:
        done.kept.append(str(diverged.take(old, now)))

    with done.lap("exchange"):
        discard_snapshots(store, runtime_of(store.root))
        if plan.queues:
            if store.consumequeue_ext.exists():  # an entry that leads to no unit is filtered by its record
                take(store.consumequeue_ext)
            replace_directory(plan.whole_queues, store.consumequeue, take)
            if plan.units is not None:
                replace_directory(plan.built_units, store.consumequeue_ext, take)
        if "index" in done.seconds:
            replace_directory(plan.built_index, store.index, take)
        whole = options.parts == "all" and ("index" in done.seconds or not any(store.index.glob("*")))
        if whole and (done.found.durable is not None or store.identity.exists()):
            sync_files(store.commitlog)
            save_derived(store, plan.settings.segment_size, done.found.log_min, done.found.end)
            recover(store, plan.settings)
        while options.old == "remove" and done.kept:  # not before all that is new stands in its place
            shutil.rmtree(done.kept.pop())


def _leave(scratch: Scratch) -> None:
    """Nobody writes into what is removed, unless he has been given up long ago."""
    with suppress(AttemptsGoOn):
        fence(scratch, FENCE_S)
    shutil.rmtree(scratch.path, ignore_errors=True)


# --- the job

COLUMNS: Final = (
    Column("topic", "string", "topic of the queue"),
    Column("queueId", "int", "number of the queue"),
    Column("minOffset", "bigint", "first number that the queue holds"),
    Column("maxOffset", "bigint", "behind the last number"),
    Column("entries", "bigint", "numbers that it holds, holes included"),
)


def run(spark: "SparkSession", options: RebuildOptions, progress: Progress) -> Result:
    started = time.monotonic()
    done = rebuild(options, SparkTasks(spark, progress))
    seconds = time.monotonic() - started
    read = done.found.end - done.found.log_min
    entries = sum(queue.end - queue.first for queue in done.queues)
    rows = [(queue.name, queue.queue_id, queue.first, queue.end, queue.end - queue.first) for queue in done.queues]
    summary = {
        "log_min": done.found.log_min,
        "log_end": done.found.end,
        "records": done.records,
        "keys": done.keys,
        "queues": len(done.queues),
        "entries": entries,
        "index_files": done.index_files,
        "kept": done.kept,
        "seconds": done.seconds,
        "bytes_per_s": round(read / seconds),
    }
    sentence = (
        f"{done.records:,} records: {len(done.queues):,} queues with {entries:,} entries and "
        f"{many(done.index_files, 'index file')} with {many(done.keys, 'key')} were built and put in place"
    )
    return Result(rows=rows, summary=summary, sentence=sentence)


JOB: Final = Job(options=RebuildOptions, columns=COLUMNS, run=run)
