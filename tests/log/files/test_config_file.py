import errno
import os
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from towline.errors import DiskFull, MalformedFile, StoreNotWritable, SyncFailed
from towline.format.files.topics import loads_fastjson
from towline.log.errors import SaveInDoubt
from towline.log.files.config_file import ConfigFile, clear_staged, encode, from_backups, read_config
from towline.log.files.store_files import write_atomically
from towline.log.state.topics_file import TopicsConfig, TopicsFile

FIRST = {"offsetTable": {"TopicA@g1": {"0": 5, "1": 7}}}
SECOND = {"offsetTable": {"TopicA@g1": {"0": 6, "1": 9}, "主题@组": {"0": 1}}}
THIRD = {"offsetTable": {"TopicA@g1": {"0": 7, "1": 9}}}


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "consumerOffset.json")


class BrokenSync:
    """Syncs of directories: the next ones fail."""

    def __init__(self) -> None:
        self.fails = 0
        self.synced: list[Path] = []

    def sync(self, path: Path) -> None:
        if self.fails:
            self.fails -= 1
            raise SyncFailed(str(path), 0, 0, errno.EIO, "Input/output error")
        self.synced.append(path)


@pytest.fixture
def broken_sync(monkeypatch: pytest.MonkeyPatch) -> BrokenSync:
    broken = BrokenSync()
    monkeypatch.setattr("towline.log.files.store_files.sync_directory", broken.sync)
    monkeypatch.setattr("towline.log.state.topics_file.sync_directory", broken.sync)
    return broken


