"""`archive` on Spark."""

from tests.spark.stores import SEGMENT, MadeStore
from towline.pipeline import archive
from towline.pipeline.archive import ArchiveOptions
from towline.pipeline.archive_manifest import Archive
from towline.pipeline.progress import Progress


def test_the_archive_that_spark_makes_is_read_by_spark(spark, tmp_path):
    made = MadeStore(tmp_path / "store", step_ms=86_400_000 // 200).whole(600)
    out = tmp_path / "out"
    seen = []
    options = ArchiveOptions(store=str(made.root), out=str(out))
    result = archive.run(spark, options, Progress(lambda *told: seen.append(told)))
    full = [row for row in made.rows if row["commitLogOffset"] < made.end - made.end % SEGMENT]
    assert result.summary["messages"] == len(full)
    segments = made.end // SEGMENT
    assert seen[-2:] == [("segments", segments, segments), ("published", segments, segments)]
    opened = Archive.open(out)
    names = [str(out / file.name) for segment in opened.segments.values() for file in segment.files]
    frame = spark.read.parquet(*names)
    found = {row["commitLogOffset"]: row.asDict() for row in frame.drop("bornTimestamp", "storeTimestamp").collect()}
    expected = [{name: row[name] for name in frame.columns if not name.endswith("Timestamp")} for row in full]
    assert [found[row["commitLogOffset"]] for row in expected] == expected
    counts = {(row["topic"], str(row["day"])): row["count"] for row in _by_partition(spark, out)}
    assert sum(counts.values()) == len(full)
    assert {topic for topic, _ in counts} == {"TopicA", "TopicB", "TopicC"}
    assert archive.run(spark, options, Progress()).summary["archived"] == 0


def _by_partition(spark, out):
    return spark.read.parquet(str(out / "data")).groupBy("topic", "day").count().collect()
