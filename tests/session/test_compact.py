"""`compact` on Spark: to files and into a topic."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.test_compact import TOPIC, newest, options, source
from tests.pipeline.test_replay import stored
from towline.pipeline import compact as job
from towline.pipeline.archive_manifest import read_manifest
from towline.pipeline.errors import OutputTaken
from towline.pipeline.location import location
from towline.pipeline.progress import Progress

__all__ = ["source"]


def test_files_of_a_topic(spark, source, tmp_path):
    result = job.run(spark, options(source, out=str(tmp_path / "out")), Progress())
    everything = newest(source)
    expected = [row for row in everything if row["body"]]
    tables = [pq.read_table(tmp_path / "out" / row[0]) for row in result.rows]
    found = pa.concat_tables(tables).sort_by("commitLogOffset").to_pylist(maps_as_pydicts="strict")
    assert found == expected
    assert result.summary["keys"] == len(everything)
    assert result.summary["gone"] == len(everything) - len(expected) == 8
    assert result.summary["without_key"] == sum(row["topic"] == TOPIC and not row["keys"] for row in source.rows)
    manifest = read_manifest(location(str(tmp_path / "out")), "manifest.json")
    assert manifest is not None
    assert manifest["rows"] == len(expected)
    with pytest.raises(OutputTaken):
        job.run(spark, options(source, out=str(tmp_path / "out")), Progress())


def test_into_a_topic_twice(spark, source, node):
    asked = options(source, into="compacted", endpoint=node.endpoint, wait_ms=0)
    expected = [row for row in newest(source) if row["body"]]
    for sent, there in ((len(expected), 0), (0, len(expected))):
        assert job.run(spark, asked, Progress()).rows == [(None, sent, there, 0)]
    found = stored(node, "compacted")
    assert sorted(message.body for message in found) == sorted(row["body"] for row in expected)
