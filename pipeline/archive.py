"""`archive`: full segments of a log as Parquet by topic and day, each checked before its manifest says it is there.

A task decodes a segment, writes its files and reads them back; the driver moves them to their names and then publishes
the segment's manifest, which is the only truth (docs/decisions/0036). A run that is killed is simply run again.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final, Literal

from towline.errors import MissingPackage
from towline.log.state.archived import probe_of, save_archived
from towline.spark.stores import StoreKind, StoreView

from .archive_files import Order, Refused, Staged, archive_segment
from .archive_manifest import SUFFIX, Archive, ArchivedSegment, Head, publish_manifests
from .errors import ArchiveOfAnother
from .job import Column, Job, Plot, Result
from .location import Location, Staging, location
from .options import option, store_option
from .progress import Progress
from .tasks import SparkTasks, Tasks, waves

NOBODY: Final = Progress()
ARCHIVED, THERE, REFUSED = "archived", "there", "refused"
TOPICS_DRAWN: Final = 20
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    store: str = store_option()
    out: str = option(
        "Where the archive is: a directory, or s3://BUCKET/PREFIX and the like; a new one, or one of the same log to "
        "go on with.",
        metavar="DIR|URI",
    )
    older_than: float = option(
        "Only segments whose last message is so many hours old. A segment that is still written is never archived.",
        default=0.0,
        metavar="HOURS",
        least=0,
    )
    compression: Literal["zstd", "snappy", "lz4", "gzip", "none"] = option("Of the Parquet files.", default="zstd")
    tell: bool = option(
        "Note in the store (config/archived.json) how far it is archived; with keep_until_archived cleaning waits for "
        "that. Not done for a backup or a real broker's store.",
        default=True,
    )
    table: Literal["none", "delta"] = option(
        "Keep a Delta table over the files, too (needs towline[delta]).", default="none"
    )
    most: int | None = option("Archive so many segments at most, the oldest first.", default=None, least=1)


COLUMNS: Final = (
    Column("segment", "bigint", "log offset of the segment's first byte"),
    Column("status", "string", "archived: by this run; there: it was archived before; refused: see problem"),
    Column("messages", "bigint", "messages in it, those of system topics and halves included"),
    Column("logBytes", "bigint", "bytes of their records"),
    Column("files", "int", "Parquet files, one for each topic and day"),
    Column("parquetBytes", "bigint", "their bytes"),
    Column("firstStored", "timestamp", "store time of the oldest message"),
    Column("lastStored", "timestamp", "store time of the newest message"),
    Column("problem", "string", "why it cannot be archived; empty where it is"),
)


@dataclass(kw_only=True)
class Done:
    """What a run found and did. `until`: every segment of the store that ends there or before is archived."""

    archive: Archive
    there: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    until: int = 0
    left: int = 0  # full segments that were not asked for
    added: int | None = None  # files, to the Delta table


def archive(options: ArchiveOptions, tasks: Tasks, now_ms: int | None = None, progress: Progress = NOBODY) -> Done:
    """`now_ms` is the time that `older_than` goes by.

    Raises what opening a store and a location raises, NotAnArchive, ArchiveOfAnother, TableFailed, MissingPackage,
    LocationTaken while another job writes there.
    """
    table = _delta() if options.table == "delta" else None
    where = location(options.out)
    with where.held(), where.staging() as staging, StoreView.open(options.store) as view:
        run = _Run(options, view, where, staging, tasks, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
        done = run.work(progress)
        if table is not None:
            done.added = table.bring_up(done.archive)
        return done


def _delta() -> Any:
    """Loaded before the work begins, so that nobody waits for a table that cannot be made."""
    try:
        return import_module("towline.pipeline.delta")
    except ModuleNotFoundError as error:
        raise MissingPackage(error.name or "deltalake", "delta") from None


class _Run:
    """One run; the archive's lock is held."""

    def __init__(
        self, options: ArchiveOptions, view: StoreView, where: Location, staging: Staging, tasks: Tasks, now_ms: int
    ) -> None:
        self._options, self._view, self._staging, self._tasks, self._now_ms = options, view, staging, tasks, now_ms
        head = Head(store_id=view.store_id, broker_name=view.broker_name, segment_size=view.segment_size)
        self._done = Done(archive=Archive.make(where, head))
        self._archive = self._done.archive
        self._check_same_log(head)

    def work(self, progress: Progress) -> Done:
        done, view = self._done, self._view
        full = [base for base in view.segments if base + view.segment_size <= view.safe_end]
        done.there = [base for base in full if base in self._archive.segments]
        wanted = [base for base in full if base not in self._archive.segments and self._is_cold(base)]
        done.left = len(full) - len(done.there) - len(wanted)
        if self._options.most is not None:
            done.left += max(0, len(wanted) - self._options.most)
            wanted = wanted[: self._options.most]
        self._remove_unnamed()
        self._leave_word()
        for bases in waves(wanted, self._tasks):
            self._wave(bases)
            progress.report("published", len(done.made) + len(done.refused), len(wanted))
        return done

    # --- the log

    def _check_same_log(self, head: Head) -> None:
        """By name, and by the bytes of what both have. Raises ArchiveOfAnother."""
        theirs, where = self._archive.head, self._archive.where.text
        for name in ("store_id", "segment_size", "broker_name"):
            known, found = getattr(theirs, name), getattr(head, name)
            if known != found:
                raise ArchiveOfAnother(where, self._options.store, f"{name} is {known!r} there and {found!r} here")
        for base in self._view.segments:
            kept = self._archive.segments.get(base)
            if kept is not None and probe_of(self._view.facts().path_of(base), base, kept.data_end) != kept.probe:
                raise ArchiveOfAnother(where, self._options.store, f"segment {base} ends with other bytes")

    def _is_cold(self, base: int) -> bool:
        """Its last message is not newer than the first one of the next segment."""
        if not self._options.older_than:
            return True
        following = self._view.first_store_time(base + self._view.segment_size)
        return 0 <= following <= self._now_ms - self._options.older_than * _HOUR_MS

    def _leave_word(self) -> None:
        """Tells cleaning how far the archive goes without a gap from the log's beginning on."""
        view, last = self._view, None
        for base in view.segments:
            if base not in self._archive.segments:
                break
            last = self._archive.segments[base]
        if last is None:
            return
        until = last.base + view.segment_size
        ours = view.kind in (StoreKind.LIVE, StoreKind.STOPPED)
        if ours and self._options.tell and until > self._done.until:
            save_archived(view.facts().store, view.segment_size, last.data_end, last.probe, self._archive.where.text)
        self._done.until = until

    # --- files

    def _wave(self, bases: Sequence[int]) -> None:
        facts, how = self._view.facts(), self._options.compression
        orders = [Order(facts=facts.only([base]), base=base, staging=self._staging, compression=how) for base in bases]
        staged = []
        for found in self._tasks.run("segments", archive_segment, orders):
            if isinstance(found, Refused):
                self._done.refused.append(found)
            else:
                staged.append(found)
        self._publish(staged)
        self._leave_word()

    def _publish(self, staged: Sequence[Staged]) -> None:
        """Files first, durably under their names, then the manifests."""
        where, segments = self._archive.where, [each.segment for each in staged]
        names = [file.name for segment in segments for file in segment.files]
        where.move(list(zip((name for each in staged for name in each.names), names, strict=True)))
        publish_manifests(where, {self._archive.manifest_of(segment.base): asdict(segment) for segment in segments})
        self._archive.segments |= {segment.base: segment for segment in segments}
        self._done.made += [segment.base for segment in segments]

    def _remove_unnamed(self) -> None:
        """Files whose manifest was never published: the driver was killed before."""
        named = {file.name for segment in self._archive.segments.values() for file in segment.files}
        where = self._archive.where
        where.remove(name for name in where.files("data") if name.endswith(SUFFIX) and name not in named)


