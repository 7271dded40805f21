"""Observers of the CommitLog: the rows of the recovery table that apply to its files, its end and the bytes behind."""

from collections.abc import Iterator
from pathlib import Path

from towline.errors import CorruptLog, ForeignFile, SegmentSizeMismatch
from towline.format.files.durable import Durable
from towline.format.record.rules import Rule
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import LogEnd
from towline.log.files.mapped_file_queue import MappedFileQueue
from towline.log.queues.queue_tail_check import dispatched_behind
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import begins_too_late
from towline.places import Store

from .verdicts import Case, Observed

_MISSING, _START_MISSING = "MISSING", "START_MISSING"
_TOTALSIZE_BYTES = 4


def observe_names(log: CommitLogReader) -> Observed | None:
    """Loads the directory; names and lengths of its files."""
    try:
        log.load()
    except ForeignFile as error:
        return Observed(Case.FOREIGN, error=error)
    except SegmentSizeMismatch as error:
        return Observed(Case.SEGMENT_SIZE, error=error)
    return None


def observe_beginning(log: CommitLogReader, store: Store, durable: Durable | None, log_min: int) -> Iterator[Observed]:
    """The files against what is recorded of them, where the log begins at `log_min`.

    A deletion may have been published but not finished, or finished but not recorded.
    """
    queue = log.queue
    if not queue.bases:
        if durable is not None and durable.flushed > durable.log_min:
            yield _missing(Case.SEGMENT_MISSING, log, durable.flushed - 1)
        return
    if durable is not None and begins_too_late(durable, queue.min_offset, CheckpointFile(store.root)):
        yield _missing(Case.START_MISSING, log, durable.log_min)
    if durable is not None and queue.min_offset != durable.log_min:
        yield Observed(Case.MIN_PUBLISHED if queue.min_offset < log_min else Case.MIN_UNRECORDED)
    ends = (base + log.segment_size for base in queue.bases)
    gap = next((at for at in ends if at > log_min and queue.base_of(at) is None), None)
    if gap is not None and gap < queue.end and (durable is None or gap < durable.flushed):
        yield _missing(Case.SEGMENT_MISSING, log, gap)


def observe_corrupt(log: CommitLogReader, error: CorruptLog) -> Observed:
    """Damage below the durable offset, as a walk or a scan of the log reports it."""
    if error.rule == _MISSING:
        return Observed(Case.SEGMENT_MISSING, error=error)
    if error.rule == Rule.SIZE_PAST_END.name:
        return Observed(Case.CORRUPT_SIZE, error=error)
    blank = _is_blank(log, int(Path(error.path).name) + error.at)
    return Observed(Case.CORRUPT_BLANK if blank else Case.CORRUPT_RECORD, error=error)


def observe_promised(
    log: CommitLogReader, store: Store, queue_file_size: int, durable: Durable | None, end: LogEnd
) -> Observed | None:
    """A closed store whose walk ends at `end`: a bad record to which a queue points is corrupt, wherever it stands."""
    base = log.queue.base_of(end.end)
    if base is None or (durable is not None and durable.flushed == end.end):
        return None
    if dispatched_behind(store.consumequeue, queue_file_size, end.end) is None:
        return None
    rule = Rule.SIZE_TOO_SMALL if end.rule is Rule.OK else end.rule
    said = f"{rule.sentence}; the store was closed, and a queue points to this record"
    error = CorruptLog(str(log.queue.path_of(base)), end.end - base, rule.name, said)
    return Observed(Case.CORRUPT_CLOSED, error=error)


def observe_end(log: CommitLogReader, durable: Durable | None, end: LogEnd) -> Iterator[Observed]:
    """Why the log ends where it does; nothing for one that ends with zeros or with its last segment."""
    if end.rule is not Rule.OK:
        case = Case.TORN_BLANK if _is_blank(log, end.end) else Case.TORN_RECORD
        text = f"the log ends at {end.end}: the bytes there are no whole record ({end.rule.name})"
        yield Observed(Case.TORN_SIZE if end.rule is Rule.SIZE_PAST_END else case, text)
    if durable is not None and durable.flushed > end.end:
        yield Observed(Case.TORN_ON_SLAVE, f"the log ends at {end.end}: the rest of the record never arrived")
    behind = [base for base in log.queue.bases if base >= end.end]
    if behind and end.end % log.segment_size == 0 and behind[0] != end.end:
        text = f"segment {log.queue.path_of(end.end).name} is missing: the log ends before it"
        yield Observed(Case.SEGMENT_LOST, text)


def observe_empty_last(queue: MappedFileQueue) -> Observed | None:
    empty = any(path.stat().st_size == 0 for path in queue.directory.iterdir())
    return Observed(Case.EMPTY_LAST) if empty else None


def observe_behind(written: int, *, active: bool) -> Observed | None:
    """What a segment holds behind the log's end: `written` bytes up to the last that is not zero.

    `active`: the segment to append to, which holds zeros there.
    """
    if written > 0:
        return Observed(Case.STALE_BYTES)
    return None if active else Observed(Case.SPARE_SEGMENTS)


def _missing(case: Case, log: CommitLogReader, offset: int) -> Observed:
    base = log.segment_of(offset)
    at, rule = (offset - base, _START_MISSING) if case is Case.START_MISSING else (0, _MISSING)
    return Observed(case, error=CorruptLog(str(log.queue.path_of(base)), at, rule, "the segment does not exist"))


def _is_blank(log: CommitLogReader, at: int) -> bool:
    """Whether the size that stands there is that of the rest of the segment."""
    rest = log.segment_size - at % log.segment_size
    return rest >= _TOTALSIZE_BYTES and int.from_bytes(bytes(log.slice(at, at + _TOTALSIZE_BYTES)), "big") == rest
