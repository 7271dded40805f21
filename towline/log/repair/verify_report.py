"""Findings of `towline store verify`: rows of file, bytes, rule, sentence and remedy.

A rule of a record is named as in `towline.format.record.rules`; every other rule stands in the table `FAULTS`.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final


class Weight(IntEnum):
    """How bad it is; the greatest is the exit status of `towline store verify`."""

    NOTE = 0  # worth knowing, nothing to heal
    HEALS = 1  # a start or `towline store repair` heals it without loss
    DAMAGE = 2  # records that were durable are damaged or missing, or a file cannot be read


START: Final = "start the node: recovery heals it"
REPAIR: Final = "run `towline store repair --yes`"
RESTORE: Final = "restore the file from a copy or from another node"
NOTHING: Final = "nothing to do"
PUT_ONE: Final = "put one message into the queue before a real broker gets the store"


def restore_or_skip(offset: int) -> str:
    """Of the damaged record at a log offset."""
    return f"restore the file from a copy or another node, or run `towline store repair --yes --skip {offset}`"


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that is not a record's: what it says when it is broken, how bad that is, what to do."""

    sentence: str
    weight: Weight
    remedy: str


FAULTS: Final[dict[str, Fault]] = {
    # --- commitlog/
    "MISSING": Fault("the segment does not exist", Weight.DAMAGE, RESTORE),
    "START_MISSING": Fault("the first segments of the log do not exist", Weight.DAMAGE, RESTORE),
    "SEGMENT_SIZE": Fault("the file does not have the size of a segment", Weight.DAMAGE, RESTORE),
    "EMPTY_FILE": Fault(
        "the last file has no length: a crash came between its name and its bytes", Weight.HEALS, START
    ),
    "FOREIGN": Fault("the file belongs to no such directory", Weight.HEALS, REPAIR),
    "BLANK_REMAINING": Fault("the blank does not say how many bytes are left in its segment", Weight.HEALS, REPAIR),
    "BEHIND_THE_END": Fault("bytes that are not zero stand behind the end of the log", Weight.HEALS, START),
    "TORN_TAIL": Fault("the log ends in bytes that are no whole record", Weight.HEALS, START),
    "SKIPPED": Fault("a damaged stretch was stepped over here", Weight.NOTE, NOTHING),
    "TIME_ORDER": Fault("STORETIMESTAMP is below the record's before it", Weight.NOTE, NOTHING),
    "PROPERTY_CRC_FOREIGN": Fault(
        "the `__CRC32#` that ends the properties is another record's, or bits outside of the body have flipped",
        Weight.NOTE,
        "nothing to do where clients send on what they received; else compare the record with another node's",
    ),
    "QUEUE_GAP": Fault(
        "QUEUEOFFSET is not the next of its queue: messages between are missing", Weight.DAMAGE, RESTORE
    ),
    "QUEUE_TWICE": Fault("QUEUEOFFSET was given to an earlier record of the queue", Weight.DAMAGE, RESTORE),
    "LOG_DIFFERS": Fault(
        "bytes are not those of the other store's log",
        Weight.DAMAGE,
        "look which of the two `towline store verify` calls sound, and restore the other one from it",
    ),
    # --- consumequeue/
    "QUEUE_ENTRY": Fault("the entry is not what the log says", Weight.HEALS, REPAIR),
    "QUEUE_MISSING": Fault("the entry was never written, though the log holds its record", Weight.HEALS, REPAIR),
    "QUEUE_BEHIND": Fault("the queue is behind the log", Weight.HEALS, START),
    "QUEUE_EXTRA": Fault("an entry stands here for which the log holds no record", Weight.HEALS, REPAIR),
    "QUEUE_FILLER": Fault("neither a filler nor an entry of a record deleted before", Weight.HEALS, REPAIR),
    "QUEUE_ENDS_IN_HOLE": Fault(
        "the queue ends in a hole, behind which a real broker dispatches nothing", Weight.NOTE, PUT_ONE
    ),
    "QUEUE_FILE_SIZE": Fault("the file does not have the size of a queue file", Weight.HEALS, REPAIR),
    # --- index/
    "INDEX_SIZE": Fault(
        "the file does not have the size that its numbers of slots and entries make", Weight.HEALS, REPAIR
    ),
    "INDEX_HEADER": Fault("the header does not say what the entries say", Weight.HEALS, REPAIR),
    "INDEX_SLOT": Fault("the slot does not point to the newest entry of its chain", Weight.HEALS, REPAIR),
    "INDEX_CHAIN": Fault("the entry does not point to the one before it in its slot", Weight.HEALS, REPAIR),
    "INDEX_ENTRY": Fault("the entry is not what the log says", Weight.HEALS, REPAIR),
    "INDEX_EXTRA": Fault("the entry is of no record of the log", Weight.HEALS, REPAIR),
    "INDEX_OTHERS": Fault("entries of keys that Towline does not index", Weight.NOTE, NOTHING),
    "INDEX_TWICE": Fault("the entry repeats one before: a real broker's start does that", Weight.NOTE, NOTHING),
    "INDEX_MISSING": Fault("keys of records of the log are missing before this entry", Weight.HEALS, REPAIR),
    "INDEX_BEHIND": Fault("the index is behind the log", Weight.HEALS, START),
    "INDEX_UNFINISHED": Fault("an index file under construction was left", Weight.HEALS, START),
    # --- state files
    "DURABLE_SLOT": Fault("one of the two slots is not whole; the other holds", Weight.HEALS, START),
    "DURABLE": Fault("no slot is whole: how far the log is durable is not known", Weight.DAMAGE, REPAIR),
    "NO_DURABLE": Fault("there is an identity, but no durable offset of the log", Weight.HEALS, START),
    "DURABLE_STATE": Fault("its offsets contradict each other or the log", Weight.DAMAGE, REPAIR),
    "SYNC_FAILED": Fault("a sync of the log failed", Weight.DAMAGE, "run `towline store mend --yes`"),
    "CHECKPOINT": Fault("the checkpoint is damaged, or a real broker wrote it", Weight.HEALS, START),
    "CHECKPOINT_AHEAD": Fault("a time of the checkpoint is later than any record", Weight.HEALS, START),
    "IDENTITY": Fault("no identity can be read from it", Weight.DAMAGE, REPAIR),
    "IDENTITY_CHECK": Fault("its content does not fit its check", Weight.DAMAGE, REPAIR),
    "IDENTITY_FORM": Fault("it is not laid out as it was written", Weight.HEALS, REPAIR),
    "EPOCHS": Fault("which master wrote which part of the log cannot be read from it", Weight.DAMAGE, RESTORE),
    "EPOCHS_TORN": Fault("it is missing or empty; the list before it holds", Weight.HEALS, START),
    "EPOCHS_AHEAD": Fault("an epoch begins behind the end of the log", Weight.HEALS, START),
    "EPOCHS_FORM": Fault("it is not laid out as it was written", Weight.HEALS, START),
    "WORD": Fault("one of its two copies cannot be read or is missing; the other holds", Weight.HEALS, START),
    "IN_SYNC_LOST": Fault("which nodes hold all that was acknowledged cannot be read from it", Weight.DAMAGE, REPAIR),
    "PROMISE_LOST": Fault("which master this node promised to follow cannot be read from it", Weight.DAMAGE, RESTORE),
    "SETTINGS": Fault(
        "the settings of the last start cannot be read; sizes are those of the files, the index is not compared",
        Weight.HEALS,
        START,
    ),
    "ROLE_LOST": Fault("which role this node last agreed on cannot be read from it", Weight.DAMAGE, REPAIR),
    "TRUNCATION_LOST": Fault("where this slave's log is to be cut off cannot be read from it", Weight.DAMAGE, REPAIR),
    "CONFIG": Fault("it cannot be read; the generation before it holds", Weight.HEALS, REPAIR),
    "CONFIG_LOST": Fault("neither it nor the generation before it can be read", Weight.DAMAGE, REPAIR),
    "TOPIC_UNKNOWN": Fault("topics have queues, but no configuration", Weight.NOTE, NOTHING),
    "CONFIG_FORM": Fault("it is not laid out as it was written", Weight.HEALS, REPAIR),
    "CONFIG_MEMBER": Fault("it has a member that nobody writes", Weight.HEALS, REPAIR),
    "LEFTOVER": Fault("a file under construction was left", Weight.HEALS, START),
    "UNKNOWN_FILE": Fault("the file is none of a store's", Weight.NOTE, NOTHING),
    "CLOSED_UNCLEANLY": Fault(
        "`abort` is there: the node runs, or it ended without closing the store", Weight.NOTE, START
    ),
}


