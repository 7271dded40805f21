"""`kafka-export` on Spark, with a task that dies after it has written, and is tried again."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kafka.exchange.exports import QUEUES, sample, wanted
from tests.kafka.samples import rows_in
from towline.pipeline import kafka_export as job
from towline.pipeline.running import execute
from towline.pipeline.tasks import SparkTasks

from .dying import dies_once

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


class Flaky(SparkTasks):
    """The first task dies once when its work is done."""

    marks = ""

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return super().run(what, partial(dies_once, work, Path(self.marks) / what, parts[0]), parts)


def test_a_task_that_dies_is_tried_again_and_leaves_nothing_behind(
    spark: "SparkSession", tmp_path: Path, monkeypatch: "pytest.MonkeyPatch"
) -> None:
    made, out = sample(tmp_path / "store", 120), tmp_path / "out"
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setattr(Flaky, "marks", str(marks))
    monkeypatch.setattr(job, "SparkTasks", Flaky)
    outcome = execute("kafka-export", {"store": str(made.root), "out": str(out), "compression": "lz4"})
    assert outcome.result.summary["messages"] == 120
    assert [path.name for path in marks.iterdir()] == ["partitions"]
    for number in range(QUEUES):
        assert rows_in(out / f"orders-{number}") == wanted(made, "orders", number)
    assert {path.name for path in out.iterdir() if path.is_dir()} == {f"orders-{number}" for number in range(QUEUES)}
