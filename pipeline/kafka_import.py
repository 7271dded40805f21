"""`kafka-import`: the topics of a stopped Kafka broker into a store, by one task for each large partition.

The work and its order are those of `towline kafka import`: what is broken off goes on with either of them. Each task
reads its partitions and writes segments of its own; small partitions share one. A task that runs twice writes the same
bytes, under a name of its own until they are whole.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from towline.errors import TowlineError
from towline.kafka.exchange.import_plan import Choices
from towline.kafka.exchange.import_report import document_of, topic_rows
from towline.kafka.exchange.importing import import_directory
from towline.places import Store

from .job import Column, Job, Result, many
from .options import option
from .progress import Progress
from .tasks import SparkTasks, Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Part = TypeVar("Part")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaImportOptions:
    source: str = option("Log directory of a stopped broker, seen by all executors.", metavar="DIR")
    store: str = option("Store directory on which no node runs, or a directory for a new one.", metavar="DIR")
    topic: tuple[str, ...] = option("Only these topics.", default=(), metavar="NAME")
    rename: tuple[str, ...] = option("Another name for a topic in the store.", default=(), metavar="OLD=NEW")
    aborted: Literal["drop", "refuse"] = option("Records of aborted transactions.", default="drop")
    open: Literal["refuse", "leave-out"] = option(
        "Of transactions without an end: leave-out stops before the first of them.", default="refuse"
    )
    tombstones: Literal["keep", "drop"] = option("Records whose value is null.", default="keep")
    holes: Literal["keep", "refuse"] = option("Offsets that no record has.", default="keep")
    too_large: Literal["refuse", "leave-out"] = option("Records that the store's limits do not take.", default="refuse")
    torn: Literal["refuse", "cut"] = option("A last batch that is not whole, as a crash leaves it.", default="refuse")
    config: str | None = option("TOML file of settings, for a store on which no node ran yet.", default=None)


@dataclass(frozen=True)
class Named:
    """Tasks whose named errors are raised as they are: Spark would try again, and tell them as a task's failure."""

    tasks: Tasks

    @property
    def parallel(self) -> int:
        return self.tasks.parallel

    def run(self, what: str, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """As Tasks do. Raises the first error of a part."""
        found = self.tasks.run(what, partial(_named, work), parts)
        for _, error in found:
            if error is not None:
                raise error
        return [done for done, _ in found]


def _named(work: Callable[[Any], Any], part: Any) -> tuple[Any, TowlineError | None]:
    try:
        return work(part), None
    except TowlineError as error:
        return None, error


def silent(_: int) -> None:
    """Spark shows how far it is."""


COLUMNS: Final = (
    Column("topic", "string", "topic in the store"),
    Column("source", "string", "topic of Kafka"),
    Column("queues", "int", "queues that it has"),
    Column("messages", "bigint", "records that became messages"),
    Column("body_bytes", "bigint", "bytes of their bodies"),
    Column("holes", "bigint", "numbers that no message has"),
    Column("control", "bigint", "control records, which end transactions"),
    Column("aborted", "bigint", "records of aborted transactions, which are left out"),
    Column("tombstones_dropped", "bigint", "records whose value is null, where they are dropped"),
    Column("left_out", "bigint", "records that are too large, where they are left out"),
    Column("left_open", "bigint", "offsets from an open transaction on, where they are left out"),
    Column("torn", "int", "partitions whose torn last batch is left out"),
)


def run(spark: "SparkSession", options: KafkaImportOptions, progress: Progress) -> Result:
    started = time.monotonic()
    choices = Choices(
        topics=options.topic,
        renames=options.rename,
        aborted=options.aborted,
        open_=options.open,
        tombstones=options.tombstones,
        holes=options.holes,
        too_large=options.too_large,
        torn=options.torn,
    )
    store = Store(Path(options.store).resolve())
    config = Path(options.config) if options.config is not None else None
    tasks = Named(SparkTasks(spark, progress))
    done = import_directory(Path(options.source), store, choices, config, tasks, silent)
    found = document_of(done, time.monotonic() - started)
    rows = [tuple(row[column.name] for column in COLUMNS) for row in topic_rows(done.plan)]
    sentence = (
        f"{many(found['messages'], 'message')} of {many(found['partitions'], 'partition')} became "
        f"{many(found['segments'], 'segment')} of {store.root}, all of them compared with their records"
    )
    summary = {name: each for name, each in found.items() if name != "topics"}
    return Result(rows=rows, summary=summary, sentence=sentence)


JOB: Final = Job(options=KafkaImportOptions, columns=COLUMNS, run=run, makes_store=True)
