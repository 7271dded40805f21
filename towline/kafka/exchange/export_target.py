"""The directory of an export: a new log directory, or that of a broker that is stopped. One export at a time.

A partition is written below a name that a broker takes for one that is to be deleted, and put in its place by one
rename, or one exchange with the empty one that a broker made. A journal beside says what is exported, and what each
partition that is done should hold; it goes when all is done. So whatever kills an export, no half of a partition is
ever seen, and the same command goes on.
"""

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from towline.errors import MalformedFile, TowlineError
from towline.kafka.format.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from towline.kafka.format.meta_properties import NAME as META
from towline.kafka.format.partition_metadata import id_text
from towline.kafka.log.files import LOG, sync_directory, topic_partition, write_whole
from towline.kafka.log.log_directory import CLEAN_STOP, LOCK, LogDirectory, held, make
from towline.kafka.log.partition import Partition
from towline.log.files.segment_files import exchange

from .export_errors import NoRoom, OtherExport, OtherTopicId, PartitionTaken, TargetNotKnown, TargetTaken
from .export_partition import STAGED, Exported, PartitionWork, Progress, verify
from .export_source import QueueRange

JOURNAL: Final = "towline-export.json"
VERSION: Final = 1
_TOPIC_MAX: Final = 200  # of a staged name: a name of a file has 255
_CLEAN: Final = b'{"version":0,"brokerEpoch":-1}'
_NODE: Final = 1
_ROOM: Final = 16 * 1024 * 1024  # beside the records


@dataclass(frozen=True, slots=True)
class Choice:
    """A queue to export, and the topic's name at Kafka."""

    of: QueueRange
    topic: str

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.of.queue_id}"


