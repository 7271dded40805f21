"""One task for each part of a job's work. On Spark: `mapInArrow` over numbers, with parts and results as pickles.

A task decodes and writes by itself and hands back a manifest, so next to nothing passes through the JVM.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from .progress import Progress, is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAVE: Final = 4  # tasks for each core before the driver publishes what is done
# A server of Spark Connect shows no context: a range without a number of partitions has as many as run at once.
_PARALLEL: Final = "select count(distinct part) from (select spark_partition_id() as part from range(65536))"
_DONE: Final = pa.schema([pa.field("done", pa.binary(), nullable=False)])

Part = TypeVar("Part")
Done = TypeVar("Done")


class Tasks(Protocol):
    """What runs tasks."""

    @property
    def parallel(self) -> int:
        """How many run at once."""
        ...

    def run(self, what: str, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """`work` of each part, in order. Function and parts are pickled; a part may be worked on more than once."""
        ...


@dataclass(frozen=True)
class SparkTasks:
    spark: "SparkSession"
    progress: Progress

    @property
    def parallel(self) -> int:
        if not is_remote(self.spark):
            return self.spark.sparkContext.defaultParallelism
        return int(self.spark.sql(_PARALLEL).collect()[0][0])

    def run(self, what: str, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        if not parts:
            return []
        with self.progress.stage(self.spark, what):
            numbers = self.spark.range(0, len(parts), 1, len(parts))
            made = numbers.mapInArrow(partial(_work_on, work, [pickle.dumps(part) for part in parts]), "done binary")
            return [pickle.loads(row.done) for row in made.collect()]


def waves(parts: Sequence[Part], tasks: Tasks) -> Iterator[Sequence[Part]]:
    """The parts, so many at a time that what is done can be published before the next ones begin."""
    step = WAVE * max(1, tasks.parallel)
    for first in range(0, len(parts), step):
        yield parts[first : first + step]


def _work_on(
    work: Callable[[Any], Any], parts: Sequence[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The task: the numbers of its partition, which are one."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            done = pickle.dumps(work(pickle.loads(parts[number])))
            yield pa.record_batch([pa.array([done], pa.binary())], schema=_DONE)
