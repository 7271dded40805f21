"""`lookup` on Spark."""

from collections import Counter

import pyarrow.parquet as pq
import pytest

from tests.pipeline.test_lookup import ASKED, expected, in_order, indexed, made
from towline.pipeline import lookup
from towline.pipeline.errors import IllegalOption
from towline.pipeline.progress import Progress

__all__ = ["made"]


def per_key(rows):
    return Counter(row["asked"] for row in rows)


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
        found = expected(made, ASKED)
        left_out = len(found) - len(newest)
        assert (summary["messages"], summary["rows_left_out"]) == (len(found), left_out)
        assert (summary["left_out_by_most"], summary["left_out_by_limit"]) == (left_out, 0)
        assert summary["keys_left_out"] == {"all": left_out}
        assert (
            f"; {left_out:,} older ones of 1 key are left out, --most allows more; --out writes all" in result.sentence
        )

    @pytest.mark.parametrize("by", ["scan", "index"])
    def test_counts_as_the_source_does_whatever_it_shows(self, spark, made, tmp_path, by):
        indexed(made)
        for key in ("all", "k5,all"):
            asked = tuple(key.split(","))
            out = tmp_path / f"{len(asked)}"
            options = lookup.Options(
                store=str(made.root), key=asked, topic=("TopicA", "TopicB"), by=by, most=2, limit=3, out=out
            )
            summary = lookup.run(spark, options, Progress()).summary
            source = spark.read.format("towline").option("path", str(made.root)).option("keys", key)
            rows = source.option("subscribe", "TopicA,TopicB").load().select("commitLogOffset").collect()
            truth = expected(made, set(asked), {"TopicA", "TopicB"})
            assert {row.commitLogOffset for row in rows} == {row["commitLogOffset"] for row in truth}
            assert summary["messages"] == len(truth) == spark.read.parquet(str(out)).count()
            assert summary["rows_left_out"] == len(truth) - min(3, sum(min(2, n) for n in per_key(truth).values()))

    def test_writes_everything_to_a_new_directory(self, spark, made, tmp_path):
        indexed(made)
        out = tmp_path / "found"
        options = lookup.Options(
            store=str(made.root), key=("all",), topic=("TopicA",), most=5, body=True, out=out, limit=4
        )
        result = lookup.run(spark, options, Progress())
        truth = [row for row in made.rows if row["topic"] == "TopicA" and "all" in (row["keys"] or "")]
        written = pq.read_table(out, columns=["commitLogOffset", "body"]).to_pylist()
        assert sorted((row["commitLogOffset"], row["body"]) for row in written) == [
            (row["commitLogOffset"], row["body"]) for row in truth
        ]
        assert (len(result.rows), result.summary["rows_left_out"]) == (4, len(truth) - 4)
        assert (result.summary["left_out_by_most"], result.summary["left_out_by_limit"]) == (len(truth) - 5, 1)
        assert f"; {out} has all" in result.sentence
        with pytest.raises(IllegalOption, match="exists already"):
            lookup.run(spark, options, Progress())
