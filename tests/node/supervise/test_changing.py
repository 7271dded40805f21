"""Changes of settings, asked of a supervisor: each is answered, and none ends the node or spoils its next start."""

import errno
import json
import logging
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from towline.errors import BadSetting, ChangeFailed, DiskFull, StoreNotWritable, TowlineError, UnreadableSettings
from towline.log.files import store_files
from towline.node.process import settings_changes
from towline.node.process.failure import error_of
from towline.node.supervise.changing import LEFT_MAX_S, Changing, forget_changes
from towline.node.supervise.supervisor import Supervisor
from towline.places import Store
from towline.runtime.settings import ENVIRONMENT_SOURCE, Settings, read_sources

LOG = logging.getLogger("test")


class Node:
    """What a supervisor has of a node: its settings, and a number for each change."""

    def __init__(
        self,
        root: Path,
        sources: Mapping[str, str] | None = None,
        beneath: Mapping[str, object] | None = None,
        **start: object,
    ) -> None:
        self.store = Store(root)
        self.store.changes.mkdir(parents=True)
        self.given = Settings.model_validate({"store_path_root_dir": root, **start})
        self.install: Callable[[Settings], None] = lambda settings: None
        self.changes = 0
        self._changing = Changing(self.store, self.given, sources or {}, self._install, LOG, beneath or {})

    def _install(self, settings: Settings) -> int:
        self.install(settings)
        self.given, self.changes = settings, self.changes + 1
        return self.changes

    def ask(self, name: str, *, keep: bool = False, deadline_s: float = 10.0, **settings: object) -> None:
        question = {"settings": settings, "keep": keep, "deadline": time.monotonic() + deadline_s}
        (self.store.changes / f"{name}.json").write_text(json.dumps(question))

    def forget(self, *keys: str) -> dict[str, Any]:
        question = {"forget": keys, "deadline": time.monotonic() + 10.0}
        (self.store.changes / "1.json").write_text(json.dumps(question))
        self.turn()
        said = self.answer("1")
        (self.store.changes / "1.done").unlink()
        return said

    def turn(self) -> None:
        self._changing.carry_out(self.given)

    def answer(self, name: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads((self.store.changes / f"{name}.done").read_text())
        return said

    def refusal(self, name: str) -> TowlineError:
        return error_of(self.answer(name)["error"], "the node")

    def change(self, *, keep: bool = False, **settings: object) -> dict[str, Any]:
        """Asked and answered at once; the answer is fetched."""
        self.ask("1", keep=keep, **settings)
        self.turn()
        said = self.answer("1")
        (self.store.changes / "1.done").unlink()
        return said

    def left(self) -> set[str]:
        return {path.name for path in self.store.changes.iterdir()}

    def kept(self) -> dict[str, Any]:
        return tomllib.loads(self.store.kept_settings.read_text(encoding="utf-8"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


class TestWhatFails:
    def test_a_value_that_cannot_be_is_refused_and_the_next_change_is_made(self, node: Node) -> None:
        node.ask("1", keys_dir="~nobody-of-this-name/ring")
        node.ask("2", put_waiting_max=7)
        node.turn()
        assert "keys_dir = ~nobody-of-this-name/ring: nobody of this name has a home" in str(node.refusal("1"))
        assert (node.answer("2")["settings"], node.given.put_waiting_max) == ({"put_waiting_max": 7}, 7)

    def test_what_nobody_expected_is_answered_and_logged_whole(
        self, node: Node, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: Settings) -> None:
            raise RuntimeError("not foreseen")

        node.install = fail
        node.ask("1", put_waiting_max=7)
        node.ask("2", put_waiting_max=8)
        node.turn()
        for name in "12":
            assert isinstance(node.refusal(name), ChangeFailed)
            assert "not foreseen" in str(node.refusal(name))
        assert "Traceback" in caplog.text
        assert node.left() == {"1.done", "2.done"}

    def test_a_disk_that_cannot_be_written_leaves_the_node_as_it_is(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        node.ask("1", put_waiting_max=7)
        with monkeypatch.context() as patched:
            for step in ("rename", "unlink", "replace"):
                patched.setattr(Path, step, refuse)
            node.turn()
        assert (node.changes, node.left()) == (0, {"1.json"})

    def test_a_question_that_is_none_is_taken_away(self, node: Node) -> None:
        (node.store.changes / "1.json").write_text("{")
        node.turn()
        assert isinstance(node.refusal("1"), ChangeFailed)
        assert node.left() == {"1.done"}


class TestKeeping:
    def test_what_the_next_start_would_refuse_is_not_kept(self, node: Node) -> None:
        assert "error" not in node.change(disk_space_clean_forcibly_ratio=40)
        node.ask("2", keep=True, disk_space_warning_level_ratio=50)
        node.turn()
        refused = node.refusal("2")
        assert isinstance(refused, BadSetting)
        assert "the next start: " in str(refused)
        assert "disk_space_warning_level_ratio must be at least 85" in str(refused)
        assert (node.given.disk_space_warning_level_ratio, node.store.kept_settings.exists()) == (90, False)

    def test_what_was_kept_before_counts_for_the_next_start(self, node: Node) -> None:
        node.change(keep=True, disk_space_clean_forcibly_ratio=40)
        assert "error" not in node.change(keep=True, disk_space_warning_level_ratio=50)
        settings, _ = read_sources(None, node.store.kept_settings, {}, {})
        assert (settings.disk_space_clean_forcibly_ratio, settings.disk_space_warning_level_ratio) == (40, 50)

    def test_a_kept_line_that_the_environment_overrules_does_not_count(self, tmp_path: Path) -> None:
        overruled = {"disk_space_clean_forcibly_ratio": ENVIRONMENT_SOURCE}
        node = Node(tmp_path, overruled)
        node.store.kept_settings.write_text("disk_space_clean_forcibly_ratio = 40\n")
        node.given = node.given.model_copy(update={"disk_space_clean_forcibly_ratio": 40})
        assert node.change(keep=True, disk_space_warning_level_ratio=50)["error"]["error"] == "BadSetting"

    @pytest.mark.parametrize(
        ("line", "error"),
        [("delete_when = 2026-01-01", BadSetting), ("delete_when = ", UnreadableSettings)],
        ids=["a date", "no TOML"],
    )
    def test_beside_a_line_that_is_of_no_use_nothing_is_kept(
        self, node: Node, line: str, error: type[TowlineError]
    ) -> None:
        node.store.kept_settings.write_text(line)
        node.ask("1", keep=True, put_waiting_max=7)
        node.turn()
        assert isinstance(node.refusal("1"), error)
        assert (node.changes, node.store.kept_settings.read_text()) == (0, line)

    def test_a_text_is_kept_as_it_was(self, node: Node) -> None:
        node.store.kept_settings.write_text('broker_name = "\U0001f6a2\\u007f\\n"\n', encoding="utf-8")
        node.change(keep=True, put_waiting_max=7)
        assert node.kept() == {"broker_name": "\U0001f6a2\x7f\n", "put_waiting_max": 7}

    @pytest.mark.parametrize("before", [None, "put_waiting_max = 5\n"], ids=["no file", "a file"])
    @pytest.mark.parametrize("error", [DiskFull("settings.json", 9), RuntimeError("not foreseen")])
    def test_a_change_that_is_not_made_is_durably_not_kept(
        self, node: Node, monkeypatch: pytest.MonkeyPatch, before: str | None, error: Exception
    ) -> None:
        kept, synced = node.store.kept_settings, []
        if before is not None:
            kept.write_text(before)

        def fail(_: Settings) -> None:
            assert tomllib.loads(kept.read_text()) == {"put_waiting_max": 7}
            raise error

        def note(directory: Path) -> None:
            synced.append((directory, kept.read_text() if kept.exists() else None))

        node.install = fail
        monkeypatch.setattr(store_files, "sync_directory", note)
        assert "error" in node.change(keep=True, put_waiting_max=7)
        assert [left for directory, left in synced if directory == kept.parent][-1] == before


class TestTakingBack:
    def test_a_change_is_taken_back_kept_or_not(self, node: Node) -> None:
        node.change(keep=True, put_waiting_max=7, log_level="ERROR")
        node.change(file_reserved_time=9)
        said = node.forget("put_waiting_max", "file_reserved_time")
        assert (said["forgotten"], said["settings"]) == (
            {"put_waiting_max": 7},
            {"put_waiting_max": 65_536, "file_reserved_time": 72},
        )
        assert said["next"] == said["settings"]
        assert (node.given.put_waiting_max, node.given.file_reserved_time) == (65_536, 72)
        assert (node.kept(), node.given.log_level.value) == ({"log_level": "ERROR"}, "ERROR")

    def test_what_was_kept_at_the_start_gives_way_to_what_stands_beneath(self, tmp_path: Path) -> None:
        kept = {"put_waiting_max": str(tmp_path / "kept.toml")}
        node = Node(tmp_path, kept, {"put_waiting_max": "1000"}, put_waiting_max=7)
        node.store.kept_settings.write_text("put_waiting_max = 7\n")
        assert node.forget("put_waiting_max")["settings"] == {"put_waiting_max": 1000}
        assert not node.store.kept_settings.exists()

    def test_a_key_that_only_a_start_reads_is_told_with_what_holds_then(self, tmp_path: Path) -> None:
        kept = {"max_message_size": str(tmp_path / "kept.toml")}
        node = Node(tmp_path, kept, {"max_message_size": 65_536}, max_message_size=4_000)
        node.store.kept_settings.write_text("max_message_size = 4000\n")
        said = node.forget("max_message_size")
        assert (said["settings"], said["next"]) == ({"max_message_size": 4_000}, {"max_message_size": 65_536})

    def test_what_the_rest_cannot_do_without_stays(self, node: Node) -> None:
        node.change(keep=True, disk_space_clean_forcibly_ratio=40)
        node.change(keep=True, disk_space_warning_level_ratio=50)
        before = node.kept()
        assert node.forget("disk_space_clean_forcibly_ratio")["error"]["error"] == "BadSetting"
        assert node.kept() == before
        assert "error" not in node.forget(*before)
        assert not node.store.kept_settings.exists()

    def test_without_keys_all_that_is_kept_goes_and_a_file_that_is_no_toml_is_put_aside(self, node: Node) -> None:
        node.change(keep=True, put_waiting_max=7)
        assert node.forget()["forgotten"] == {"put_waiting_max": 7}
        node.store.kept_settings.write_text("put_waiting_max = \n")
        assert node.forget("put_waiting_max")["error"]["error"] == "UnreadableSettings"
        assert node.forget()["forgotten"] == {}
        assert not node.store.kept_settings.exists()
        assert (node.store.root / "kept.toml.bak").read_text() == "put_waiting_max = \n"

    def test_no_setting_is_none_unless_the_file_has_it(self, node: Node) -> None:
        assert node.forget("put_waiting_maximum")["error"]["error"] == "UnknownSetting"
        node.store.kept_settings.write_text("put_waiting_maximum = 7\n")
        assert node.forget("put_waiting_maximum")["forgotten"] == {"put_waiting_maximum": 7}

    def test_what_is_not_installed_stays_kept(self, node: Node) -> None:
        node.change(keep=True, put_waiting_max=7)

        def fail(_: Settings) -> None:
            raise DiskFull("settings.json", 9)

        node.install = fail
        assert node.forget("put_waiting_max")["error"]["error"] == "DiskFull"
        assert node.kept() == {"put_waiting_max": 7}


class TestWhoAsks:
    def test_a_change_is_not_made_after_its_deadline(self, node: Node) -> None:
        node.ask("1", deadline_s=-1.0, put_waiting_max=7)
        node.ask("2", file_reserved_time=7)
        node.turn()
        assert (node.given.put_waiting_max, node.given.file_reserved_time) == (65_536, 7)
        assert node.left() == {"2.done"}

    def test_an_answer_that_nobody_fetches_goes_after_a_minute(self, node: Node) -> None:
        for name in ("old.done", "old.taken", "old.json.7.tmp", "new.done"):
            (node.store.changes / name).write_text("{}")
            if name.startswith("old"):
                then = time.time() - LEFT_MAX_S - 1
                os.utime(node.store.changes / name, (then, then))
        node.turn()
        assert node.left() == {"new.done"}

    def test_who_is_interrupted_takes_the_question_back(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def interrupt(store: Store) -> None:
            asked.extend(path.name for path in store.changes.iterdir())
            raise KeyboardInterrupt

        monkeypatch.setattr(settings_changes, "store_holder", lambda _: os.getpid())
        monkeypatch.setattr(settings_changes, "ring_supervisor", interrupt)
        with pytest.raises(KeyboardInterrupt):
            settings_changes.change_settings(node.store.root, {"put_waiting_max": 7}, keep=False)
        assert (len(asked), node.left()) == (1, set())

    def test_a_kept_file_that_is_no_toml_is_named(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        node.store.settings.write_text(node.given.to_json())
        node.store.kept_settings.write_text("put_waiting_max = \n")
        monkeypatch.setattr(settings_changes, "store_holder", lambda _: os.getpid())
        with pytest.raises(UnreadableSettings, match=r"kept\.toml cannot be read"):
            settings_changes.read_node_settings(node.store.root)


class TestAtAStart:
    def test_what_was_asked_before_is_forgotten_though_somebody_takes_it_back(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node.ask("1", put_waiting_max=7)
        listed = [*node.store.changes.iterdir(), node.store.changes / "taken-back.json"]
        monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
        forget_changes(node.store)
        assert not listed[0].exists()

    def test_what_cannot_be_forgotten_ends_the_start_and_leaves_nothing(self, node: Node) -> None:
        (node.store.changes / "directory").mkdir()
        ended: list[str] = []
        zygote: Any = SimpleNamespace(end=lambda: ended.append("zygote"))
        supervisor = Supervisor("master", frozenset(), node.store, node.given, {}, LOG, zygote)
        with pytest.raises(StoreNotWritable, match="changes cannot be written"):
            supervisor.start()
        assert ended == ["zygote"]
