"""The job `kafka-import`: tasks that write segments side by side, doubled, killed and named."""

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.exchange.imports import directory, messages_of, numbered, settings, write, write_large
from tests.kafka.samples import rows_in
from tests.pipeline.logs import PlainTasks
from towline.kafka.errors import MalformedLog
from towline.kafka.exchange.import_plan import Choices
from towline.kafka.exchange.importing import Imported, import_directory
from towline.kafka.log.files import LOG
from towline.pipeline.kafka_import import Named, silent
from towline.places import Store


class Died(Exception):
    """Stands for the death of the driver."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Partitions of no, one and several segments."""
    made = directory(tmp_path / "kafka")
    for number in range(3):
        write_large(made, "large", number, 300 * number + 100)
    for number in range(6):
        write(made, "small", number, numbered(20, number), start=number)
    return made


def bring(source: Path, tmp_path: Path, tasks: Any) -> Imported:
    store = Store(tmp_path / "store")
    return import_directory(source, store, Choices(), settings(tmp_path), Named(tasks), silent)


def check(source: Path, tmp_path: Path) -> None:
    for path in sorted(source.glob("*-*")):
        topic, _, number = path.name.rpartition("-")
        found = [message.row for message in messages_of(tmp_path / "store", topic, int(number))]
        assert found == rows_in(path)


@pytest.mark.parametrize("doubled", [False, True], ids=["once", "twice"])
def test_units_in_any_order_make_one_log(source, tmp_path, doubled):
    done = bring(source, tmp_path, PlainTasks(4, doubled=doubled))
    check(source, tmp_path)
    units = done.plan.units
    assert [unit.last for unit in units] == [False] * (len(units) - 1) + [True]
    assert len(units) == 2 + 1, "two large partitions, and one segment of all others"


def test_a_driver_that_died_goes_on_with_the_units_that_are_left(source, tmp_path):
    begun: list[int] = []

    def die(number: int) -> None:
        begun.append(number)
        if len(begun) == len(list(source.glob("*-*"))) + 2:  # all were measured, and one unit was written
            raise Died

    with pytest.raises(Died):
        bring(source, tmp_path, PlainTasks(4, before=die))
    assert not (tmp_path / "store" / "commitlog").exists()
    staged = {path.name: path.stat().st_ino for path in (tmp_path / "store" / "kafka-import").glob("0*")}
    assert staged
    done = bring(source, tmp_path, PlainTasks(4))
    assert done.resumed
    check(source, tmp_path)
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "store" / "commitlog").iterdir()}
    assert staged.items() <= inodes.items(), "what was whole was not written again"


def test_what_many_tasks_began_one_worker_ends(source, tmp_path):
    """The command goes on with what the job began."""

    class Measuring(PlainTasks):
        def run(self, what: str, work: Any, parts: Any) -> Any:
            if what == "write":
                raise Died
            return super().run(what, work, parts)

    with pytest.raises(Died):
        bring(source, tmp_path, Measuring(4))
    bring(source, tmp_path, PlainTasks(1))
    check(source, tmp_path)


def test_what_a_task_refuses_is_told_by_its_name(source, tmp_path):
    path = source / "large-2" / f"{0:020}{LOG}"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(MalformedLog) as raised:
        bring(source, tmp_path, PlainTasks(4))
    assert (raised.value.path, raised.value.at) == (str(path), 0)
    assert not (tmp_path / "store").exists()
