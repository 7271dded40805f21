"""Rebuild and verify on Spark, with tasks that die after they have written and are tried again."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.log.stores import SEGMENT, StoreMaker
from tests.pipeline.stores import sound_node
from tests.pipeline.test_rebuild import derived
from towline.loadtest.bench.spark_shuffle import ShuffledTasks
from towline.pipeline import rebuild as job
from towline.pipeline.progress import Progress
from towline.pipeline.rebuild import RebuildOptions, rebuild
from towline.pipeline.running import execute
from towline.pipeline.tasks import SparkTasks

from .dying import dies_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    return sound_node(tmp_path / "store")


class Flaky(SparkTasks):
    """The first task dies once when its work is done."""

    marks = ""

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return super().run(what, partial(dies_once, work, Path(self.marks) / what.replace(" ", "-"), parts[0]), parts)


def test_tasks_that_die_after_writing_are_tried_again_and_the_files_are_the_same(
    spark: "SparkSession", maker: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SPLIT_BYTES", SEGMENT // 8)
    wanted = derived(maker.root)
    monkeypatch.setattr(Flaky, "marks", str(tmp_path))
    options = RebuildOptions(store=str(maker.root), parts="queues")
    rebuild(options, Flaky(spark, Progress()))
    assert (tmp_path / "the-log").exists()
    assert derived(maker.root) == wanted


def test_what_the_benchmark_shuffles_are_the_same_files(spark: "SparkSession", maker: StoreMaker) -> None:
    wanted = derived(maker.root)
    done = rebuild(RebuildOptions(store=str(maker.root), parts="queues"), ShuffledTasks(spark, Progress()))
    assert done.records == 300
    assert derived(maker.root) == wanted


def test_the_job_tells_what_it_built(spark: "SparkSession", maker: StoreMaker) -> None:
    wanted = derived(maker.root)
    outcome = execute("rebuild", {"store": str(maker.root), "old": "remove"})
    assert derived(maker.root) == wanted
    rows = [(topic, number, 0, 75, 75) for topic in ("TopicA", "TopicB") for number in (0, 1)]
    assert list(outcome.result.rows) == rows
    assert outcome.document()["summary"]["records"] == 300


def test_verify_tells_what_is_wrong_in_which_segment(spark: "SparkSession", maker: StoreMaker) -> None:
    maker.write(maker.records[150].at + 300, b"\xff")
    document = execute("verify", {"store": str(maker.root), "against": str(maker.root)}).document()
    assert document["status"] == 2
    assert [row["verdict"] for row in document["rows"]] == ["sound", "damaged", "sound"]
    assert [row["other"] for row in document["rows"]] == ["same"] * 3
    assert "BODY_CRC" in document["summary"]["rules"]
