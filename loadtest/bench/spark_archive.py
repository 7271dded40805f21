"""`archive`, which decodes and writes in one task, beside `df.write.parquet` over the data source, in turns.

Both write the same messages of full segments, all columns, zstd of the same level. What `archive` does besides is not
taken off: it checks every CRC, sorts by topic and day, syncs its files, reads them back, publishes manifests. Once
`df.write.parquet` parts by topic and day, too, which then leaves the same files.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.progress import Progress
from towline.pipeline.session import end, session
from towline.pipeline.tasks import SparkTasks

from .made_log import MadeLog

CODEC: Final = "zstd"
LEVEL: Final = "1"  # pyarrow's; the JVM's writer would take 3
PARTED: Final = ("topic", "day")


def measure(log: MadeLog, rounds: int, note: Callable[[str], None]) -> dict[str, float]:
    """Medians: seconds of each, their ratio in a round, and log bytes a second of the archive.

    `parted_s` is of the one run of `df.write.parquet` by topic and day.
    """
    spark = session(None, "towline bench")
    directory = log.root.parent / "archived"
    directory.mkdir()
    try:
        return _measured(spark, log, rounds, directory, note)
    finally:
        end(spark)
        shutil.rmtree(directory)


def _measured(
    spark: SparkSession, log: MadeLog, rounds: int, directory: Path, note: Callable[[str], None]
) -> dict[str, float]:
    whole = log.end // log.segment_size * log.segment_size
    _fused(spark, log, directory, most=1)  # the JVM's code, and a Python worker for each core
    _source(spark, log, directory, min(whole, log.segment_size))
    fused: list[float] = []
    source: list[float] = []
    for number in range(rounds):
        runs: list[Callable[[], None]] = [
            lambda: fused.append(_fused(spark, log, directory)),
            lambda: source.append(_source(spark, log, directory, whole)),
        ]
        for run in runs if number % 2 else reversed(runs):
            run()
        note(f"archive: {fused[-1]:.2f} s in one task each, {source[-1]:.2f} s through the JVM")
    parted = _source(spark, log, directory, whole, by=PARTED)
    note(f"archive: {parted:.2f} s through the JVM by topic and day")
    return {
        "fused_s": statistics.median(fused),
        "source_s": statistics.median(source),
        "source_of_fused": statistics.median(slow / fast for slow, fast in zip(source, fused, strict=True)),
        "parted_s": parted,
        "parted_of_fused": parted / statistics.median(fused),
        "fused_gb_s": whole / statistics.median(fused) / 1e9,
    }


def _fused(spark: SparkSession, log: MadeLog, directory: Path, most: int | None = None) -> float:
    out = directory / "fused"
    os.sync()  # a sync of a file waits for what the run before left to write
    started = time.monotonic()
    options = ArchiveOptions(store=str(log.root), out=str(out), compression=CODEC, most=most)
    done = archive(options, SparkTasks(spark, Progress()))
    took = time.monotonic() - started
    assert done.made
    assert not done.refused
    shutil.rmtree(out)
    return took


def _source(spark: SparkSession, log: MadeLog, directory: Path, whole: int, by: tuple[str, ...] = ()) -> float:
    out = directory / "source"
    os.sync()
    started = time.monotonic()
    reader = spark.read.format("towline").option("endingPhysicalOffset", whole)
    frame = reader.option("includeSystemTopics", "true").option("includeHalves", "true").load(str(log.root))
    frame = frame.selectExpr("*", "date(storeTimestamp) AS day") if by else frame
    writer = frame.write.option("compression", CODEC).option("parquet.compression.codec.zstd.level", LEVEL)
    (writer.partitionBy(*by) if by else writer).parquet(str(out))
    took = time.monotonic() - started
    shutil.rmtree(out)
    return took
