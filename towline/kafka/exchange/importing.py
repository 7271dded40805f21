"""An import from beginning to end.

    measure   every partition is read: what it makes, and whether anything forbids it; nothing is written
    plan      kafka-import/plan.json says what is to be done; from here on it is the same whoever does it
    write     segments in kafka-import/, each synced and noted when it is whole
    compare   every byte is read back beside the source, which is read again
    publish   the segments become a part of the log

What is broken off goes on with the same call.
"""

import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from towline.format.files import index_file
from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.record import blank
from towline.kafka.log.log_directory import LogDirectory
from towline.kernels.base.directory import QueueDirectory
from towline.log.backup.restore import check_restored
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import make_directory, segment_base
from towline.log.files.sparse_file import written_end
from towline.log.files.store_files import AbortFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.recovery import RecoverySettings, find_log
from towline.log.state.floors import QUEUE_FLOORS
from towline.log.state.kafka_import import clear_ended
from towline.log.state.role_file import SLAVE, load_role
from towline.log.state.topics_file import read_table
from towline.node.process.context import runtime_of
from towline.node.store.pool_state import bytes_in_pool
from towline.node.store.store_access import exclusive_access
from towline.node.store.store_shape import known_settings, shape_of
from towline.node.supervise.snapshot_store import discard_snapshots
from towline.places import Store
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.settings_model import BrokerRole

from .encoding import Shape
from .import_errors import (
    NoRoomToImport,
    NotAtRest,
    NothingToAbandon,
    OffsetsMissing,
    OtherImport,
    SlaveStore,
    SourceChanged,
)
from .import_plan import Choices, Counted, Part, Plan, Unit
from .import_publish import abandon_import, publish_import
from .import_source import check_room, parts_of, source_held
from .import_units import Measured, Progress, measure, stage, verify, written_bytes

PLAN: Final = "plan.json"
Work = TypeVar("Work")
Done = TypeVar("Done")


class Tasks(Protocol):
    """What does the work on units."""

    @property
    def parallel(self) -> int:
        """How many work at once."""
        ...

    def run(self, what: str, work: Callable[[Work], Done], parts: Sequence[Work]) -> list[Done]:
        """`work` of each part, in order."""
        ...


@dataclass(kw_only=True)
class Imported:
    """What became of it. `seconds` by stage; `resumed`: an earlier call had begun."""

    plan: Plan
    resumed: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 3)


def import_directory(
    source: Path, store: Store, choices: Choices, config: Path | None, tasks: Tasks, progress: Progress
) -> Imported:
    """Imports, or goes on with what was begun. `progress` gets bytes of the source, of which each is read three times.

    Raises StoreTaken, DutyTaken, LogInUse, what `import_errors` has, MalformedLog and TornLog of the source, DiskFull.
    """
    with ExitStack() as stack:
        # What has begun ends without its source: that may be in use again, or gone.
        directory = None if store.kafka_import_begun.exists() else stack.enter_context(source_held(source))
        stack.enter_context(_new_or_taken(store))
        clear_ended(store)
        known = _plan_of(store)
        if known is not None:
            _check_same(known, source, choices, store)
        if known is not None and store.kafka_import_begun.exists():
            done = Imported(plan=known, resumed=True)
        else:
            directory = directory or stack.enter_context(source_held(source))
            _check_rest(store, config)
            done = Imported(plan=_planned(known, directory, store, choices, config, tasks, progress), resumed=False)
            done.resumed = known is not None
            _write(store, done, tasks, progress)
        settings = _recovery_settings(store, done.plan, config)
        sole = known_settings(store, config)["broker_role"] == BrokerRole.ASYNC_MASTER.value
        with done.lap("publish"):
            discard_snapshots(store, runtime_of(store.root))
            publish_import(store, done.plan, settings, sole=sole)
    return done


def abandon(store: Store) -> str:
    """Takes an unfinished import away; where it came from. Raises NothingToAbandon, PublishBegun, StoreTaken."""
    if not store.kafka_import.is_dir():
        raise NothingToAbandon(str(store.root))
    with exclusive_access(store):
        clear_ended(store)
        plan = _plan_of(store)
        abandon_import(store, plan)
    return plan.source if plan is not None else ""


def is_unfinished(store: Store) -> bool:
    """Whether an import has written a plan into the store and has not ended."""
    return (store.kafka_import / PLAN).exists()


# --- the store


@contextmanager
def _new_or_taken(store: Store) -> Iterator[None]:
    """No node runs on the store meanwhile. Of a new one nothing is left where the import is refused."""
    is_new = not store.root.exists()
    try:
        with exclusive_access(store):
            yield
    except BaseException:
        if is_new and not store.kafka_import.exists() and not store.commitlog.exists():
            store.lock.unlink(missing_ok=True)
            store.root.rmdir()
        raise


