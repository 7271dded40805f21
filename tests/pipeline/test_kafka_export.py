"""The job writes what the command writes, whatever becomes of its tasks; on Spark, too."""

import dataclasses
from pathlib import Path

import pytest

from tests.kafka.exchange.exports import QUEUES, exported, sample, wanted
from tests.kafka.samples import rows_in
from tests.pipeline.loop import Loop
from tests.spark.stores import MadeStore
from towline.format.record.record import LAYOUT
from towline.kafka.exchange.export_errors import BadChoice, DamagedSource
from towline.kafka.exchange.export_target import JOURNAL
from towline.kafka.log.files import partitions
from towline.pipeline import kafka_export as job
from towline.pipeline.errors import IllegalOption, ScratchNotSeen
from towline.pipeline.kafka_export import KafkaExportOptions, kafka_export, write_one
from towline.pipeline.options import made as options_of


@pytest.fixture
def made(tmp_path) -> MadeStore:
    return sample(tmp_path / "store", 240)


def options(made: MadeStore, out: Path, **more: object) -> KafkaExportOptions:
    found: KafkaExportOptions = options_of(KafkaExportOptions, {"store": str(made.root), "out": str(out)} | more)
    return found


def logs(root: Path) -> dict[str, bytes]:
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in root.glob("*/*.*")}


def test_the_files_are_those_of_the_command(made, tmp_path):
    chosen = {"compression": "zstd", "batch_bytes": 2_000}
    exported(made, tmp_path / "command", **chosen)
    done = kafka_export(options(made, tmp_path / "job", **chosen), Loop())
    assert (done.messages, done.damaged, done.left_properties) == (240, 0, {"WAIT": 240})
    assert logs(tmp_path / "job") == logs(tmp_path / "command")
    assert {path.name for path in (tmp_path / "job").iterdir()} == {
        path.name for path in (tmp_path / "command").iterdir()
    }


def test_a_task_that_is_done_twice_leaves_one_partition(made, tmp_path, monkeypatch):
    """As when a slow attempt is given up, and goes on all the same."""

    def twice(*arguments):
        write_one(*arguments)
        return write_one(*arguments)

    monkeypatch.setattr(job, "write_one", twice)
    kafka_export(options(made, tmp_path / "out"), Loop())
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert names == {f"orders-{number}" for number in range(QUEUES)}
    assert all(rows_in(path) == wanted(made, "orders", int(path.name[-1])) for path in partitions(tmp_path / "out"))


def test_damage_is_refused_before_its_wave_is_put_in_place_and_the_next_run_goes_on(made, tmp_path, monkeypatch):
    monkeypatch.setattr("towline.pipeline.tasks.WAVE", 1)
    row = next(row for row in made.rows if row["queueId"] == 1 and row["body"])
    at = row["commitLogOffset"] + LAYOUT.size
    made.write(at, bytes([row["body"][0] ^ 1]))
    with pytest.raises(DamagedSource, match="queue 1 of orders"):
        kafka_export(options(made, tmp_path / "out"), Loop())
    assert [path.name for path in partitions(tmp_path / "out")] == ["orders-0"]
    assert (tmp_path / "out" / JOURNAL).exists()
    made.write(at, row["body"][:1])
    done = kafka_export(options(made, tmp_path / "out"), Loop())
    assert (done.kept, done.messages) == (1, 240)


def test_executors_that_see_another_directory_are_named(made, tmp_path, monkeypatch):
    def elsewhere(facts, work):
        return write_one(facts, dataclasses.replace(work, staging=str(tmp_path / "other" / "x")))

    monkeypatch.setattr(job, "write_one", elsewhere)
    with pytest.raises(ScratchNotSeen, match=str(tmp_path / "other")):
        kafka_export(options(made, tmp_path / "out"), Loop())


def test_options_are_refused_before_spark_starts(made, tmp_path):
    with pytest.raises(BadChoice, match="one of --out and --into"):
        options(made, tmp_path, into=str(tmp_path))
    with pytest.raises(IllegalOption, match="segment-bytes"):
        options(made, tmp_path, segment_bytes=2**31)
    with pytest.raises(IllegalOption, match="batch-bytes"):
        options(made, tmp_path, batch_bytes=10)
