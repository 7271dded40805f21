"""Topics of a store as Kafka's log directories: written queue by queue, put in place, with what did not cross."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from towline.kafka.format.batch import Compression
from towline.log.queues.consume_queue import is_filler
from towline.spark.stores import StoreFacts

from .export_choice import ExportChoices, Source
from .export_partition import Exported, PartitionWork, Progress
from .export_source import ENTRIES_MAX, QueueRange
from .export_target import Target, check_room, opened
from .export_waiting import Waiting

COMPRESSED_SHARE: Final = 4  # room for a quarter is asked for where batches are compressed

# In the order of the works; each with the directory where it was done.
Worker = Callable[[StoreFacts, Sequence[PartitionWork], Progress], Iterator[tuple[PartitionWork, Exported]]]


@dataclass(slots=True)
class ExportResult:
    """What stands in place now. `kept` were there from an attempt before."""

    root: Path
    into: bool
    partitions: list[Exported]
    left_topics: dict[str, str]
    waiting: list[Waiting]
    kept: int = 0
    seconds: float = 0.0

    @property
    def messages(self) -> int:
        return sum(each.digest.count for each in self.partitions)

    @property
    def damaged(self) -> int:
        return sum(each.damaged for each in self.partitions)

    @property
    def left_properties(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for each in self.partitions:
            found.update(each.left_out)
        return dict(sorted(found.items()))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "directory": str(self.root),
            "into": self.into,
            "messages": self.messages,
            "bytes": sum(each.digest.bytes for each in self.partitions),
            "log_bytes": sum(each.log_bytes for each in self.partitions),
            "holes": sum(each.holes for each in self.partitions),
            "damaged": self.damaged,
            "damages": [said for each in self.partitions for said in each.damages],
            "largest_batch": max((each.largest_batch for each in self.partitions), default=0),
            "left_out": {
                "properties": self.left_properties,
                "topics": self.left_topics,
                "undelivered": [each.document() for each in self.waiting],
            },
            "kept": self.kept,
            "verified": True,
            "seconds": round(self.seconds, 3),
            "partitions": [_row(each) for each in self.partitions],
        }


def export(choices: ExportChoices, source: Source, worker: Worker, progress: Progress) -> ExportResult:
    """Raises TargetTaken, LogInUse, NoLogDirectory, OtherExport, TargetNotKnown, PartitionTaken, OtherTopicId, NoRoom,
    DamagedSource, GoneMeanwhile, NotAsExported, OSError."""
    began = time.monotonic()
    with opened(choices.root, into=choices.into is not None) as target:
        target.begin(choices.noted(), source.choices)
        done = _into(target, choices, source.facts, worker, progress)
        target.finish()
    partitions = [target.done[each.name] for each in target.choices]
    seconds = time.monotonic() - began
    return ExportResult(choices.root, target.into, partitions, source.left_topics, source.waiting, done, seconds)


def _into(target: Target, choices: ExportChoices, facts: StoreFacts, worker: Worker, progress: Progress) -> int:
    """Everything that is not done yet; how many partitions were."""
    ids = target.topic_ids(choices.topic_ids)
    todo = [each for each in target.choices if not target.is_done(each, progress)]
    share = 1 if choices.form.compression is Compression.NONE else COMPRESSED_SHARE
    check_room(target.root, sum(_bytes_of(facts, each.of) for each in todo) // share)
    works = [
        PartitionWork(
            of=each.of,
            topic=each.topic,
            topic_id=ids[each.topic],
            form=choices.form,
            refuse_damaged=choices.damaged == "refuse",
            staging=str(target.staging_of(each)),
        )
        for each in todo
    ]
    target.note()
    try:
        for each, (work, exported) in zip(todo, worker(facts, works, progress), strict=True):
            target.publish(each, work, exported)
    finally:
        target.clear()
        target.forget()
    return len(target.choices) - len(todo)


def _bytes_of(facts: StoreFacts, of: QueueRange) -> int:
    """Of the records in the log, by their entries."""
    files, total, at = facts.queue_files(), 0, of.start
    try:
        while at < of.end:
            entries = files.raw(of.topic, of.queue_id, at, min(ENTRIES_MAX, of.end - at))
            total += int(np.where(is_filler(entries), 0, entries["record_size"]).sum())
            at += len(entries)
    finally:
        files.close()
    return total


def _row(each: Exported) -> dict[str, Any]:
    return {
        "partition": each.name,
        "start": each.start,
        "end": each.end,
        "messages": each.digest.count,
        "holes": each.holes,
        "damaged": each.damaged,
        "bytes": each.digest.bytes,
        "log_bytes": each.log_bytes,
    }
