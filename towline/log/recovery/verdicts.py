"""The recovery table: one row for each situation in which a start may find a file, with the verdict on it.

The observers of `state_files`, `observe_log`, `recover_derived` and `truncation` find which row applies, and recovery
carries out that row's verdict. Torn and corrupt are different verdicts: bytes that were never promised are cut off and
kept in `diverged/`, damage of durable bytes is refused. Queues and index are derived from the log, so nothing of them
is lost that the log still holds.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from towline.errors import TowlineError


class Verdict(Enum):
    ACCEPT = "the start goes on"
    HEAL = "the file is put right from what else is known"
    CUT = "the bytes are no part of the log"
    REBUILD = "queues or index are derived again from there on"
    DELETE = "the file goes: nothing was ever written to it"
    REFUSE = "the start ends before anything is changed, naming file, byte, rule and remedy"


@dataclass(frozen=True, slots=True)
class Row:
    """`kept` is where the bytes are found afterwards; `remedy` what an operator may do beside starting the node."""

    file: str
    situation: str
    verdict: Verdict
    kept: str = "-"
    remedy: str = "-"


_A, _H, _C, _B, _D, _R = Verdict
_VERIFY: Final = "`towline store verify` names it, `towline store repair --yes` heals it"
_REPAIR: Final = "`towline store repair --yes`"
_SKIP: Final = "restore the file from a copy or another node, or `towline store repair --yes --skip OFFSET`"
_GIVE_UP: Final = "`towline slave accept-loss`, then start it"
_RESTORE: Final = "restore the file from a copy or another node"
_BEGIN: Final = (
    "restore the files from a copy or another node, or `towline store repair --yes --skip OFFSET`: it begins later"
)
_REMOVE: Final = "`towline store repair --yes`: the slave's next handshake finds the point anew"
_DOUBT: Final = "`towline store repair --yes`: the node is in doubt then"
_REJOIN: Final = "restore the file from a copy, or let the node join with an empty store"
_KEPT: Final = "copied to `diverged/`"
_SIZES: Final = "set the sizes the store was made with, or `towline store repair --yes`"


class Case(Enum):
    """The rows, in the order of a start."""

    STAGED = Row("staging/*", "a segment under construction was left", _D)
    CONFIG_TORN = Row(
        "config/*.json", "torn, or does not fit its check: `.bak` is read until the next save", _H, remedy=_VERIFY
    )

    EPOCHS_ABSENT = Row("epochFileCheckpoint", "missing: all there is was written in epoch 0", _A)
    EPOCHS_TORN = Row("epochFileCheckpoint", "missing or without a length: `.bak` is read", _H)
    EPOCHS_BROKEN = Row(
        "epochFileCheckpoint",
        "does not fit its check, or epochs and offsets do not rise",
        _R,
        remedy=_RESTORE,
    )
    EPOCHS_AHEAD = Row("epochFileCheckpoint", "an epoch that begins behind the log's end", _H)
    IN_SYNC_TORN = Row("ha/in_sync.json", "one of its two copies is damaged or missing: the other one holds", _H)
    IN_SYNC_LOST = Row("ha/in_sync.json", "neither copy can be read, or it is no set", _R, remedy=_DOUBT)
    PROMISE_TORN = Row("ha/promise.json", "one of its two copies is damaged or missing: the other one holds", _H)
    PROMISE_LOST = Row("ha/promise.json", "neither copy can be read", _R, remedy=_REJOIN)
    TRUNCATED = Row("ha/truncate.json", "the master does not have the log behind this point", _C, _KEPT)
    TRUNCATION_BROKEN = Row("ha/truncate.json", "cannot be read, or does not fit its check", _R, remedy=_REMOVE)
    TRUNCATION_REFUSED = Row(
        "ha/truncate.json",
        "what it would cut off was confirmed",
        _R,
        remedy=_GIVE_UP,
    )

    STOPPED = Row("abort", "absent: the store was closed", _A)
    CRASHED = Row("abort", "present: the walk begins at the durable offset all the same", _H)
    NO_DURABLE = Row("durable", "missing: a real broker's store; the checkpoint says where the walk begins", _A)
    DURABLE_SLOT = Row("durable", "one slot is torn: the other one holds", _H)
    DURABLE_LOST = Row("durable", "neither slot is whole, another magic, another size", _R, remedy=_REPAIR)
    SYNC_FAILED = Row("durable", "a sync of the log failed", _R, remedy="`towline store mend --yes`")
    NO_CHECKPOINT = Row("checkpoint", "missing: written anew", _H)
    CHECKPOINT_BROKEN = Row("checkpoint", "short, or its fields do not fit their check: written anew", _H)

    FOREIGN = Row("commitlog/*", "a name that is no offset of a segment", _R, remedy=_REPAIR)
    SEGMENT_SIZE = Row("commitlog/*", "a file of another size that is not empty or not the last", _R, remedy=_RESTORE)
    EMPTY_LAST = Row("commitlog/*", "the last file has no length", _D)
    SPARE_SEGMENTS = Row("commitlog/*", "segments of zeros behind the active one", _D)
    SEGMENT_MISSING = Row("commitlog/*", "a segment below the durable offset is missing", _R, remedy=_RESTORE)
    START_MISSING = Row(
        "commitlog/*", "the first segments of the log as it was recorded are missing", _R, remedy=_BEGIN
    )
    SEGMENT_LOST = Row("commitlog/*", "a segment behind the durable offset is missing: what follows is cut", _C, _KEPT)
    MIN_PUBLISHED = Row("commitlog/*", "the minimum was published, the files below it are still there", _A)
    MIN_UNRECORDED = Row(
        "commitlog/*", "files were deleted by a real broker, which wrote the checkpoint last: the first file is it", _A
    )

    CORRUPT_RECORD = Row("commitlog/*", "a record below the durable offset breaks a rule", _R, remedy=_SKIP)
    CORRUPT_SIZE = Row("commitlog/*", "a size below the durable offset reaches past its segment", _R, remedy=_SKIP)
    CORRUPT_BLANK = Row("commitlog/*", "a blank below the durable offset is damaged", _R, remedy=_SKIP)
    CORRUPT_CLOSED = Row(
        "commitlog/*", "a record breaks a rule to which a queue of a store that was closed points", _R, remedy=_SKIP
    )
    TORN_RECORD = Row("commitlog/*", "a record at or behind the durable offset breaks a rule", _C, _KEPT)
    TORN_SIZE = Row("commitlog/*", "a size behind the durable offset reaches past its segment", _C, _KEPT)
    TORN_BLANK = Row("commitlog/*", "a blank behind the durable offset is damaged", _C, _KEPT)
    TORN_ON_SLAVE = Row("commitlog/*", "the durable offset lies in a record whose rest never arrived", _C, _KEPT)
    STALE_BYTES = Row("commitlog/*", "bytes behind the end, also whole records of an earlier end", _C, _KEPT)

    QUEUES_ABSENT = Row("consumequeue/", "there is no queue, though the log holds records", _B)
    QUEUE_AHEAD = Row("consumequeue/**", "entries or files behind the mark up to which queues are synced", _B)
    QUEUE_FILE_MISSING = Row("consumequeue/**", "a file between others is missing", _B)
    QUEUE_END_MISSING = Row("consumequeue/**", "the last file or a whole queue is missing (of a queue used lately)", _B)
    QUEUE_GARBAGE = Row("consumequeue/**", "the last entries are no entries, or point outside of the log", _B)
    QUEUE_HOLE = Row("consumequeue/**", "entries were never written, later ones were (near the end)", _B)
    QUEUE_SIZE = Row("consumequeue/**", "a file of another size", _R, remedy=_SIZES)
    QUEUE_EMPTY_FILE = Row("consumequeue/**", "a file without a length", _H)
    QUEUE_MISNAMED = Row("consumequeue/**", "a name that is an offset, but of no file", _R, remedy=_REPAIR)
    QUEUE_FOREIGN = Row("consumequeue/**", "other names, files and directories: nobody reads them", _A, remedy=_VERIFY)

    INDEX_ABSENT = Row("index/", "there is no file: reput indexes from the log's beginning on", _B)
    INDEX_AHEAD = Row("index/*", "entries behind the mark up to which the index is synced", _B)
    INDEX_END_MISSING = Row("index/*", "the last file is missing: reput goes on behind the last entry there is", _B)
    INDEX_HEADER = Row("index/*", "a header does not fit its file: it and later files are derived again", _B)
    INDEX_SIZE = Row("index/*", "a file of another size", _R, remedy=_SIZES)
    INDEX_UNFINISHED = Row("index/*", "a file under construction was left", _D)
    INDEX_FOREIGN = Row("index/*", "a name that is no number: nobody reads it", _A, remedy=_VERIFY)

    def __init__(self, row: Row) -> None:
        self.row = row

    @property
    def verdict(self) -> Verdict:
        return self.row.verdict


@dataclass(frozen=True, slots=True)
class Observed:
    """A situation that was found. `text` is the sentence about it for the log, `error` what a refusal raises.

    `start`: the log offset from which queues or index are derived again, where the verdict is to rebuild them.
    """

    case: Case
    text: str = ""
    error: TowlineError | None = None
    start: int = 0


@dataclass
class Decided:
    """The rows that a start applied, in order, and the sentences about them."""

    notes: list[str] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)

    def apply(self, found: Observed | None) -> Verdict:
        """The verdict to carry out; ACCEPT where nothing was found. Notes each row once, each sentence as it comes.

        Raises the error of a row that refuses.
        """
        if found is None:
            return Verdict.ACCEPT
        if found.case.verdict is Verdict.REFUSE:
            assert found.error is not None, f"{found.case.name} is refused without an error"
            raise found.error
        if found.case not in self.cases:
            self.cases.append(found.case)
        if found.text:
            self.notes.append(found.text)
        return found.case.verdict