def _check_rest(store: Store, config: Path | None) -> None:
    """Raises NotAtRest, SlaveStore, RestoreUnfinished."""
    check_restored(store)  # perhaps it has made nothing else yet: done again, it removes all
    if not store.commitlog.is_dir():
        return
    role = load_role(store)
    is_slave = role is not None and role.role == SLAVE
    if is_slave or known_settings(store, config)["broker_role"] == BrokerRole.SLAVE.value:
        raise SlaveStore(str(store.root))
    if AbortFile(store.root).exists():
        raise NotAtRest(str(store.root), "its node did not stop in order")
    if bytes_in_pool(runtime_of(store.root)):
        raise NotAtRest(str(store.root), "the last of its log is in the memory of a node that was killed")
    if store.truncate.exists():
        raise NotAtRest(str(store.root), "its log is to be cut where that of its master goes another way")
    if (store.config / QUEUE_FLOORS).exists():
        raise NotAtRest(str(store.root), "it was restored, and no node has taken over where its queues go on")


def _recovery_settings(store: Store, plan: Plan, config: Path | None) -> RecoverySettings:
    make_directory(store.commitlog)
    return replace(shape_of(store, config)[0], segment_size=plan.shape.segment_size)


@dataclass(frozen=True, slots=True)
class _Target:
    """Of the store before the import. `queues`: of each topic with messages how many."""

    shape: Shape
    recovery: RecoverySettings | None
    log_min: int
    end: int
    last_store_timestamp: int
    queues: dict[str, int]
    dots: bool


def _target(store: Store, config: Path | None) -> _Target:
    is_store = store.commitlog.is_dir()
    known: dict[str, Any] = known_settings(store, config, new=not is_store)
    address = known["broker_ip1"]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    shape = Shape(
        segment_size=known["mapped_file_size_commit_log"],
        body_max=known["max_message_size"],
        store_host=socket.inet_pton(family, address) + known["listen_port"].to_bytes(4, "big"),
        property_crc=known["enabled_append_prop_crc"],
    )
    dots = known["dots_in_topic_names"]
    if not is_store:
        return _Target(shape, None, 0, 0, 0, {}, dots)
    recovery, delays_ms = shape_of(store, config)
    found = find_log(store, recovery)
    start = found.durable.queues_durable if found.durable is not None else found.log_min
    queues = _queues_of(store, recovery, delays_ms, max(start, found.log_min), found.end)
    _check_tail(store, recovery.segment_size, found.end)
    return _Target(shape, recovery, found.log_min, found.end, found.last_store_timestamp, queues, dots)


def _queues_of(
    store: Store, recovery: RecoverySettings, delays_ms: tuple[int, ...], start: int, end: int
) -> dict[str, int]:
    """By topic how many queues with messages there are: in files, and in what of the log has no entries yet."""
    files = ConsumeQueueFiles(store.consumequeue, recovery.queue_file_size, 16)
    found = [queue for queue in files.list_queues() if files.bases(*queue)]
    directory = QueueDirectory()
    reader = CommitLogReader(store.commitlog, recovery.segment_size)
    reader.load()
    try:
        for _ in DispatchScan(reader, directory, delays_ms).whole(start, end) if start < end else ():
            pass
    finally:
        reader.close()
        files.close()
    numbers = range(len(directory))
    found += [(directory.topic(row).decode("utf-8", "replace"), directory.queue_id(row)) for row in numbers]
    sizes: dict[str, int] = {}
    for topic, queue_id in found:
        sizes[topic] = max(sizes.get(topic, 0), queue_id + 1)
    return sizes


def _check_tail(store: Store, size: int, end: int) -> None:
    """Behind the log's end stand zeros alone: what a crash leaves is for a start. Raises NotAtRest."""
    for path in store.commitlog.iterdir():
        base = segment_base(path.name)
        if base is not None and base + size > end:
            with path.open("rb") as file:
                if written_end(file.fileno(), max(end - base, 0), size) > max(end - base, 0):
                    raise NotAtRest(str(store.root), f"bytes that are no record stand behind the end of its log, {end}")


# --- the plan


def _plan_of(store: Store) -> Plan | None:
    content = ConfigFile(store.kafka_import / PLAN).load() if store.kafka_import.is_dir() else None
    return None if content is None else Plan.of(content)


def _check_same(plan: Plan, source: Path, choices: Choices, store: Store) -> None:
    if plan.source != str(source.resolve()):
        raise _other(plan, store, f"of {source.resolve()}")
    if plan.choices != choices:
        raise _other(plan, store, "with other options")


def _other(plan: Plan, store: Store, why: str) -> OtherImport:
    return OtherImport(str(store.root), plan.source, plan.choices.options(), why)


