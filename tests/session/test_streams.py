"""Streams and the sink in a session: AvailableNow with limits, replays after a lost commit, errors by name."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.processes.nodes import TestNode
from tests.processes.waiting import await_
from tests.spark.stores import MadeStore
from towline.client.message import Message
from towline.client.producer import Producer
from towline.runtime.positions import Position

WAIT_S = 60
WAIT_MS = "1200"  # attempts of these tests have ended when the next begins: only requests may be under way


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    return MadeStore(tmp_path_factory.mktemp("streams") / "store").whole()


def source(spark: SparkSession, store: Path, **options: str) -> DataFrame:
    return spark.readStream.format("towline").options(**{"startingOffsets": "earliest"} | options).load(str(store))


def run(frame: DataFrame, checkpoint: Path, sink: str, **options: str) -> list[dict[str, Any]]:
    """AvailableNow to its end; what Spark says of each batch."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(WAIT_S)
    assert not query.isActive
    return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]


def forget_last_commit(checkpoint: Path) -> Path:
    """As if the driver had died after its last batch was written and before that was noted here."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    return commits / str(last)


def settled(node: TestNode) -> None:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "everything is dispatched")


@pytest.mark.parametrize(("mode", "other"), [("scan", "queue"), ("queue", "scan")])
def test_available_now_keeps_to_the_limit_and_the_checkpoint_to_what_was_read(
    spark: SparkSession, made: MadeStore, tmp_path: Path, mode: str, other: str
) -> None:
    """Everything once, by a limit; a replayed batch adds nothing to files, nor is anything read after it."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    frame = source(spark, made.root, readMode=mode, maxMessagesPerTrigger="250").select("commitLogOffset", "topic")
    told = run(frame, checkpoint, "parquet", path=str(out))
    assert [one["numInputRows"] for one in told] == [250, 250, 100]
    before = sorted(path.name for path in out.glob("*.parquet"))
    commit = forget_last_commit(checkpoint)
    assert run(frame, checkpoint, "parquet", path=str(out)) == [], "the sink has this batch, and nothing is new"
    assert commit.exists(), "the batch was run again"
    assert sorted(path.name for path in out.glob("*.parquet")) == before
    rows = spark.read.parquet(str(out)).collect()
    assert sorted(row.commitLogOffset for row in rows) == [row["commitLogOffset"] for row in made.rows]
    refused = f"written with readMode {mode}, and the query reads {other}"
    with pytest.raises(StreamingQueryException, match=refused):
        run(source(spark, made.root, readMode=other).select("topic"), checkpoint, "noop")


def test_a_query_that_runs_on_waits_for_the_least_number_and_one_that_runs_once_does_not(
    spark: SparkSession, made: MadeStore, tmp_path: Path
) -> None:
    count = len(made.rows)
    for least, delay, trigger in (
        (count, "1d", {"processingTime": "100 milliseconds"}),
        (count + 1, "2s", {"processingTime": "100 milliseconds"}),
        (count + 1, "1d", {"once": True}),
    ):
        waits = {"minMessagesPerTrigger": str(least), "maxTriggerDelay": delay, "readMode": "queue"}
        writer = source(spark, made.root, **waits).select("topic").writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / f"{least}-{delay}")).trigger(**trigger).start()
        try:
            await_(lambda: any(one.numInputRows for one in query.recentProgress), WAIT_S, "a batch")  # noqa: B023
            assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [count]
        finally:
            query.stop()


def test_a_replayed_batch_adds_nothing_to_a_topic(
    spark: SparkSession, made: MadeStore, node: TestNode, tmp_path: Path
) -> None:
    """A store's messages into the topic `copy` of another, with what they carried."""
    frame = source(spark, made.root, maxMessagesPerTrigger="400").select("body", "tags", "keys", "properties", "flag")
    options = {"path": str(node.store.root), "topic": "copy", "replayWaitMs": WAIT_MS}
    run(frame, tmp_path / "checkpoint", "towline", **options)
    settled(node)
    end = node.at(Position.APPENDED)
    commit = forget_last_commit(tmp_path / "checkpoint")
    run(frame, tmp_path / "checkpoint", "towline", **options)
    assert commit.exists(), "the batch was run again"
    assert node.at(Position.APPENDED) == end
    rows = spark.read.format("towline").option("subscribe", "copy").load(str(node.store.root)).collect()
    assert Counter((row.body, row.tags, row.keys, row.flag) for row in rows) == Counter(
        (row["body"], row["tags"], row["keys"], row["flag"]) for row in made.rows
    )


