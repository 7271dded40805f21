"""The offsets file of a broadcasting member: what was saved is there at every later start, whatever becomes of it."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from towline.client.group import offsets as module
from towline.client.group.errors import OffsetsFileDamaged, OffsetsNotSaved
from towline.client.group.offsets import OffsetsFile

KEY = ("t", 0)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Of a file that was saved twice: 200 in it, 100 in the copy from before."""
    found = tmp_path / "offsets.json"
    with closing(OffsetsFile(found)) as made:
        made.save({KEY: 100})
        made.save({KEY: 200})
    yield found
    assert not found.with_name("offsets.json.tmp").exists()


def loaded(path: Path) -> dict[tuple[str, int], int]:
    with closing(OffsetsFile(path)) as file:
        return file.load()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("damage", [cut, Path.unlink], ids=["half written", "missing"])
def test_the_copy_from_before_holds_at_the_next_start_and_at_the_one_after(
    path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
):
    damage(path)
    with caplog.at_level(logging.ERROR), closing(OffsetsFile(path)) as file:
        assert file.load() == {KEY: 100}
        file.save({KEY: 100})  # nothing new came
    assert "its copy from before is used" in caplog.text
    caplog.clear()
    assert loaded(path) == {KEY: 100}
    assert not caplog.records, "the file was made anew already"


def test_a_damaged_file_never_becomes_the_copy(path: Path):
    cut(path)
    with closing(OffsetsFile(path)) as file:
        file.save({KEY: 300})
    path.unlink()
    assert loaded(path) == {KEY: 100}


def test_when_it_cannot_be_made_anew_it_is_told_and_nothing_is_touched(path: Path):
    cut(path)
    before = path.read_bytes()
    path.with_name("offsets.json.tmp").mkdir()
    with closing(OffsetsFile(path)) as file:
        with pytest.raises(OffsetsNotSaved):
            file.load()
        assert path.read_bytes() == before
        path.with_name("offsets.json.tmp").rmdir()
        assert file.load() == {KEY: 100}


def test_damage_of_both_is_refused_until_both_are_gone(path: Path):
    copy = path.with_name("offsets.json.bak")
    cut(path)
    cut(copy)
    with pytest.raises(OffsetsFileDamaged, match=r"remove it and its \.bak"):
        loaded(path)
    path.unlink()
    with pytest.raises(OffsetsFileDamaged):
        loaded(path)
    copy.unlink()
    assert loaded(path) == {}


def test_a_load_beside_a_save_never_takes_it_back(path: Path, monkeypatch: pytest.MonkeyPatch):
    reading, saved = threading.Event(), threading.Event()
    plain = module._read

    def slowly(path: Path) -> object:
        found = plain(path)
        reading.set()
        saved.wait(0.2)  # as long as a save may overtake it
        return found

    with closing(OffsetsFile(path)) as file:
        monkeypatch.setattr(module, "_read", slowly)
        thread = threading.Thread(target=file.load)
        thread.start()
        assert reading.wait(20.0)
        file.save({KEY: 300})
        saved.set()
        thread.join()
        file.save({("t", 1): 7})
    monkeypatch.undo()
    assert loaded(path) == {KEY: 300, ("t", 1): 7}