@dataclass(slots=True)
class Target:
    """An open directory. `done` are partitions that stand in their place, by name."""

    root: Path
    into: bool
    directory: LogDirectory
    facts: dict[str, Any]
    choices: list[Choice]
    done: dict[str, Exported] = field(default_factory=dict)

    # --- the journal

    @property
    def journal(self) -> Path:
        return self.root / JOURNAL

    def begin(self, facts: Mapping[str, Any], choices: Sequence[Choice]) -> None:
        """Takes up the export of before, with its ends, where one has put something in place. Writes nothing. Raises
        OtherExport, MalformedFile."""
        self.facts, self.choices = dict(facts), list(choices)
        if self.journal.exists():
            self._take_up()
        self.clear()

    def _take_up(self) -> None:
        lines = self.journal.read_bytes().split(b"\n")[:-1]  # what a kill has cut off is not done
        try:
            known = json.loads(lines[0])
            differs = [name for name in ("version", *self.facts) if known[name] != (self.facts | _VERSIONED)[name]]
            rows = {(row["topic"], row["queue"]): row for row in known["partitions"]}
            self.done = {row["name"]: Exported.of_document(row) for row in map(json.loads, lines[1:])}
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise MalformedFile(str(self.journal), f"it notes no export: {error!r}") from None
        if not self.done:
            return
        now = {(each.of.topic, each.of.queue_id) for each in self.choices}
        if not differs and set(rows) != now:
            differs = ["the queues"]
        if differs:
            raise OtherExport(str(self.journal), f"{', '.join(differs)} differ")
        self.choices = [_as_noted(each, rows[each.of.topic, each.of.queue_id]) for each in self.choices]

    def note(self) -> None:
        """Writes the journal, before the first partition is written: a line of what is exported, one of each that is
        done."""
        rows = [
            {"topic": each.of.topic, "queue": each.of.queue_id, "start": each.of.start, "end": each.of.end}
            for each in self.choices
        ]
        head = self.facts | _VERSIONED | {"partitions": rows}
        write_whole(self.journal, b"".join(map(_line, (head, *(one.document() for one in self.done.values())))))

    def note_done(self, done: Exported) -> None:
        """One more line, durably."""
        self.done[done.name] = done
        with self.journal.open("ab") as file:
            file.write(_line(done.document()))
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Removes what was written and is not in place."""
        for left in self.root.glob(f"*{STAGED}"):
            shutil.rmtree(left, ignore_errors=True)

    def forget(self) -> None:
        """Of an export that has put nothing in place there is nothing to go on with."""
        if not self.done:
            self.journal.unlink(missing_ok=True)

    # --- partitions

    def topic_ids(self, given: Mapping[str, UUID]) -> dict[str, UUID | None]:
        """Of each topic, by its partitions that are there, or as given. Raises TargetNotKnown, OtherTopicId,
        PartitionTaken."""
        found: dict[str, UUID | None] = {}
        for each in self.choices:
            known = self._known_id(each, given)
            if known is None and self.into:
                raise self._unknown(each)
            if found.setdefault(each.topic, known) != known:
                path = str(self.root / each.name)
                raise OtherTopicId(path, str(known), str(found[each.topic]))
        return found

    def _known_id(self, choice: Choice, given: Mapping[str, UUID]) -> UUID | None:
        path = self.root / choice.name
        wanted = given.get(choice.topic)
        if not any(path.glob(f"*{LOG}")):
            return wanted
        partition = Partition(path)
        if self.into and choice.name not in self.done:
            refuse_records(partition)
        known = partition.topic_id
        if wanted is not None and known not in (None, wanted):
            raise OtherTopicId(str(path), id_text(known) if known else "none", id_text(wanted))
        return known or wanted

    def _unknown(self, choice: Choice) -> TargetNotKnown:
        queues = 1 + max(each.of.queue_id for each in self.choices if each.topic == choice.topic)
        there = any(self.root.glob(f"{choice.topic}-*/*{LOG}"))
        words = f"--alter --topic {choice.topic} --partitions {queues}"
        if not there:
            kept = "--replication-factor 1 --config retention.ms=-1"
            words = f"--create --topic {choice.topic} --partitions {queues} {kept}"
        return TargetNotKnown(str(self.root), choice.name, f"kafka-topics.sh --bootstrap-server HOST:PORT {words}")

    def staging_of(self, choice: Choice) -> Path:
        """A directory for work on it; a broker that finds it deletes it."""
        mark = zlib.crc32(choice.topic.encode())
        return self.root / f"{choice.topic[:_TOPIC_MAX]}-{choice.of.queue_id}.{mark:08x}{STAGED}"

    def is_done(self, choice: Choice, progress: Progress) -> bool:
        """Whether the partition stands in its place, and holds what it should: it is read and compared."""
        expected, path = self.done.get(choice.name), self.root / choice.name
        if expected is None or not any(path.glob(f"*{LOG}")):
            return False
        if self.into and is_new(Partition(path)):
            return False  # the broker's own: it was not exchanged yet
        try:
            verify(path, expected, progress)
        except TowlineError as error:
            if self.into:  # a broker may have written there since
                why = f"is not what an export before has put there ({error.describe()})"
                raise PartitionTaken(str(path), why) from None
            shutil.rmtree(path)
            return False
        return True

    def publish(self, choice: Choice, work: PartitionWork, done: Exported) -> None:
        """Puts a partition that was written, synced and compared in its place."""
        self.note_done(done)
        target = self.root / choice.name
        if target.exists():
            if self.into:
                refuse_records(Partition(target))
            if not exchange(work.staged, target):
                target.rename(Path(work.staging) / "before")
                work.staged.rename(target)
        else:
            work.staged.rename(target)
        sync_directory(self.root)
        shutil.rmtree(work.staging)  # with what stood there

    def finish(self) -> None:
        """The checkpoints of a clean stop. The journal goes last."""
        names = [topic_partition(self.root / each.name) for each in self.choices]
        ends = {name: each.of.end for name, each in zip(names, self.choices, strict=True)}
        for checkpoint in (RECOVERY_POINTS, HIGH_WATERMARKS):
            self.directory.keep(checkpoint, self.directory.offsets(checkpoint) | ends)
        starts = self.directory.offsets(LOG_STARTS)  # the first segment begins there: a broker notes no more
        self.directory.keep(LOG_STARTS, {name: start for name, start in starts.items() if name not in ends})
        if not self.into:
            write_whole(self.root / CLEAN_STOP, _CLEAN)
        self.journal.unlink()
        sync_directory(self.root)


_VERSIONED: Final = {"version": VERSION}


@contextmanager
def opened(root: Path, *, into: bool) -> Iterator[Target]:
    """No broker, and no other export, works there meanwhile. Raises TargetTaken, LogInUse, NoLogDirectory."""
    if into:
        directory = LogDirectory(root)
    else:
        _check_new(root)
        root.mkdir(parents=True, exist_ok=True)
    with held(root):
        if not into:
            known = (root / META).exists()
            directory = LogDirectory(root) if known else make(root, id_text(uuid4()), _NODE)
        yield Target(root, into, directory, {}, [])


def _check_new(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise TargetTaken(str(root), "it is no directory")
    if not root.is_dir() or (root / JOURNAL).exists():
        return
    mine = {LOCK, META, f"{META}.tmp", f"{JOURNAL}.tmp"}  # of an export that ended before its journal stood
    if {path.name for path in root.iterdir()} - mine:
        raise TargetTaken(str(root), "it is not empty")


def check_room(root: Path, wanted: int) -> None:
    """Raises NoRoom."""
    there = next(path for path in (root, *root.absolute().parents) if path.exists())
    facts = os.statvfs(there)
    free = facts.f_bavail * facts.f_frsize
    if wanted + _ROOM > free:
        raise NoRoom(str(root), wanted + _ROOM, free)


def is_new(partition: Partition) -> bool:
    """Whether it is as a broker makes it."""
    return not any(segment.size or segment.base for segment in partition.segments)


def refuse_records(partition: Partition) -> None:
    """Raises PartitionTaken unless it is as a broker makes it."""
    if any(segment.size for segment in partition.segments):
        raise PartitionTaken(str(partition.directory), "has records")
    if partition.segments[0].base:
        raise PartitionTaken(str(partition.directory), f"begins at offset {partition.segments[0].base}")


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _as_noted(choice: Choice, row: Mapping[str, int]) -> Choice:
    """To the end that the first attempt saw; from where the store begins by now."""
    end = int(row["end"])
    start = min(max(int(row["start"]), choice.of.start), end)
    return Choice(QueueRange(choice.of.topic, choice.of.queue_id, start, end), choice.topic)