def length_of(path: Path) -> int:
    """Bytes of a file; of a link that leads nowhere its own. Raises FileNotFoundError."""
    return path.stat().st_size if path.exists() else path.lstat().st_size


PER_RULE_MAX: Final = 100  # rows of one rule of one file; the rest is counted


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes [at, end) of the file at `path`, which is relative to the store."""

    path: str
    at: int
    end: int
    rule: str
    sentence: str
    remedy: str
    weight: Weight

    def row(self) -> dict[str, Any]:
        return {
            "file": self.path,
            "byte": self.at,
            "end": self.end,
            "rule": self.rule,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "weight": self.weight.name.lower(),
        }


Place = tuple[str, int, str]  # file, byte, rule


@dataclass
class Findings:
    """Collects rows. No more than PER_RULE_MAX of one rule and file are kept; `dropped` counts the others."""

    root: Path
    rows: list[Finding] = field(default_factory=list)
    dropped: dict[tuple[str, str], int] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _worst: Weight = Weight.NOTE

    def add(self, path: Path, at: int, end: int, rule: str, sentence: str = "", **other: Any) -> None:
        """A row of a rule of `FAULTS`; `sentence`, `weight` and `remedy` say it more exactly than the table."""
        fault = FAULTS.get(rule)
        weight = other.get("weight", fault.weight if fault else Weight.DAMAGE)
        remedy = other.get("remedy", fault.remedy if fault else RESTORE)
        relative = self._name(path)
        self._worst = max(self._worst, weight)
        key = (relative, rule)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] > PER_RULE_MAX:
            self.dropped[key] = self.dropped.get(key, 0) + 1
            return
        text = sentence or (fault.sentence if fault else rule)
        self.rows.append(Finding(relative, at, end, rule, text, remedy, weight))

    def drop(self, path: Path, rule: str, count: int) -> None:
        """Counts notes for which there is no room."""
        key = (self._name(path), rule)
        self._counts[key] = self._counts.get(key, 0) + count
        self.dropped[key] = self.dropped.get(key, 0) + count

    def merge(self, other: "Findings") -> None:
        """Adds the findings of another verifier of the same store."""
        for row in other.rows:
            path = self.root / row.path
            self.add(path, row.at, row.end, row.rule, row.sentence, weight=row.weight, remedy=row.remedy)
        for key, count in other.dropped.items():
            self.dropped[key] = self.dropped.get(key, 0) + count
            self._counts[key] = self._counts.get(key, 0) + count
        self._worst = max(self._worst, other.worst)

    @property
    def worst(self) -> Weight:
        return self._worst

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def places(self) -> set[Place]:
        """Of every row that is more than a note."""
        return {(row.path, row.at, row.rule) for row in self.rows if row.weight is not Weight.NOTE}

    def keep(self, places: set[Place]) -> None:
        """Leaves out every other row that is more than a note."""
        self.rows = [row for row in self.rows if not row.weight or (row.path, row.at, row.rule) in places]
        kept = {(row.path, row.rule) for row in self.rows}
        self.dropped = {key: count for key, count in self.dropped.items() if key in kept}
        self._worst = max((row.weight for row in self.rows), default=Weight.NOTE)

    def of(self, rule: str) -> list[Finding]:
        return [row for row in self.rows if row.rule == rule]
