"""Reads a source as Spark would, without a JVM: plan, pickle, read."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from towline.arrow.columns import COLUMNS
from towline.spark import planning, reading
from towline.spark.options import SourceOptions
from towline.spark.planning import ReadPlan
from towline.spark.source import TowlineDataSource

Rows = list[dict[str, Any]]
MODES = ("scan", "queue")


def planned(store: Path | None = None, columns: Iterable[str] = COLUMNS, **options: str) -> ReadPlan:
    if store is not None:
        options["path"] = str(store)
    return planning.plan(SourceOptions.parse(options), tuple(columns))


def read_plan(plan: ReadPlan) -> Rows:
    """What its tasks yield, in order; each gets its partition as a copy."""
    rows: Rows = []
    for partition in plan.partitions:
        for batch in reading.read(*pickle.loads(pickle.dumps((partition, plan.reading)))):
            rows += readable(batch.to_pylist())
    return rows


def read(store: Path | None = None, columns: Iterable[str] = COLUMNS, **options: str) -> Rows:
    return read_plan(planned(store, columns, **options))


def reader(schema: StructType | None = None, **options: str) -> DataSourceReader:
    """Of the data source, as Spark makes one on the driver."""
    source = TowlineDataSource(CaseInsensitiveDict(options))
    return source.reader(source.schema() if schema is None else schema)


def read_source(made: DataSourceReader) -> Rows:
    """As Spark does it: the reader is copied first, then it makes partitions, of which there is always one."""
    copied = pickle.dumps(made)
    partitions = made.partitions() or [InputPartition(None)]
    rows: Rows = []
    for partition in partitions:
        for batch in pickle.loads(copied).read(pickle.loads(pickle.dumps(partition))):
            rows += readable(batch.to_pylist())
    return rows


def readable(rows: Rows) -> Rows:
    """Maps are pairs in Arrow."""
    return [row | ({"properties": dict(row["properties"])} if "properties" in row else {}) for row in rows]


def by_place(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def only(rows: Rows, columns: Iterable[str]) -> Rows:
    return [{name: row[name] for name in columns} for row in rows]