def test_a_task_that_dies_after_writing_is_tried_again_and_adds_nothing(
    spark: SparkSession, node: TestNode, tmp_path: Path
) -> None:
    """Each of two tasks fails behind its last row, when most of them are written, and runs a second time."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        count = 0
        for batch in batches:
            count += batch.num_rows
            yield batch
        mark = marks / str(batch.column(0)[0].as_py())
        if count and not mark.exists():
            mark.touch()
            raise RuntimeError("this task dies once")

    frame = spark.range(0, 20_000, 1, 2).mapInArrow(failing, "id bigint")
    write = frame.select(f.col("id").cast("string").alias("body")).write.format("towline").mode("append")
    write.options(path=str(node.store.root), topic="retried", replayWaitMs=WAIT_MS).save()
    assert len(list(marks.iterdir())) == 2
    settled(node)
    rows = spark.read.format("towline").option("subscribe", "retried").load(str(node.store.root)).select("body")
    assert sorted(int(row.body) for row in rows.collect()) == list(range(20_000))


def test_a_write_with_a_name_is_done_once_and_foreach_batch_knows_its_batch(
    spark: SparkSession, made: MadeStore, node: TestNode, tmp_path: Path
) -> None:
    frame = spark.range(100).select(f.col("id").cast("string").alias("body"))
    to = frame.write.format("towline").mode("append").option("path", str(node.store.root)).option("topic", "named")
    for _ in range(2):
        to.option("txnAppId", "nightly").option("txnVersion", "7").save()
    settled(node)
    assert spark.read.format("towline").option("subscribe", "named").load(str(node.store.root)).count() == 100

    def batch(rows: DataFrame, _: int) -> None:
        rows.write.format("towline").mode("append").options(path=str(node.store.root), topic="each").save()

    stream = source(spark, made.root).select("body")
    for _ in range(2):
        writer = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "each"))
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        forget_last_commit(tmp_path / "each")
    settled(node)
    assert spark.read.format("towline").option("subscribe", "each").load(str(node.store.root)).count() == 600


def test_a_query_follows_a_node_through_a_restart(spark: SparkSession, node: TestNode, tmp_path: Path) -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def batch(rows: DataFrame, _: int) -> None:
        with lock:
            seen.extend(int(row.body) for row in rows.collect())

    frame = source(spark, node.store.root, subscribePattern="followed.*").select("body")
    query = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        for first in (0, 100):
            with Producer(node.endpoint) as producer:
                producer.send_batch(Message(f"followed-{first}", f"{first + row}".encode()) for row in range(100))
            await_(lambda first=first: len(seen) == first + 100, WAIT_S, f"messages {first} and on have come")
            if not first:
                node.stop()
                node.start()
        assert sorted(seen) == list(range(200))
        assert query.exception() is None
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({"topic": "t"}, ["body", "offset"], "the column 'offset' cannot be written"),
        ({}, ["body"], "neither the option topic nor the column is given"),
        ({"topic": "t", "topik": "u"}, ["body"], "did you mean topic"),
    ],
)
def test_what_the_sink_cannot_write_is_refused_when_it_is_planned(
    spark: SparkSession, node: TestNode, options: dict[str, str], columns: list[str], words: str
) -> None:
    frame = spark.range(3).select(*[f.lit("x").alias(name) for name in columns])
    writer = frame.write.format("towline").mode("append").option("path", str(node.store.root)).options(**options)
    with pytest.raises(PySparkException, match=words):
        writer.save()


def test_messages_are_never_overwritten(spark: SparkSession, node: TestNode) -> None:
    frame = spark.range(3).select(f.lit("x").alias("body"))
    writer = frame.write.format("towline").mode("overwrite").options(path=str(node.store.root), topic="t")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.save()
