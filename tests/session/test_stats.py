"""`stats` on Spark."""

from collections import defaultdict

import numpy as np
import pytest

from tests.pipeline.test_stats import made
from towline.pipeline import stats
from towline.pipeline.progress import Progress

__all__ = ["made"]


class TestJob:
    def expected(self, rows):
        """By plain Python and numpy, whose percentiles are Spark's."""
        groups = defaultdict(list)
        for row in rows:
            groups[row["storeTimestamp"].replace(second=0, microsecond=0), row["topic"], row["queueId"]].append(row)
        found = []
        for key in sorted(groups):
            sizes = [row["size"] for row in groups[key]]
            percentiles = [float(value) for value in np.percentile(sizes, (50, 90, 99))]
            retried = sum(row["reconsumeTimes"] > 0 for row in groups[key])
            found.append((*key, len(sizes), sum(sizes), *percentiles, max(sizes), 3.0, 3.0, 3.0, 3, retried))
        return found

    def test_gives_the_figures_of_the_log(self, spark, made):
        told: list[tuple[str, int, int | None]] = []
        progress = Progress(lambda *facts: told.append(facts))
        result = stats.run(spark, stats.Options(store=str(made.root), top_keys=2), progress)
        expected = self.expected(made.rows)
        assert [row[:3] for row in result.rows] == [row[:3] for row in expected]
        assert [row[3:] for row in result.rows] == [pytest.approx(row[3:]) for row in expected]
        summary = result.summary
        assert (summary["count"], summary["bytes"]) == (1102, sum(row["size"] for row in made.rows))
        assert (summary["retries"], summary["dead_letters"], summary["key_counts_too_low_by"]) == (1, 1, 0)
        top = summary["topics"]["TopicA"]["top_keys"]
        assert top == [{"key": "all", "count": 367}, {"key": "k0", "count": 1}]
        assert {plot.title for plot in result.plots} >= {"messages a minute"}
        assert sum(map(sum, result.plots[1].series.values())) == 1102
        assert [what for what, _, _ in told if what == "adding up"]

    def test_tells_when_rows_were_left_out(self, spark, made):
        result = stats.run(spark, stats.Options(store=str(made.root), by="topic", top_keys=0, limit=2), Progress())
        assert [row[:3] for row in result.rows] == [(None, "%DLQ%readers", None), (None, "%RETRY%readers", None)]
        assert result.summary["rows_left_out"]
        assert result.summary["count"] == 1102
        assert result.summary["topics"]["TopicA"]["top_keys"] == []
