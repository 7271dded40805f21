"""`kafka-import` on Spark, with a task that dies after it has written, and is tried again."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kafka.exchange.imports import directory, messages_of, settings, write, write_large
from tests.kafka.samples import plain, rows_in
from towline.pipeline import kafka_import as job
from towline.pipeline.running import execute
from towline.pipeline.tasks import SparkTasks

from .dying import dies_once

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


class Flaky(SparkTasks):
    """The first task of each stage dies once when its work is done."""

    marks = ""

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return super().run(what, partial(dies_once, work, Path(self.marks) / what, parts[0]), parts)


def test_a_task_that_dies_is_tried_again_and_the_log_is_whole(
    spark: "SparkSession", tmp_path: Path, monkeypatch: "pytest.MonkeyPatch"
) -> None:
    source, store, marks = directory(tmp_path / "kafka"), tmp_path / "store", tmp_path / "marks"
    for number in range(2):
        write_large(source, "large", number, 500)
    write(source, "small", 0, plain(100))
    store.mkdir()
    marks.mkdir()
    monkeypatch.setattr(Flaky, "marks", str(marks))
    monkeypatch.setattr(job, "SparkTasks", Flaky)
    values = {"source": str(source), "store": str(store), "config": str(settings(tmp_path))}
    outcome = execute("kafka-import", values)
    assert outcome.result.summary["messages"] == 1_100
    assert outcome.result.summary["verified"]
    assert sorted(path.name for path in marks.iterdir()) == ["compare", "measure", "write"]
    for topic, number in (("large", 0), ("large", 1), ("small", 0)):
        found = [message.row for message in messages_of(store, topic, number)]
        assert found == rows_in(source / f"{topic}-{number}")
