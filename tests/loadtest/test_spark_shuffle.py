"""The rebuild that the benchmark compares with builds the same files: else its ratio would say nothing."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.closing import closed_afterwards
from tests.log.stores import SEGMENT
from tests.pipeline.logs import LOGS, PlainTasks, Sent, Writer
from tests.pipeline.stores import sound_node
from tests.pipeline.test_rebuild import FIRST, by_reput, derived, prepared
from towline.loadtest.bench.spark_shuffle import SPLITS, Row, built_of, gather_splits, plan_of, write_files
from towline.pipeline import rebuild as job
from towline.pipeline.errors import NotRebuilt
from towline.pipeline.rebuild import RebuildOptions, rebuild


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each segment is a split; nobody leaves files open."""
    monkeypatch.setattr(job, "SPLIT_BYTES", SEGMENT // 8)
    yield from closed_afterwards()


class Shuffled(PlainTasks):
    """The shuffle in one process; what passes between its tasks goes through pickle and Arrow as with Spark."""

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        plan = plan_of(work)
        if plan is None or not parts:
            return super().run(what, work, parts)
        numbers = [pa.RecordBatch.from_pydict({"id": [number]}) for number in reversed(range(len(parts)))]
        rows = [row for number in numbers for row in self._rows(gather_splits, plan, parts, [number])]
        rows.sort(key=lambda row: (row["topic"], row["queue_id"], row["base"], row["first"]))
        batches = [pa.RecordBatch.from_pylist(rows[at : at + 3], schema=SPLITS) for at in range(0, len(rows), 3)]
        self._rows(write_files, plan, batches)  # a repeated task finds its files published
        return built_of(parts, self._rows(write_files, plan, batches))

    def _rows(self, task: Callable[..., Any], *given: Any) -> list[Row]:
        *facts, batches = given
        return [row for batch in task(*pickle.loads(pickle.dumps(facts)), iter(batches)) for row in batch.to_pylist()]


@settings(max_examples=12, deadline=None)
@given(log=LOGS)
def test_as_reput_whatever_the_log_holds(tmp_path_factory: pytest.TempPathFactory, log: list[Sent]) -> None:
    root = tmp_path_factory.mktemp("same")
    maker = prepared(root / "job")
    Writer(maker, FIRST).send(*log)
    done = rebuild(RebuildOptions(store=str(maker.root)), Shuffled())
    assert derived(maker.root) == by_reput(log, root / "reput")
    assert done.records == len(log)


def test_over_many_segments_and_files(tmp_path: Path) -> None:
    log = [Sent("plain", n % 6, 300, ("k", f"k{n}"), "red") for n in range(400)]
    log[100] = Sent("lost", 1, 0, count=20)
    maker = prepared(tmp_path / "job")
    Writer(maker, FIRST).send(*log)
    expected = by_reput(log, tmp_path / "reput")
    assert len(expected[0]) > 10
    rebuild(RebuildOptions(store=str(maker.root)), Shuffled())
    assert derived(maker.root) == expected


def test_a_record_that_is_not_whole_is_refused_and_the_store_left_as_it_was(tmp_path: Path) -> None:
    maker = sound_node(tmp_path / "store")
    maker.write(maker.records[10].at + 4, b"\0")
    before = derived(maker.root)
    with pytest.raises(NotRebuilt, match=f"{0:020d} byte {maker.records[10].at}.*MAGIC"):
        rebuild(RebuildOptions(store=str(maker.root)), Shuffled())
    assert derived(maker.root) == before
