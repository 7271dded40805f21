"""Reading a store through the data source beside Spark's own reading of the same rows from Parquet, in turns.

All columns go to a sink that drops them; three columns are grouped. The Parquet files were written by Spark from the
same store, one for each of its tasks, and lie in the page cache as the log does. Through an endpoint the same topics of
a node are read as by its path.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from towline.client.producer import Producer
from towline.limits import MIB
from towline.node.process.context import runtime_of
from towline.pipeline.session import end, session

from .made_log import MadeLog
from .node import bench_node

THREE: Final = ("topic", "size", "storeTimestamp")
TOPICS: Final = ("orders", "payments")
MESSAGES: Final = 500_000  # of each topic, read through an endpoint
BODY: Final = 100
SEGMENT: Final = 64 * MIB
_AT_ONCE: Final = 50_000

Frames = Mapping[str, Callable[[], Any]]


def measure(log: MadeLog, directory: Path, rounds: int, note: Callable[[str], None]) -> dict[str, float]:
    """Medians: rows a second of each way, and ratios within a round."""
    directory.mkdir()
    spark = session(None, "towline bench")
    try:
        found = _files(spark, log, directory / "parquet", rounds, note)
        with bench_node(directory, SEGMENT):
            return found | _endpoint(spark, directory / "store", rounds, note)
    finally:
        end(spark)
        shutil.rmtree(directory)


def _files(
    spark: SparkSession, log: MadeLog, parquet: Path, rounds: int, note: Callable[[str], None]
) -> dict[str, float]:
    source = spark.read.format("towline").option("includeSystemTopics", "true").option("includeHalves", "true")
    whole = source.load(str(log.root))
    whole.write.parquet(str(parquet))
    os.sync()
    columns = spark.read.format("towline").option("columns", ",".join(THREE)).load(str(log.root))
    written = spark.read.parquet(str(parquet))
    took = _in_turns(
        {
            "scan_all": lambda: _drop(whole),
            "parquet_all": lambda: _drop(written),
            "scan_three": lambda: _grouped(columns),
            "parquet_three": lambda: _grouped(written.select(*THREE)),
        },
        rounds,
    )
    note(f"scan: {_rates(took, log.total)}")
    return _figures(took, log.total) | {
        "scan_all_of_parquet": _ratio(took["parquet_all"], took["scan_all"]),
        "scan_three_of_parquet": _ratio(took["parquet_three"], took["scan_three"]),
    }


def _endpoint(spark: SparkSession, store: Path, rounds: int, note: Callable[[str], None]) -> dict[str, float]:
    runtime = runtime_of(store)
    put, serve = (f"ipc://{runtime.socket(service)}" for service in ("put", "serve"))
    bodies = [b"%0*d" % (BODY, number) for number in range(_AT_ONCE)]
    with Producer(put) as producer:
        for topic in TOPICS:
            for _ in range(MESSAGES // _AT_ONCE):
                producer.send_bodies(topic, bodies)
    reader = spark.read.format("towline").option("subscribe", ",".join(TOPICS))
    by_path = reader.load(str(store))
    by_endpoint = reader.option("endpoint", serve).load()
    took = _in_turns({"path": lambda: _drop(by_path), "endpoint": lambda: _drop(by_endpoint)}, rounds)
    total = MESSAGES * len(TOPICS)
    note(f"endpoint: {_rates(took, total)}")
    return _figures(took, total) | {"endpoint_of_path": _ratio(took["path"], took["endpoint"])}


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _grouped(frame: DataFrame) -> None:
    frame.groupBy("topic").agg(f.sum("size"), f.max("storeTimestamp")).collect()


def _in_turns(runs: Frames, rounds: int) -> dict[str, list[float]]:
    """Seconds of each, after one round that is not counted: the JVM compiles, and Python's workers start."""
    took: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name in runs if number % 2 else reversed(list(runs)):
            started = time.monotonic()
            runs[name]()
            if number:
                took[name].append(time.monotonic() - started)
    return took


def _figures(took: Mapping[str, list[float]], rows: int) -> dict[str, float]:
    return {f"{name}_per_s": rows / statistics.median(seconds) for name, seconds in took.items()}


def _ratio(others: list[float], ours: list[float]) -> float:
    """Of the others' speed."""
    return statistics.median(other / own for other, own in zip(others, ours, strict=True))


def _rates(took: Mapping[str, list[float]], rows: int) -> str:
    return ", ".join(f"{name} {rows / statistics.median(seconds):,.0f} rows/s" for name, seconds in took.items())