# --- the job


def run(spark: Any, options: ArchiveOptions, progress: Progress) -> Result:
    return _result(archive(options, SparkTasks(spark, progress), progress=progress))


def _result(done: Done) -> Result:
    segments = done.archive.segments
    rows = [_row(base, THERE, segments[base]) for base in done.there]
    rows += [_row(base, ARCHIVED, segments[base]) for base in done.made]
    rows += [(each.base, REFUSED, 0, 0, 0, 0, None, None, each.sentence) for each in done.refused]
    made = [segments[base] for base in done.made]
    log_bytes, size = sum(map(_log_bytes, made)), sum(file.size for segment in made for file in segment.files)
    messages = sum(segment.records for segment in made)
    sentence = (
        f"{len(made):,} segments archived ({messages:,} messages, {log_bytes:,} bytes of log in {size:,} of Parquet), "
        f"{len(done.there):,} were there; the log is archived up to {done.until:,}"
    )
    if done.refused:
        sentence += f"; {len(done.refused)} cannot be: {done.refused[0].sentence}"
    return Result(
        rows=sorted(rows),
        summary={
            "archived": len(made),
            "there": len(done.there),
            "refused": len(done.refused),
            "left": done.left,
            "messages": messages,
            "log_bytes": log_bytes,
            "parquet_bytes": size,
            "until": done.until,
            "archive": done.archive.where.text,
            **({} if done.added is None else {"added_to_table": done.added}),
        },
        sentence=sentence,
        plots=_plots(segments.values()),
        status=2 if done.refused else 0,
    )


def _row(base: int, status: str, segment: ArchivedSegment) -> tuple[Any, ...]:
    files = segment.files
    first = _time(min((file.first_ms for file in files), default=None))
    last = _time(max((file.last_ms for file in files), default=None))
    size = sum(file.size for file in files)
    return base, status, segment.records, _log_bytes(segment), len(files), size, first, last, ""


def _log_bytes(segment: ArchivedSegment) -> int:
    return segment.data_end - segment.start


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _plots(segments: Iterable[ArchivedSegment]) -> list[Plot]:
    sizes: Counter[str] = Counter()
    for segment in segments:
        for file in segment.files:
            sizes[file.topic] += file.size
    drawn = sizes.most_common(TOPICS_DRAWN)
    if not drawn:
        return []
    values = [float(size) for _, size in drawn]
    title = "bytes of Parquet in the archive, by topic"
    return [Plot(title=title, kind="bars", x=[topic for topic, _ in drawn], series={"bytes": values}, y_label="bytes")]


JOB: Final = Job(options=ArchiveOptions, columns=COLUMNS, run=run)
