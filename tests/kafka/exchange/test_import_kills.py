"""An import that is killed anywhere goes on with the same command, and ends as if nothing had been."""

import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.exchange.imports import bring, directory, log_of, messages_of, numbered, settings, write, write_large
from tests.kafka.samples import rows_in
from towline.cli.main import run
from towline.errors import DiskFull
from towline.kafka.exchange import import_errors as errors
from towline.kafka.exchange import import_publish, import_units, importing
from towline.kafka.exchange.importing import PLAN, abandon, is_unfinished
from towline.log.errors import ImportUnfinished
from towline.log.state.kafka_import import check_imported, clear_ended
from towline.log.state.topics_file import read_table
from towline.places import Store

# In the order in which they are reached, of an import of three segments behind a log that is there.
STAGING: Final = ("planned", "written@2", "named", "noted", "staged")
TAKING_BACK: Final = ("begun", "segment", "segment@2", "linked", "ended")
PROMISED: Final = ("promised", "topics", "recovered")
ABANDONED, CLOSED = "unlinked", "closed"
STEPS: Final = {name.partition("@")[0] for name in (*STAGING, *TAKING_BACK, *PROMISED, ABANDONED, CLOSED)}


def words(source: Path, store: Path, tmp_path: Path) -> list[str]:
    return ["kafka", "import", str(source), "--store", str(store), "--config", str(settings(tmp_path))]


def killed(source: Path, store: Path, tmp_path: Path, step: str, **choices: object) -> None:
    """Imports in a child, which is killed when it reaches the step."""
    killed_in(lambda: bring(source, store, tmp_path, **choices), step)


def killed_in(work: Callable[[], object], step: str) -> None:
    name, _, nth = step.partition("@")
    left = [int(nth or 1)]

    def reach(reached: str) -> None:
        left[0] -= reached == f"kafka_import.{name}"
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if not pid:
        try:
            for module in (importing, import_units, import_publish):
                module.ARMED, module.reach = True, reach
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"{step} was not reached"
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.fixture
def started(tmp_path):
    """A store with messages, and a directory that is to be imported into it."""
    first, source = directory(tmp_path / "first"), directory(tmp_path / "kafka")
    write(first, "before", 0, numbered(10))
    write_large(source, "large", 0, 900)
    write(source, "small", 2, numbered(10, 5), start=5)
    store = tmp_path / "store"
    bring(first, store, tmp_path)
    return source, store


def check_whole(source: Path, store: Path) -> None:
    for topic, number in (("large", 0), ("small", 2)):
        assert [message.row for message in messages_of(store, topic, number)] == rows_in(source / f"{topic}-{number}")
    assert not (store / "kafka-import").exists()
    assert sorted(read_table(Store(store)).topics) == ["before", "large", "small"]
    check_imported(Store(store))


def test_one_that_is_killed_at_every_step_in_turn_ends_as_if_nothing_had_been(started, tmp_path):
    source, store = started
    for step in (*STAGING, *TAKING_BACK, *PROMISED):
        killed(source, store, tmp_path, step)
        plan = (store / "kafka-import" / PLAN).read_bytes() if is_unfinished(Store(store)) else b""
        assert plan or step == "recovered"
        begun = step not in STAGING
        if begun:
            with pytest.raises(ImportUnfinished):
                check_imported(Store(store))
        else:
            check_imported(Store(store))
            assert len(log_of(store)) == 10
    assert run(words(source, store, tmp_path)) == 0
    check_whole(source, store)


@pytest.mark.parametrize("step", ["noted", "segment@2", "ended"])
def test_one_that_was_begun_can_be_taken_away(started, tmp_path, step):
    """The store is byte for byte what it was: also behind the end of its log."""
    source, store = started
    before = (store / "commitlog" / f"{0:020}").read_bytes()
    killed(source, store, tmp_path, step)
    assert run([*words(source, store, tmp_path), "--abandon"]) == 0
    assert [path.name for path in (store / "commitlog").iterdir()] == [f"{0:020}"]
    assert (store / "commitlog" / f"{0:020}").read_bytes() == before
    assert not (store / "kafka-import").exists()
    assert run([*words(source, store, tmp_path), "--abandon"]) == 1  # nothing is left to do
    assert run(words(source, store, tmp_path)) == 0
    check_whole(source, store)


def test_one_that_is_a_part_of_the_log_cannot_be_taken_away(started, tmp_path, capsys):
    source, store = started
    killed(source, store, tmp_path, "promised")
    assert run([*words(source, store, tmp_path), "--abandon"]) == 1
    assert "is a part of the log" in capsys.readouterr().err
    assert run(words(source, store, tmp_path)) == 0
    check_whole(source, store)


