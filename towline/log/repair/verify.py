"""The verify engine of `towline store verify`, of the job that verifies in parallel, and of repair's plan. Read-only.

It makes one pass over the log: recovery's walk finds the whole records, reput's scan the entries that queues and index
should hold, which are compared with the files batch by batch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from towline.format.files.durable import Durable
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.segment_files import segment_name
from towline.log.queues.queue_tail_check import dispatched_behind
from towline.log.recovery.recovery import RecoverySettings
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import begins_too_late
from towline.places import Store

from .verify_log import LogBounds, LogFound, Sink, limits_of, list_log
from .verify_parts import Facts, Run, verify_log_in_parts
from .verify_queues import Gap, QueueVerifier
from .verify_report import NOTHING, REPAIR, Findings, Weight, restore_or_skip
from .verify_state import (
    verify_checkpoint,
    verify_config,
    verify_durable,
    verify_epochs,
    verify_identity,
    verify_leftovers,
    verify_settings,
    verify_times,
    verify_topics,
    verify_words,
)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """`limit` is the log offset up to which was read, where a node runs; `gaps` of queues' numbers in the log."""

    findings: Findings
    log: LogFound
    gaps: list[Gap]
    end_of: Callable[[bytes, int], int]  # of a topic's queue: behind its last number in the log, -1 without one
    limit: int | None
    seconds: float
    bytes: int
    segment_size: int

    @property
    def weight(self) -> Weight:
        """The worst that was found."""
        return self.findings.worst


@dataclass
class _Count:
    report: Callable[[int], None]
    total: int = field(default=0)

    def add(self, size: int) -> None:
        self.total += size
        self.report(size)


def verify(
    store: Store,
    settings: RecoverySettings,
    *,
    delays_ms: tuple[int, ...] = (),
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    run: Run | None = None,
    named: frozenset[int] = frozenset(),
) -> Verified:
    """Reads every file of a store; `limit` is the dispatched end of a running node, which writes behind it.

    `named` are log offsets of records that are to count as damaged though they keep every rule of their own.
    `progress` gets bytes of the log. `settings` are those of the node; `delays_ms` by level - 1, for tags codes.
    With `run` log, queues and index are verified in parts, as tasks that it runs; then `progress` is not called.
    """
    started = time.monotonic()
    findings = Findings(store.root)
    durable = verify_durable(store, settings.segment_size, findings)
    checkpoint = verify_checkpoint(store, findings)
    verify_identity(store, findings)
    epochs = verify_epochs(store, findings)
    verify_config(store, findings, running=limit is not None)
    verify_settings(store, findings)
    verify_words(store, findings, running=limit is not None)
    verify_leftovers(store, findings, running=limit is not None)
    count = _Count(progress)
    facts = _facts(store, settings, findings, durable, delays_ms, limit, named)
    if run is None:
        log, queues = _in_order(facts, findings, count.add)
    else:
        log, queues = verify_log_in_parts(facts, findings, run)
        count.total = sum(segment.used for segment in log.segments)
    _report_gaps(store, settings, log, queues.gaps, findings)
    if limit is None and store.identity.exists():
        verify_topics(store, queues.topics, findings)
    if checkpoint is not None and limit is None and log.last_store_timestamp:
        verify_times(store, checkpoint, log.last_store_timestamp, findings)
    if limit is None and epochs and epochs[-1].start > log.end:
        said = f"epoch {epochs[-1].number} begins at {epochs[-1].start}, the log ends at {log.end}"
        findings.add(store.epochs, 0, store.epochs.stat().st_size, "EPOCHS_AHEAD", said)
    return Verified(
        findings=findings,
        log=log,
        gaps=queues.gaps,
        end_of=queues.end_of,
        limit=limit,
        seconds=time.monotonic() - started,
        bytes=count.total,
        segment_size=settings.segment_size,
    )


def _facts(
    store: Store,
    settings: RecoverySettings,
    findings: Findings,
    durable: Durable | None,
    delays_ms: tuple[int, ...],
    limit: int | None,
    named: frozenset[int],
) -> Facts:
    """Lists the log. Segments that are missing before its first one are a finding."""
    bases = list_log(store.commitlog, settings.segment_size, findings, running=limit is not None)
    log_min, surely = limits_of(bases, settings.segment_size, durable)
    if limit is None and begins_too_late(durable, log_min, CheckpointFile(store.root)):
        assert durable is not None
        _report_start(store, durable.log_min, min(log_min, durable.flushed), findings)
    synced = durable.queues_durable if durable is not None else 0
    if limit is not None:
        surely = synced = limit
    closed = limit is None and not store.abort.exists()
    dispatched = partial(dispatched_behind, store.consumequeue, settings.queue_file_size) if closed else None
    bounds = LogBounds(durable=durable, limit=limit, log_min=log_min, surely=surely, dispatched=dispatched, named=named)
    return Facts(store=store, settings=settings, delays_ms=delays_ms, bounds=bounds, bases=tuple(bases), synced=synced)


def _in_order(facts: Facts, findings: Findings, progress: Callable[[int], None]) -> tuple[LogFound, QueueVerifier]:
    """The log, and what is derived from it."""
    reader, directory, whole = facts.reader(), QueueDirectory(), not facts.running
    queues, index = facts.queue_verifier(findings, directory), facts.index_verifier(findings)
    try:
        sinks: list[Sink] = [queues] if index is None else [queues, index]
        log = facts.log_verifier(reader, findings, directory).run(sinks, progress)
        queues.finish(whole=whole)
        if index is not None:
            index.finish(whole=whole)
    finally:
        reader.close()
    return log, queues


def _report_start(store: Store, recorded: int, first: int, findings: Findings) -> None:
    said = f"the log was recorded to begin at {recorded}, but nothing of it stands before {first}"
    give_up = f"`towline store repair --yes --skip {recorded}`"
    advice = f"restore the segments from a copy or another node, or give them up: {give_up}"
    findings.add(store.commitlog / segment_name(recorded), 0, first - recorded, "START_MISSING", said, remedy=advice)


def _report_gaps(store: Store, settings: RecoverySettings, log: LogFound, gaps: list[Gap], findings: Findings) -> None:
    """A number that is missing behind damage is lost with it and no finding of its own."""
    reader = CommitLogReader(store.commitlog, settings.segment_size)
    for gap in gaps:
        if not gap.twice and any(damage.start < gap.at for damage in log.damages):
            continue
        base = reader.segment_of(gap.at)
        said = (
            f"the record is number {gap.offset} of queue {gap.queue_id} of {gap.topic.decode('utf-8', 'replace')}, "
            f"where number {gap.due} is due"
        )
        at, weight, remedy = gap.at - base, Weight.DAMAGE, restore_or_skip(gap.at)
        if gap.filled:
            said, weight, remedy = f"{said}; the queue has holes for those between", Weight.NOTE, NOTHING
        elif gap.fillable:
            weight, remedy = Weight.HEALS, REPAIR
        elif gap.alone:
            said = f"{said}, and the queue goes on behind it with number {gap.due + 1}"
        rule = "QUEUE_TWICE" if gap.twice else "QUEUE_GAP"
        findings.add(reader.queue.path_of(base), at, at + 8, rule, said, weight=weight, remedy=remedy)
