"""`lookup` on Spark."""

import pyarrow.parquet as pq
import pytest

from tests.pipeline.test_lookup import ASKED, expected, in_order, indexed, made
from towline.pipeline import lookup
from towline.pipeline.errors import IllegalOption
from towline.pipeline.progress import Progress

__all__ = ["made"]


class TestJob:
    def test_finds_the_newest_and_names_what_is_missing(self, spark, made):
        options = lookup.Options(store=str(made.root), key=tuple(sorted(ASKED)), most=3)
        result = lookup.run(spark, options, Progress())
        newest = [row for row in expected(made, ASKED) if row["asked"] != "all"] + expected(made, {"all"})[-3:]
        names = [column.name for column in lookup.COLUMNS]
        rows = [{name: value for name, value in zip(names, row, strict=True) if name != "body"} for row in result.rows]
        assert in_order(rows) == in_order(newest)
        assert rows == sorted(rows, key=lambda row: (row["asked"], row["commitLogOffset"]))
        summary = result.summary
        assert (summary["asked"], summary["found"], summary["missing_keys"]) == (6, 5, ["nobody's"])
        assert "; not found: nobody's" in result.sentence
        assert (summary["messages"], summary["rows_left_out"]) == (len(newest), 0)

    def test_writes_everything_to_a_new_directory(self, spark, made, tmp_path):
        indexed(made)
        out = tmp_path / "found"
        options = lookup.Options(
            store=str(made.root), key=("all",), topic=("TopicA",), most=1000, body=True, out=out, limit=4
        )
        result = lookup.run(spark, options, Progress())
        truth = [row for row in made.rows if row["topic"] == "TopicA" and "all" in (row["keys"] or "")]
        written = pq.read_table(out, columns=["commitLogOffset", "body"]).to_pylist()
        assert sorted((row["commitLogOffset"], row["body"]) for row in written) == [
            (row["commitLogOffset"], row["body"]) for row in truth
        ]
        assert (len(result.rows), result.summary["rows_left_out"]) == (4, len(truth) - 4)
        with pytest.raises(IllegalOption, match="exists already"):
            lookup.run(spark, options, Progress())
