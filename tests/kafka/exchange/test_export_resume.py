"""An export that is killed anywhere, or interrupted: what is in place is whole, and the same command goes on."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.samples import rows_in
from tests.spark.stores import MadeStore
from towline.cli import kafka_export_work
from towline.cli.main import run
from towline.kafka.exchange.export import export
from towline.kafka.exchange.export_choice import source_of
from towline.kafka.exchange.export_errors import GoneMeanwhile, PartitionTaken
from towline.kafka.exchange.export_target import JOURNAL, Target
from towline.kafka.exchange.export_words import Asked
from towline.kafka.format import partition_metadata
from towline.kafka.log import log_directory
from towline.kafka.log.files import partitions
from towline.kafka.log.log_directory import LogDirectory
from towline.kafka.log.writer import PartitionWriter

from .exports import QUEUES, exported, one_by_one, sample, wanted

TOPIC_ID = partition_metadata.id_of("Zm9vYmFyYmF6cXV4MTIzNA")
KILLED_S = 120.0
COUNT = 240
ROOT = Path(__file__).parents[3]
# Ends the export by SIGKILL at a step: before the call of that number to a function.
KILLER = """
import os, signal, sys
from importlib import import_module
from pathlib import Path
from tests.kafka.exchange.exports import exported
from tests.spark.stores import MadeStore

module, owner, name, number, store, where, target = sys.argv[1:]
place = import_module("towline.kafka.exchange." + module)
place = getattr(place, owner) if owner else place
before, calls = getattr(place, name), iter(range(1, 1000))

def counted(*arguments, **named):
    if next(calls) == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return before(*arguments, **named)

