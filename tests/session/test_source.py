"""The format in a Spark session: found by itself, in SQL, with filters, refusals and tasks that are tried again."""

import sys
from datetime import UTC
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.functions import col

from tests.spark.reads import by_place
from tests.spark.stores import SEGMENT, MadeStore
from towline.arrow.columns import COLUMNS
from towline.spark.stores import StoreView


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return MadeStore(tmp_path_factory.mktemp("spark") / "store").whole()


def rows_of(frame):
    return by_place([row.asDict() for row in frame.collect()])


def comparable(rows):
    """As rows of Spark hold them: bytes are bytearrays there, and times have no zone."""
    return [
        row
        | {"body": bytearray(row["body"])}
        | {name: row[name].replace(tzinfo=None) for name in ("bornTimestamp", "storeTimestamp")}
        for row in rows
    ]


def test_every_message_with_every_column(spark, made):
    frame = spark.read.format("towline").option("minPartitions", "3").load(str(made.root))
    assert frame.columns == list(COLUMNS)
    assert utc(rows_of(frame)) == comparable(made.rows)


def utc(rows):
    """`collect` shows times in the zone of the process."""
    return [
        row | {name: row[name].astimezone(UTC).replace(tzinfo=None) for name in ("bornTimestamp", "storeTimestamp")}
        for row in rows
    ]


def test_a_schema_is_a_projection(spark, made):
    frame = spark.read.format("towline").schema("queueOffset long, topic string").load(str(made.root))
    assert frame.columns == ["queueOffset", "topic"]
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {f"Topic{name}": 200 for name in "ABC"}


def test_sql(spark, made):
    spark.sql(
        f"CREATE TEMPORARY VIEW v USING towline OPTIONS (path '{made.root}', subscribe 'TopicB', COLUMNS 'topic,tags')"
    )
    try:
        found = spark.sql("SELECT tags, count(*) AS n FROM v GROUP BY tags ORDER BY tags").collect()
    finally:
        spark.catalog.dropTempView("v")
    tags = [row["tags"] for row in made.rows if row["topic"] == "TopicB"]
    names = sorted(set(tags), key=lambda tag: (tag is not None, tag or ""))
    assert found == [Row(tags=name, n=tags.count(name)) for name in names]


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_a_frame_that_was_filtered_has_all_its_rows_the_next_time(spark, made, allowed):
    """Spark 4.3 hands a Python source's filters on to the next query of a frame, and to the other side of a union."""
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, allowed)
    try:
        frame = spark.read.format("towline").load(str(made.root))
        third = made.rows[300]
        chosen = frame.where(
            (col("topic") == "TopicC") & (col("storeTimestamp") >= third["storeTimestamp"]) & col("tags").isNotNull()
        )
        expected = [row for row in made.rows[300:] if row["topic"] == "TopicC" and row["tags"] is not None]
        assert expected
        assert [row["commitLogOffset"] for row in rows_of(chosen)] == [row["commitLogOffset"] for row in expected]
        assert len(rows_of(frame)) == len(made.rows)
        both = frame.where("topic = 'TopicA'").union(frame.where("topic = 'TopicB'"))
        assert len(rows_of(both)) == sum(row["topic"] in ("TopicA", "TopicB") for row in made.rows)
    finally:
        spark.conf.set(name, before)


def test_no_row_where_there_is_none(spark, tmp_path):
    empty = MadeStore(tmp_path / "store")
    assert spark.read.format("towline").load(str(empty.root)).count() == 0


@pytest.mark.parametrize(
    ("options", "schema", "said"),
    [
        ({"readMod": "scan"}, None, "did you mean readMode"),
        ({}, "queueOfset long", "queueOffset"),
        ({}, "queueOffset string", "int64"),
        ({"subscribe": "TopicAA"}, None, "did you mean TopicA"),
        ({"segmentSize": "1m"}, None, "1048576"),
    ],
)
def test_mistakes_are_refused_by_the_driver(spark, made, options, schema, said):
    """No task runs for them: their sentence comes with the plan."""
    read = spark.read.format("towline").options(**options)
    with pytest.raises(PySparkException, match=said) as refused:
        (read if schema is None else read.schema(schema)).load(str(made.root)).count()
    assert "Job aborted" not in str(refused.value)


def test_a_deleted_segment_ends_the_query_with_its_name(spark, tmp_path):
    own = MadeStore(tmp_path / "store").whole()
    frame = spark.read.format("towline").load(str(own.root))
    frame.createOrReplaceTempView("own")
    planned = spark.table("own").select("topic")
    planned._jdf.queryExecution().executedPlan()  # from here on the partitions stand
    own.path(SEGMENT).unlink()
    with pytest.raises(PySparkException, match=own.path(SEGMENT).name):
        planned.count()


def test_a_task_that_failed_is_tried_again_and_reads_the_same(spark, made, tmp_path):
    """Every first attempt dies after it has read all its rows."""
    marks = str(tmp_path)

    def dying(batches):
        context = TaskContext.get()
        assert context is not None
        yield from batches
        mark = Path(marks) / str(context.partitionId())
        if not mark.exists():
            mark.touch()
            raise RuntimeError("dies once")

    frame = (
        spark.read.format("towline").option("minPartitions", "3").schema("commitLogOffset long").load(str(made.root))
    )
    found = frame.mapInArrow(dying, "commitLogOffset long").collect()
    assert sorted(row[0] for row in found) == [row["commitLogOffset"] for row in made.rows]
    assert len(list(tmp_path.iterdir())) >= 3


def test_a_frame_and_a_view_see_the_store_as_it_was_when_they_were_first_used(spark, tmp_path):
    """Spark plans a Python source once for all queries of a frame."""
    own = MadeStore(tmp_path / "store").whole()
    reader = spark.read.format("towline").schema("commitLogOffset long")
    frame, end = reader.load(str(own.root)), StoreView.open(own.root).safe_end
    frame.createOrReplaceTempView("seen")
    assert frame.count() == 600
    own.fill(60).dispatch().safe()
    for seen in (frame, spark.table("seen"), frame.where("commitLogOffset >= 0")):
        assert seen.count() == 600
    assert frame.where(col("commitLogOffset") >= end).count() == 0
    assert reader.load(str(own.root)).where(col("commitLogOffset") >= end).count() == 60
    spark.catalog.dropTempView("seen")


def test_tasks_run_in_workers_of_the_daemon_which_import_what_is_compiled(spark):
    def named(batches):
        for batch in batches:
            assert sys.modules["__main__"].__spec__.name == "pyspark.daemon"
            assert ".zip" not in sys.modules["pyspark"].__file__
            yield batch

    assert spark.range(3).mapInArrow(named, "id long").count() == 3