class TestSaving:
    def test_the_generation_before_is_the_backup(self, file: ConfigFile) -> None:
        file.save(FIRST)
        assert not file.backup.exists()
        file.save(SECOND)
        assert (file.load(), ConfigFile(file.backup).load()) == (SECOND, FIRST)
        assert {path.name for path in file.path.parent.iterdir()} == {file.path.name, file.backup.name}

    def test_the_file_is_there_at_every_moment(self, file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
        file.save(FIRST)
        moments: list[dict[str, object] | None] = []

        def replacing(path: Path, target: Path, replace=Path.replace) -> None:
            replace(path, target)
            moments.append(read_config(file.path))

        monkeypatch.setattr(Path, "replace", replacing)
        file.save(SECOND)
        assert moments == [FIRST, SECOND]

    def test_a_crash_between_its_two_names_leaves_nothing_behind(self, file: ConfigFile) -> None:
        file.save(FIRST)
        file.backup.hardlink_to(file.path)
        file.save(SECOND)
        assert (file.load(), ConfigFile(file.backup).load()) == (SECOND, FIRST)
        assert {path.name for path in file.path.parent.iterdir()} == {file.path.name, file.backup.name}

    def test_a_file_system_without_links_keeps_both_too(
        self, file: ConfigFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(path: Path, target: Path) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(Path, "hardlink_to", refused)
        file.save(FIRST)
        file.save(SECOND)
        assert (file.load(), ConfigFile(file.backup).load()) == (SECOND, FIRST)

    def test_it_has_tabs_and_sorted_keys(self, file: ConfigFile) -> None:
        file.save({"b": 1, "a": {"0": 5}})
        text = '{\n\t"a":{\n\t\t"0":5\n\t},\n\t"b":1%s\n}'
        check = f"{zlib.crc32((text % '').encode()):08x}"
        assert file.path.read_text() == text % f',\n\t"towlineCheck":"{check}"'

    def test_what_was_loaded_holds_no_check_and_a_wrong_one_is_no_generation(self, file: ConfigFile) -> None:
        file.save(FIRST)
        file.save(SECOND)
        assert file.load() == SECOND
        file.path.write_text(file.path.read_text().replace("0:6", "0:4"))
        assert file.load() == FIRST

    def test_a_check_that_came_with_the_content_is_not_kept(self, file: ConfigFile) -> None:
        file.save(FIRST | {"towlineCheck": "00000000"})
        assert file.load() == FIRST

    def test_a_file_that_comes_while_it_is_looked_for_is_not_there_yet_and_not_damaged(
        self, file: ConfigFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def coming(path: Path, read=Path.read_bytes) -> bytes:
            monkeypatch.undo()
            try:
                return read(path)
            finally:
                file.save(FIRST)

        monkeypatch.setattr(Path, "read_bytes", coming)
        assert file.load() is None
        assert file.load() == FIRST

    def test_a_torn_file_does_not_push_the_last_good_one_out_of_the_backup(self, file: ConfigFile) -> None:
        file.save(FIRST)
        file.save(SECOND)
        file.path.write_text(file.path.read_text()[:20])
        file.save(SECOND)
        assert (file.load(), ConfigFile(file.backup).load()) == (SECOND, FIRST)

    def test_a_failed_write_leaves_both_generations(self, file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
        file.save(FIRST)

        def broken(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(SyncFailed):
            file.save(SECOND)
        assert file.load() == FIRST

    @pytest.mark.parametrize("content", [FIRST, None, "{"], ids=["a generation", "no file", "a torn one"])
    @pytest.mark.parametrize("atomically", [False, True], ids=["config", "any file"])
    def test_a_failed_sync_of_its_directory_leaves_the_file_as_it_was(
        self, file: ConfigFile, broken_sync: BrokenSync, content: Any, atomically: bool
    ) -> None:
        if isinstance(content, str):
            file.path.write_text(content)
        elif content:
            file.save(content)
        before = file.path.read_bytes() if file.path.exists() else None
        broken_sync.fails = 1
        with pytest.raises(SyncFailed):
            write_atomically(file.path, encode(SECOND)) if atomically else file.save(SECOND)
        assert (file.path.read_bytes() if file.path.exists() else None) == before
        assert broken_sync.synced[-1] == file.path.parent, "durably"
        file.save(THIRD)
        assert file.load() == THIRD

    def test_what_can_be_neither_kept_nor_undone_is_told_as_such(
        self, file: ConfigFile, broken_sync: BrokenSync
    ) -> None:
        file.save(FIRST)
        broken_sync.fails = 2
        with pytest.raises(SaveInDoubt, match="after a crash is not known"):
            file.save(SECOND)

    def test_a_directory_that_is_missing_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StoreNotWritable):
            ConfigFile(tmp_path / "config" / "topics.json").save(FIRST)


DELETED = {"topicConfigTable": {}, "towlineDeletedTopics": {"TopicA": {"logOffset": 5, "floors": {"0": 3}}}}


class TestDeletedTopics:
    """A deletion counts for others when both generations say so; until then it may be undone."""

    @pytest.mark.parametrize("step", [1, 2])
    def test_a_full_disk_at_either_write_leaves_the_file_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        file = TopicsConfig(tmp_path / "topics.json")
        file.save(FIRST)
        before, writes = file.path.read_bytes(), iter(range(1, 9))

        def write_new(path: Path, data: bytes) -> None:
            if next(writes) == step:
                raise DiskFull(str(path), len(data))
            path.write_bytes(data)

        monkeypatch.setattr("towline.log.files.store_files.write_new", write_new)
        with pytest.raises(DiskFull):
            file.save(DELETED)
        assert file.path.read_bytes() == before
        assert "towlineDeletedTopics" not in (read_config(file.backup) or {})

    def test_one_that_was_killed_between_both_is_settled_by_the_next_writer(self, tmp_path: Path) -> None:
        file = TopicsConfig(tmp_path / "topics.json")
        file.save(FIRST)
        ConfigFile(file.path).save(DELETED)
        assert seen(file.path) == {}
        file.settle(DELETED)
        assert seen(file.path) == {(b"TopicA", 0): 3}

    def test_a_name_of_the_backup_that_is_not_synced_takes_nothing_back(
        self, tmp_path: Path, broken_sync: BrokenSync
    ) -> None:
        file = TopicsConfig(tmp_path / "topics.json")
        file.save(FIRST)
        ConfigFile(file.path).save(DELETED)
        broken_sync.fails = 1
        file._save_both(DELETED, None)
        assert seen(file.path) == {(b"TopicA", 0): 3}


def seen(path: Path) -> dict[tuple[bytes, int], int]:
    """What reput goes by."""
    reader = TopicsFile(path)
    reader.refresh()
    return reader.floors()


class Killed(BaseException):
    """Where a kill -9 would end the process."""


@pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
@pytest.mark.parametrize("step", range(8))
def test_killed_at_any_step_of_a_save_the_old_content_or_the_new_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, links: bool
) -> None:
    """Every call that changes the directory ends the process before its turn comes; nothing is cleaned up behind it."""
    file = ConfigFile(tmp_path / "consumerOffset.json")
    file.save(FIRST)
    file.save(SECOND)
    made = 0

    def counted(name: str, owner: object) -> None:
        original = getattr(owner, name)

        def call(*arguments: object, **named: object) -> object:
            nonlocal made
            if made == step:
                raise Killed
            made += 1
            if name == "hardlink_to" and not links:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    for name in ("write_bytes", "unlink", "hardlink_to", "replace"):
        counted(name, Path)
    counted("fsync", os)
    ended = False
    try:
        file.save(THIRD)
    except Killed:
        ended = True
    monkeypatch.undo()
    found = ConfigFile(file.path).load()
    assert found in (SECOND, THIRD)
    assert ended or not links, "without links there are fewer steps"
    assert ended or found == THIRD
    assert read_config(file.path) is not None or not links, "only without links is it away for a moment"
    file.save(THIRD)
    assert file.load() == THIRD
    assert ConfigFile(file.backup).load() in (SECOND, THIRD)


def test_a_write_that_was_killed_half_way_is_read_by_nobody_and_cleared_by_the_next_start(
    file: ConfigFile, tmp_path: Path
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    file.save(FIRST)
    left = [tmp_path / f"{name}.{gone.pid}.tmp" for name in (file.path.name, file.backup.name)]
    under_way = tmp_path / f"archived.json.{os.getpid()}.tmp"
    for path in (*left, under_way):
        path.write_bytes(b"{")
    assert file.load() == FIRST
    assert sorted(clear_staged(tmp_path)) == sorted(left)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file.path.name, under_way.name])


class TestLoading:
    def test_nothing_there_is_no_error(self, file: ConfigFile) -> None:
        assert file.load() is None

    @pytest.mark.parametrize(
        "torn", [None, b"", b"{", b'{"offsetTable":', b"\xff\xfe", b"[1]"],
        ids=["missing", "empty", "one brace", "half", "no text", "a list"],
    )  # fmt: skip
    def test_what_cannot_be_read_is_taken_from_the_backup(self, file: ConfigFile, torn: bytes | None) -> None:
        file.save(FIRST)
        file.save(SECOND)
        assert (file.load(), file.from_backup, from_backups(file.path.parent)) == (SECOND, False, [])
        file.path.unlink() if torn is None else file.path.write_bytes(torn)
        assert (file.load(), file.from_backup, from_backups(file.path.parent)) == (FIRST, True, [file.path.name])

    def test_of_filters_the_backup_counts_where_the_file_is_missing_alone(self, tmp_path: Path) -> None:
        file = ConfigFile(tmp_path / "consumerFilter.json")
        file.save(FIRST)
        file.save(SECOND)
        file.path.write_bytes(b"{")
        assert from_backups(tmp_path) == []
        file.path.unlink()
        assert from_backups(tmp_path) == [file.path.name]

    def test_two_empty_files_are_as_good_as_none(self, file: ConfigFile) -> None:
        file.path.touch()
        file.backup.touch()
        assert file.load() is None

    def test_a_damaged_file_without_a_backup_is_refused_with_its_path(self, file: ConfigFile) -> None:
        file.path.write_text('{"offsetTable":')
        with pytest.raises(MalformedFile, match=str(file.path)):
            file.load()

    def test_the_backup_of_a_real_broker_is_read(self, file: ConfigFile) -> None:
        file.backup.write_text('{\n\t"offsetTable":{\n\t\t"TopicA@g1":{0:5,1:7\n\t\t}\n\t}\n}')
        assert file.load() == FIRST


class TestTheDialect:
    @pytest.mark.parametrize(
        ("text", "content"),
        [
            ("{0:5,1:7\n}", {"0": 5, "1": 7}),
            ('{"offsetTable":{3:12,\n4:7}}', {"offsetTable": {"3": 12, "4": 7}}),
            ("{-1:2}", {"-1": 2}),
            ('{ 0 : {1:[2,3]}, "a":4}', {"0": {"1": [2, 3]}, "a": 4}),
            ('{"a,1:2":"{3:4}"}', {"a,1:2": "{3:4}"}),
            (r'{"a\",1:2":"\\",5:6}', {'a",1:2': "\\", "5": 6}),
            ('{"0":5}', {"0": 5}),
        ],
    )
    def test_bare_integer_keys_are_read_and_strings_left_alone(self, text: str, content: object) -> None:
        assert loads_fastjson(text, "topics.json") == content
