"""A table that tasks make of a store's messages: each reads its partitions and hands on what `work` makes of them.

The messages themselves never pass through the JVM.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from towline.spark.planning import ReadPlan
from towline.spark.reading import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]


def scanned(spark: "SparkSession", plan: ReadPlan, work: Work, schema: str) -> "DataFrame":
    """`work` turns the messages of one partition into batches of `schema`, in Spark SQL's words."""
    return over(spark, len(plan.partitions), partial(_read_and, plan, work), schema)


def over(spark: "SparkSession", tasks: int, task: Callable[[int], Batches], schema: str) -> "DataFrame":
    """What task(0), task(1), ... give, each as a task of Spark; repeated attempts must give the same."""
    if not tasks:
        return spark.createDataFrame([], schema)
    return spark.range(0, tasks, 1, tasks).mapInArrow(partial(_each, task), schema)


def _each(task: Callable[[int], Batches], numbers: Iterable[pa.RecordBatch]) -> Batches:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from task(number)


def _read_and(plan: ReadPlan, work: Work, number: int) -> Batches:
    return work(read(plan.partitions[number], plan.reading))