def test_one_whose_taking_away_was_broken_off_does_not_go_on(started, tmp_path, capsys):
    """Some of its segments are gone: nothing is promised of them. It is taken away by the same words once more."""
    source, store = started
    before = (store / "commitlog" / f"{0:020}").read_bytes()
    killed(source, store, tmp_path, "ended")
    killed_in(lambda: abandon(Store(store)), ABANDONED)
    with pytest.raises(errors.StagedMissing) as raised:
        bring(source, store, tmp_path)
    with pytest.raises(ImportUnfinished):
        check_imported(Store(store))
    assert run(command_in(raised.value.advice)) == 0
    assert [path.name for path in (store / "commitlog").iterdir()] == [f"{0:020}"]
    assert (store / "commitlog" / f"{0:020}").read_bytes() == before
    assert run(words(source, store, tmp_path)) == 0
    check_whole(source, store)


def test_a_segment_that_could_not_be_linked_is_promised_to_nobody(started, tmp_path, monkeypatch):
    source, store = started

    def full(staged: Path, target: Path) -> None:
        raise OSError(28, "no space is left")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(DiskFull):
        bring(source, store, tmp_path)
    monkeypatch.undo()
    with pytest.raises(errors.StagedMissing) as raised:
        bring(source, store, tmp_path)
    assert run(command_in(raised.value.advice)) == 0
    bring(source, store, tmp_path)
    check_whole(source, store)


def test_of_one_that_has_ended_nothing_keeps_a_node_away(started, tmp_path):
    """It is done where what is left of it is not removed yet; a start removes that."""
    source, store = started
    killed(source, store, tmp_path, CLOSED)
    assert not is_unfinished(Store(store))
    clear_ended(Store(store))
    assert not (store / "kafka-import.ended").exists()
    check_whole(source, store)


def test_what_is_to_be_typed_has_the_options_it_began_with(tmp_path):
    """And needs no source any more, for that may be in use again."""
    source, store = directory(tmp_path / "kafka"), tmp_path / "store"
    write(source, "with.dots", 0, numbered(10))
    write(source, "other", 0, numbered(10))
    choices = {"topics": ("with.dots",), "renames": ("with.dots=plain",), "tombstones": "drop"}
    killed(source, store, tmp_path, "promised", **choices)
    with pytest.raises(errors.PublishBegun) as begun:
        abandon(Store(store))
    with pytest.raises(errors.OtherImport) as other:
        bring(source, store, tmp_path)
    with pytest.raises(ImportUnfinished) as unfinished:
        check_imported(Store(store))
    (again,) = {tuple(command_in(raised.value.advice)) for raised in (begun, other, unfinished)}
    source.rename(tmp_path / "elsewhere")
    assert run(list(again)) == 0
    assert len(messages_of(store, "plain")) == 10
    assert sorted(read_table(Store(store)).topics) == ["plain"]


def command_in(advice: str) -> list[str]:
    """The first words between backquotes that are a command, without the program."""
    return shlex.split(advice.split("`")[1])[1:]


def test_another_import_does_not_go_on_with_it(started, tmp_path):
    source, store = started
    killed(source, store, tmp_path, "noted")
    with pytest.raises(errors.OtherImport, match="other options"):
        bring(source, store, tmp_path, tombstones="drop")
    with pytest.raises(errors.OtherImport, match="first"):
        bring(tmp_path / "first", store, tmp_path)
    bring(source, store, tmp_path)
    check_whole(source, store)


def test_a_source_that_changed_meanwhile_is_named(started, tmp_path):
    source, store = started
    killed(source, store, tmp_path, "noted")
    write(source, "small", 2, numbered(1, 15))
    with pytest.raises(errors.SourceChanged, match="are now 5 to 16"):
        bring(source, store, tmp_path)
    assert run([*words(source, store, tmp_path), "--abandon"]) == 0
    bring(source, store, tmp_path)
    check_whole(source, store)


def test_a_log_that_went_on_meanwhile_is_named(started, tmp_path):
    source, store = started
    killed(source, store, tmp_path, "noted")
    (store / "kafka-import").rename(tmp_path / "aside")
    write(tmp_path / "first", "again", 0, numbered(3))
    bring(tmp_path / "first", store, tmp_path, topics=("again",))
    (tmp_path / "aside").rename(store / "kafka-import")
    with pytest.raises(errors.OtherImport, match="log went on"):
        bring(source, store, tmp_path)


def test_ctrl_c_says_how_to_go_on(started, tmp_path, monkeypatch, capsys):
    source, store = started

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("towline.kafka.exchange.importing.verify", interrupted)
    assert run(words(source, store, tmp_path)) == 130
    said = capsys.readouterr().err
    assert "the same command goes on" in said
    assert f"towline kafka import {source} --store {store} --abandon" in said
    monkeypatch.undo()
    assert run(words(source, store, tmp_path)) == 0
    check_whole(source, store)
