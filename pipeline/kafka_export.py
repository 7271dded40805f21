"""`kafka-export`: topics of a store as Kafka's partitions, one task a queue.

What a task writes and compares is what `towline kafka export` does; the driver holds the directory and puts partitions
in their place as waves of tasks end. So a run that is killed leaves whole partitions, and the next one goes on.
"""

import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from towline.errors import TowlineError
from towline.kafka.exchange.export import ExportResult, export
from towline.kafka.exchange.export_choice import source_of
from towline.kafka.exchange.export_partition import Exported, PartitionWork, staging_beside, write_partition
from towline.kafka.exchange.export_target import JOURNAL
from towline.kafka.exchange.export_words import SEGMENT_MAX, Asked
from towline.spark.stores import StoreFacts

from .errors import IllegalOption, ScratchNotSeen
from .job import Column, Job, Result, many
from .options import option, store_option
from .progress import Progress
from .tasks import SparkTasks, Tasks, waves

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPT: Final = 8  # characters of its name


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaExportOptions:
    store: str = store_option("Store directory of a node, running or stopped.")
    topic: tuple[str, ...] = option("Only this topic; give it several times.", default=(), metavar="NAME")
    out: str | None = option("A new log directory, which executors see too.", default=None, metavar="DIR")
    into: str | None = option(
        "Log directory of a stopped broker that made the topics; executors see it too.", default=None, metavar="DIR"
    )
    rename: tuple[str, ...] = option(
        "Another name for a topic at Kafka; give it several times.", default=(), metavar="OLD=NEW"
    )
    topic_id: tuple[str, ...] = option(
        "Kafka's id of a topic, where no file has it; give it several times.", default=(), metavar="TOPIC=ID"
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = option("Of batches.", default="none")
    batch_bytes: int = option(
        "Bytes of a batch before compression; one message may have more.", default=64 * 1024, least=1024
    )
    segment_bytes: int = option(
        "Bytes of a segment, as segment.bytes of the topic.", default=1024 * 1024 * 1024, least=1024 * 1024
    )
    damaged: Literal["refuse", "leave-out"] = option(
        "Messages that are not as they were stored: refuse, or leave out as holes.", default="refuse"
    )
    undelivered: Literal["leave-out", "refuse"] = option(
        "Delayed messages that are not due, and halves of open transactions.", default="leave-out"
    )

    def __post_init__(self) -> None:
        if self.segment_bytes > SEGMENT_MAX:
            raise IllegalOption("segment_bytes", f"{self.segment_bytes} is more than {SEGMENT_MAX}")
        self.asked().choices()

    def asked(self) -> Asked:
        return Asked(
            store=Path(self.store),
            topics=self.topic,
            out=Path(self.out) if self.out is not None else None,
            into=Path(self.into) if self.into is not None else None,
            renames=self.rename,
            topic_ids=self.topic_id,
            compression=self.compression,
            batch_bytes=self.batch_bytes,
            segment_bytes=self.segment_bytes,
            damaged=self.damaged,
            undelivered=self.undelivered,
        )


COLUMNS: Final = (
    Column("partition", "string", "topic and number"),
    Column("start", "bigint", "first offset"),
    Column("end", "bigint", "behind the last offset"),
    Column("messages", "bigint", "records in it"),
    Column("holes", "bigint", "offsets that no record has"),
    Column("damaged", "bigint", "messages among them that were damaged"),
    Column("bytes", "bigint", "of the log"),
)


def kafka_export(options: KafkaExportOptions, tasks: Tasks) -> ExportResult:
    """Raises what `export` does, and ScratchNotSeen where executors see another directory."""
    choices = options.asked().choices()
    return export(choices, source_of(choices), partial(_in_waves, tasks), lambda _: None)


def _in_waves(
    tasks: Tasks, facts: StoreFacts, works: Sequence[PartitionWork], progress: object
) -> Iterator[tuple[PartitionWork, Exported]]:
    for wave in waves(works, tasks):
        for done in tasks.run("partitions", partial(write_one, facts), wave):
            if isinstance(done, TowlineError):
                raise done
            yield done


def write_one(facts: StoreFacts, work: PartitionWork) -> tuple[PartitionWork, Exported] | TowlineError:
    """The task. Each attempt has a directory of its own. What is refused is returned: a retry would meet it again."""
    root = Path(work.staging).parent
    if not (root / JOURNAL).is_file():
        return ScratchNotSeen(str(root), socket.gethostname())
    own = replace(work, staging=staging_beside(work.staging, uuid.uuid4().hex[:_ATTEMPT]))
    try:
        return own, write_partition(facts, own, lambda _: None)
    except TowlineError as error:
        return error


# --- the job


def run(spark: "SparkSession", options: KafkaExportOptions, progress: Progress) -> Result:
    done = kafka_export(options, SparkTasks(spark, progress))
    rows = [
        (each.name, each.start, each.end, each.digest.count, each.holes, each.damaged, each.log_bytes)
        for each in done.partitions
    ]
    summary = {name: value for name, value in done.document().items() if name != "partitions"}
    sentence = (
        f"{many(done.messages, 'message')} in {many(len(done.partitions), 'partition')} stand in {done.root}, "
        "each compared with the store"
    )
    return Result(rows=rows, summary=summary, sentence=sentence)


JOB: Final = Job(options=KafkaExportOptions, columns=COLUMNS, run=run)
