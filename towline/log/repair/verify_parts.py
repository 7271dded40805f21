"""Verification of a store by parallel tasks, one for each segment or index file, with the findings of one pass.

Each task verifies a segment by itself, with the same three verifiers. Checks across segments follow when all parts are
there: queue offsets without gaps, times that rise, consecutive entries of the index. Where one fails, which is rare,
the stretch is verified again in order, so that the findings do not depend on how the work was split.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import Checks
from towline.log.recovery.recovery import RecoverySettings
from towline.log.state.queue_minima import offsets_of, read_minima
from towline.log.state.topics_file import read_table
from towline.places import Store

from .verify_index import FileFacts, IndexPart, IndexVerifier
from .verify_log import LogBounds, LogFound, LogVerifier, SegmentPart, Sink
from .verify_queues import Bases, QueuePart, QueueVerifier
from .verify_report import Findings

# Runs a function on each of the given parts, anywhere, and hands back what it made of them, in order.
Run = Callable[[str, Callable[[Any], Any], Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts by which every task compares log, queues and index. Queues and index are `synced` up to there.

    `bases` are those of segments that can be read, `queues` those of queue files, where somebody listed them.
    """

    store: Store
    settings: RecoverySettings
    delays_ms: tuple[int, ...]
    bounds: LogBounds
    bases: tuple[int, ...]
    synced: int
    queues: Bases | None = None

    @property
    def running(self) -> bool:
        return self.bounds.limit is not None

    def reader(self) -> CommitLogReader:
        reader = CommitLogReader(self.store.commitlog, self.settings.segment_size)
        reader.queue.adopt(list(self.bases))
        return reader

    def log_verifier(self, reader: CommitLogReader, findings: Findings, directory: QueueDirectory) -> LogVerifier:
        form = self.bounds.durable is not None
        checks = Checks(crc=True, form=form, property_crc=self.settings.force_property_crc)
        return LogVerifier(reader, findings, self.bounds, checks, directory, self.delays_ms)

    def queue_verifier(self, findings: Findings, directory: QueueDirectory) -> QueueVerifier:
        return QueueVerifier(
            self.store.consumequeue,
            self.settings.queue_file_size,
            findings,
            directory,
            log_min=self.bounds.log_min,
            surely=self.synced,
            running=self.running,
            floors=partial(_floors, self.store),
            bases=self.queues,
        )

    def index_verifier(self, findings: Findings, *, apart: bool = False) -> IndexVerifier | None:
        """None where there is no index."""
        if self.settings.index_slots is None:
            return None
        return IndexVerifier(
            self.store.index,
            self.settings.index_slots,
            self.settings.index_indexes,
            findings,
            log_min=self.bounds.log_min,
            surely=self.synced,
            running=self.running,
            apart=apart,
        )


@dataclass(frozen=True, slots=True)
class VerifiedSegment:
    """The result of a task on a segment; `log` is None when the segment was deleted meanwhile."""

    log: SegmentPart | None
    queues: QueuePart
    index: IndexPart | None
    findings: Findings


def verify_segment(facts: Facts, base: int) -> VerifiedSegment:
    """One task: log, queues and index of the records of one segment."""
    findings, directory, reader = Findings(facts.store.root), QueueDirectory(), facts.reader()
    log = facts.log_verifier(reader, findings, directory)
    queues = facts.queue_verifier(Findings(facts.store.root), directory)
    index = facts.index_verifier(Findings(facts.store.root), apart=True)
    try:
        sinks: list[Sink] = [queues]
        if index is not None:
            index.begin_at(base)
            sinks.append(index)
        part = log.part(base, sinks, lambda _: None)
        return VerifiedSegment(part, queues.part(), index.part() if index is not None else None, findings)
    finally:
        if index is not None:
            index.close()
        reader.close()


def verify_index_file(facts: Facts, file: FileFacts) -> Findings:
    """One task: slots, chains and header of an index file."""
    findings = Findings(facts.store.root)
    index = facts.index_verifier(Findings(facts.store.root), apart=True)
    assert index is not None
    try:
        index.check_file(file, findings, whole=not facts.running)
    finally:
        index.close()
    return findings


def verify_log_in_parts(facts: Facts, findings: Findings, run: Run) -> tuple[LogFound, QueueVerifier]:
    """Log, queues and index, verified by the tasks that `run` distributes."""
    return _Parts(facts, findings, run).verify()


class _Parts:
    def __init__(self, facts: Facts, findings: Findings, run: Run) -> None:
        self._facts, self._findings, self._run = facts, findings, run
        self._directory = QueueDirectory()
        self._reader = facts.reader()
        self._log = facts.log_verifier(self._reader, findings, self._directory)
        self._queues = facts.queue_verifier(findings, self._directory)
        self._segments: dict[int, VerifiedSegment] = {}
        self._index: list[IndexPart] = []

    def verify(self) -> tuple[LogFound, QueueVerifier]:
        whole = not self._facts.running
        try:
            bases = [base for base in self._log.bases if base in self._facts.bases]
            facts = replace(self._facts, queues=self._queues.bases)
            results = self._run("segments", partial(verify_segment, facts), bases)
            self._segments = dict(zip(bases, results, strict=True))
            found = self._log.together(self._part_of, lambda _: None)
            self._queues.finish(whole=whole)
            self._verify_index(whole=whole)
        finally:
            self._reader.close()
        return found, self._queues

    def _part_of(self, base: int) -> SegmentPart | None:
        result = self._segments[base]
        if result.log is None:
            return None
        self._findings.merge(result.findings)
        if result.index is not None:
            self._index.append(result.index)
        if not self._queues.absorb(result.queues):
            again = self._facts.log_verifier(self._reader, Findings(self._facts.store.root), self._directory)
            again.part(base, [self._queues], lambda _: None)
        return result.log

    def _verify_index(self, *, whole: bool) -> None:
        index = self._facts.index_verifier(self._findings)
        if index is None:
            return
        try:
            if not index.absorb(self._index, whole=whole):
                again = self._facts.log_verifier(self._reader, Findings(self._facts.store.root), QueueDirectory())
                again.run([index], lambda _: None)
            index.finish(whole=whole, chains=False)
            files = [index.facts(number) for number in range(index.file_count)]
        finally:
            index.close()
        for findings in self._run("index files", partial(verify_index_file, self._facts), files):
            self._findings.merge(findings)


def _floors(store: Store) -> dict[tuple[bytes, int], int]:
    """(topic, queue id) -> the number below which a queue need not have its entries."""
    deleted, cut = read_table(store).floors(), offsets_of(read_minima(store))
    return {queue: max(deleted.get(queue, 0), cut.get(queue, 0)) for queue in {**deleted, **cut}}
