"""The one session of a test run: small, quick to start, and with tasks that are tried again."""

import tempfile
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.requirements import need
from towline.loadtest.bench.spark_stream import LOW_LATENCY
from towline.pipeline.session import java_missing, running

from .class_archive import JAVA_OPTIONS, Making, java_options

MASTER = "local[2,3]"  # a task is tried three times
TEST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
}
QUICK = LOW_LATENCY | TEST  # most batches of tests hold few rows


def small_session(archive: Making | None = None) -> Iterator[SparkSession]:
    """For a fixture of session scope. Skips, or fails, where there is no Java. Makes the `archive` if one is given."""
    problem = java_missing()
    need({} if problem is None else {"java": problem})
    options = java_options() if archive is None else archive.options
    with (
        tempfile.TemporaryDirectory() as tables,
        running(MASTER, "tests", QUICK | {JAVA_OPTIONS: options, "spark.sql.warehouse.dir": tables}) as made,
    ):
        jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
        yield made
    if archive is not None:
        archive.keep(jvm)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield from small_session()