def _planned(
    known: Plan | None,
    directory: LogDirectory,
    store: Store,
    choices: Choices,
    config: Path | None,
    tasks: Tasks,
    progress: Progress,
) -> Plan:
    """That of before, where it still holds, or a new one, which is kept."""
    target = _target(store, config)
    parts = parts_of(directory, choices, dots=target.dots)
    if known is not None:
        _check_unchanged(known, directory, target, parts, store)
    check_room(str(store.root), parts, read_table(store), target.queues)
    if known is not None:
        progress(sum(part.size for part in parts))
        return known
    base = -(-target.end // target.shape.segment_size) * target.shape.segment_size
    counts, units = _measured(parts, target.shape, choices, base, tasks, progress)
    for part, count in zip(parts, counts, strict=True):
        if choices.holes == "refuse" and count.holes:
            raise OffsetsMissing(part.directory, count.holes)
    plan = Plan(
        store=str(store.root),
        source=str(directory.root.resolve()),
        directory_id=str(directory.meta.directory_id),
        choices=choices,
        shape=target.shape,
        log_min=target.log_min,
        end=target.end,
        store_timestamp=max(time.time_ns() // 1_000_000, target.last_store_timestamp),
        parts=parts,
        counts=counts,
        units=units,
    )
    _check_space(store, plan, config)
    make_directory(store.kafka_import)
    ConfigFile(store.kafka_import / PLAN).save(plan.content())
    if ARMED:
        reach("kafka_import.planned")
    return plan


def _check_unchanged(
    plan: Plan, directory: LogDirectory, target: _Target, parts: tuple[Part, ...], store: Store
) -> None:
    if plan.directory_id != str(directory.meta.directory_id):
        raise _other(plan, store, f"of another directory that was {plan.source} then")
    if (target.end, target.shape) != (plan.end, plan.shape):
        raise _other(plan, store, "the store's log went on since, or its settings changed")
    for now, then in zip(parts, plan.parts, strict=False):
        if now != then:
            raise SourceChanged(now.directory, f"offsets {then.start} to {then.end} are now {now.start} to {now.end}")
    if len(parts) != len(plan.parts):
        raise SourceChanged(plan.source, f"{len(plan.parts)} partitions are now {len(parts)}")


def _measured(
    parts: tuple[Part, ...], shape: Shape, choices: Choices, base: int, tasks: Tasks, progress: Progress
) -> tuple[tuple[Counted, ...], tuple[Unit, ...]]:
    """One unit where one works; else units that several may write at once."""
    if tasks.parallel == 1:
        (one,) = tasks.run("measure", partial(measure, shape, choices, 0, progress=progress), [parts])
        rows = tuple(range(len(parts)))
        return one.counts, (Unit(number=0, parts=rows, base=base, segments=one.segments + 1, used=one.used, last=True),)
    alone = tasks.run("measure", partial(measure, shape, choices, 0, progress=_silent), [(part,) for part in parts])
    return tuple(each.counts[0] for each in alone), units_of(alone, shape.segment_size, base)


def units_of(alone: Sequence[Measured], segment_size: int, base: int) -> tuple[Unit, ...]:
    """Of partitions that were measured each by itself: small ones share a segment, others have theirs."""
    bins: list[tuple[list[int], int]] = []
    for row in sorted(range(len(alone)), key=lambda row: -alone[row].used):
        if alone[row].segments:
            continue
        for rows, used in bins:
            if used + alone[row].used + blank.SIZE <= segment_size:
                bins[bins.index((rows, used))] = ([*rows, row], used + alone[row].used)
                break
        else:
            bins.append(([row], alone[row].used))
    large = [([row], each.segments + 1, each.used) for row, each in enumerate(alone) if each.segments]
    planned = [*large, *((sorted(rows), 1, used) for rows, used in bins)]
    firsts = accumulate((segments for _, segments, _ in planned), initial=0)
    return tuple(
        Unit(
            number=number,
            parts=tuple(rows),
            base=base + first * segment_size,
            segments=segments,
            used=used,
            last=number == len(planned) - 1,
        )
        for number, ((rows, segments, used), first) in enumerate(zip(planned, firsts, strict=False))
    )


def _silent(_: int) -> None:
    """Of tasks elsewhere nobody hears how far they are."""


def _check_space(store: Store, plan: Plan, config: Path | None) -> None:
    """Segments are reserved whole; queues and index are what reput will write. Raises NoRoomToImport."""
    known = known_settings(store, config, new=not store.commitlog.is_dir())
    total = sum(plan.counts, Counted())
    needed = plan.segments * plan.shape.segment_size + (total.records + total.holes) * ENTRY_SIZE
    if known["message_index_enable"] and total.keys:
        slots, indexes = known["max_hash_slot_num"], known["max_index_num"]
        needed += -(-total.keys // indexes) * index_file.file_size(slots, indexes)
    free = _free(store.root)
    if needed > free + written_bytes(store.kafka_import):
        raise NoRoomToImport(str(store.root), needed, free)


def _free(path: Path) -> int:
    """Bytes of the file system on which the path is or will be."""
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free


# --- the work


def _write(store: Store, done: Imported, tasks: Tasks, progress: Progress) -> None:
    plan = done.plan
    reported = progress if tasks.parallel == 1 else _silent
    with done.lap("write"):
        tasks.run("write", partial(stage, plan, store.kafka_import, progress=reported), plan.units)
    with done.lap("compare"):
        tasks.run("compare", partial(verify, plan, store.kafka_import, progress=reported), plan.units)
    if ARMED:
        reach("kafka_import.staged")