setattr(place, name, counted)
exported(MadeStore(Path(store)), Path(target), **({"into": Path(target)} if where == "into" else {}))
"""
STEPS = {
    "as the second partition is written": ("export_partition", "PartitionWriter", "close", 2, 1),
    "as the second is read back": ("export_partition", "", "verify", 2, 1),
    "before the journal knows of the second": ("export_target", "Target", "note_done", 2, 1),
    "before the second is put in place": ("export_target", "", "exchange", 2, 1),
    "when the second is in place": ("export_target", "", "sync_directory", 2, 2),
    "between the checkpoints": ("export_target", "LogDirectory", "keep", 3, 3),
}


@pytest.fixture
def made(tmp_path) -> MadeStore:
    return sample(tmp_path / "store", COUNT)


def directory_of(tmp_path: Path, where: str) -> Path:
    """New, or that of a broker with the topic, as it makes it."""
    root = tmp_path / where
    if where == "into":
        log_directory.make(root, "a-cluster", 1)
        for number in range(QUEUES):
            PartitionWriter(root, "orders", number, topic_id=TOPIC_ID).close()
    return root


def whole(made: MadeStore, root: Path) -> set[str]:
    """The partitions that are in place with records, each of which is as it should be."""
    found = set()
    for path in partitions(root):
        rows = rows_in(path)
        assert not rows or rows == wanted(made, "orders", int(path.name[-1])), path
        found |= {path.name} if rows else set()
    return found


@pytest.mark.parametrize(
    ("step", "where"),
    [
        *((step, "into") for step in STEPS),
        ("as the second partition is written", "out"),
        ("when the second is in place", "out"),
    ],
)
def test_it_is_killed(made, tmp_path, step, where):
    target, (*place, number, done) = directory_of(tmp_path, where), STEPS[step]
    words = [*place, str(number), str(made.root), where, str(target)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, *words], cwd=ROOT, timeout=KILLED_S, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert whole(made, target) == {f"orders-{number}" for number in range(done)}
    again = exported(made, target, **({"into": target} if where == "into" else {}))
    assert (again.messages, again.kept) == (COUNT, done)
    assert whole(made, target) == {f"orders-{number}" for number in range(QUEUES)}
    assert {path.name for path in target.iterdir() if path.is_dir()} == whole(made, target)
    assert not (target / JOURNAL).exists()
    offsets = LogDirectory(target).offsets("recovery-point-offset-checkpoint")
    assert offsets == {("orders", number): COUNT // QUEUES for number in range(QUEUES)}


def cut_short(made: MadeStore, target: Path, monkeypatch: pytest.MonkeyPatch, **asked: object) -> None:
    """An export that did everything but end."""
    monkeypatch.setattr(Target, "finish", lambda self: None)
    exported(made, target, **asked)
    monkeypatch.undo()


def tear(path: Path) -> None:
    log = path / f"{0:020d}.log"
    os.truncate(log, log.stat().st_size - 100)


def test_a_torn_partition_is_written_anew(made, tmp_path, monkeypatch):
    target = tmp_path / "out"
    cut_short(made, target, monkeypatch)
    tear(target / "orders-1")
    shutil.rmtree(target / "orders-2")
    again = exported(made, target)
    assert again.kept == 1
    assert len(whole(made, target)) == QUEUES


def test_a_partition_that_is_another_than_was_put_into_a_brokers_directory_is_left_alone(made, tmp_path, monkeypatch):
    target = directory_of(tmp_path, "into")
    cut_short(made, target, monkeypatch, into=target)
    path = target / "orders-1"
    shutil.rmtree(path)
    shutil.copytree(target / "orders-2", path)  # as if the broker had gone on with it
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    with pytest.raises(PartitionTaken, match="orders-1 is not what an export before has put there"):
        exported(made, target, into=target)
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before


def test_it_goes_on_to_the_end_that_it_began_with_from_where_the_store_begins_now(made, tmp_path, monkeypatch):
    target = tmp_path / "out"
    cut_short(made, target, monkeypatch)
    first = {number: wanted(made, "orders", number) for number in range(QUEUES)}
    shutil.rmtree(target / "orders-1")
    gone = next(row for row in made.rows if row["queueId"] == 1 and row["queueOffset"] == 10)["commitLogOffset"]
    made.put("orders", 1, b"later")
    made.put("orders", 0, b"later")
    made.dispatch().safe(log_min=gone)
    again = exported(made, target)
    assert [(each.start, each.end) for each in again.partitions] == [(0, 80), (10, 80), (0, 80)]
    assert rows_in(target / "orders-1") == first[1][10:]
    assert rows_in(target / "orders-0") == first[0]


def test_a_line_of_the_journal_that_was_cut_off_is_not_done(made, tmp_path, monkeypatch):
    target = tmp_path / "out"
    cut_short(made, target, monkeypatch)
    journal = target / JOURNAL
    os.truncate(journal, journal.stat().st_size - 10)
    assert exported(made, target).kept == QUEUES - 1
    assert len(whole(made, target)) == QUEUES


def test_messages_that_are_cleaned_away_meanwhile_are_named_and_the_next_run_begins_behind_them(made, tmp_path):
    target = tmp_path / "out"
    choices = Asked(store=made.root, out=target).choices()
    source = source_of(choices)
    later = made.segment_size
    assert made.end > later
    made.safe(log_min=later)
    made.path(0).unlink()
    with pytest.raises(GoneMeanwhile, match="messages of queue 0 of orders were cleaned away"):
        export(choices, source, one_by_one, lambda _: None)
    done = exported(made, target)
    assert [each.start for each in done.partitions] == [
        min(row["queueOffset"] for row in made.rows if row["queueId"] == number and row["commitLogOffset"] >= later)
        for number in range(QUEUES)
    ]


def test_ctrl_c_says_how_to_go_on_and_leaves_whole_partitions_alone(made, tmp_path, monkeypatch, capsys):
    target, write, calls = tmp_path / "out", kafka_export_work.write_partition, iter(range(100))

    def interrupted(*arguments):
        if next(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return write(*arguments)

    monkeypatch.setattr(kafka_export_work, "write_partition", interrupted)
    words = ["kafka", "export", "--store", str(made.root), "--out", str(target)]
    assert run(words) == 128 + signal.SIGINT
    assert "the same command goes on with those that are missing" in " ".join(capsys.readouterr().err.split())
    assert {path.name for path in target.iterdir() if path.is_dir()} == whole(made, target) == {"orders-0"}
    assert run(words) == 0
    assert "1 of the partitions stood there from an attempt before" in capsys.readouterr().out
    assert len(whole(made, target)) == QUEUES
