"""What the supervisor does with changes of settings: see `settings_changes` for the files and their order."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.errors import ChangeFailed, OverruledSetting, StoreNotWritable, TowlineError
from towline.log.files.store_files import bytes_of, restore_previous, write_atomically
from towline.node.process.failure import facts_of
from towline.places import Store
from towline.runtime.settings import ENVIRONMENT_SOURCE, FLAGS_SOURCE, Settings, change_of, check_kept, read_toml

LEFT_MAX_S: Final = 60.0  # an answer that nobody has fetched by then is deleted
_HEAD: Final = """\
# Changed while the node ran, by `towline config set --keep`. Read at each start of the node: what stands here wins over
# the node's file of settings, the environment and flags win over what stands here.
"""
_OVERRULING: Final = {FLAGS_SOURCE: "the command that starts it", ENVIRONMENT_SOURCE: "its environment"}
Install = Callable[[Settings], int]


def forget_changes(store: Store) -> None:
    """Deletes what was asked of a node before. Raises StoreNotWritable."""
    try:
        for leftover in store.changes.iterdir() if store.changes.is_dir() else ():
            leftover.unlink(missing_ok=True)
    except OSError as error:
        raise StoreNotWritable(str(store.changes), error.strerror or str(error)) from None


@dataclass(frozen=True, slots=True)
class Changing:
    """Carries out changes. `start` are the settings that the node was started with, `sources` where they came from;
    `install` makes others those of the node, and returns the number of the change."""

    store: Store
    start: Settings
    sources: Mapping[str, str]
    install: Install
    log: logging.Logger

    def carry_out(self, given: Settings) -> None:
        """Carries out every change that is asked for. `given`: the node's settings as they are, without what its role
        makes of them. A change that fails, however it does, is answered so, and the node goes on."""
        if not self.store.changes.is_dir():
            return
        try:
            self._forget_answers()
            waiting = sorted(self.store.changes.glob("*.json"))
        except OSError as error:
            self.log.error("changes of settings cannot be looked for: %s", error)
            return
        for asked in waiting:
            try:
                question = _take(asked)
                if question is None:
                    continue
                given, said = self._change(question["settings"], given, keep=question["keep"])
            except TowlineError as error:
                said = {"error": facts_of(error)}
            except Exception as error:
                self.log.exception("a change of settings fails")
                said = {"error": facts_of(ChangeFailed(str(self.store.root), repr(error)))}
            self._answer(asked, said)

    def _change(self, asked: Mapping[str, object], given: Settings, *, keep: bool) -> tuple[Settings, dict[str, Any]]:
        """The settings as they are then, and what is answered. Nothing has changed where this raises."""
        values = change_of(given, asked)
        changed = given.model_copy(update=values)
        told = json.loads(changed.to_json())
        said: dict[str, Any] = {"kept": keep, "settings": {key: told[key] for key in values}}
        number = self._keep(values, changed) if keep and values else self.install(changed)
        until = "and kept" if keep else "until the node ends"
        made = ", ".join(f"{key} = {value}" for key, value in said["settings"].items())
        self.log.info("settings are changed, %s: %s", until, made)
        return changed, said | {"number": number}

    def _keep(self, values: Mapping[str, Any], changed: Settings) -> int:
        """Installs `changed`, and leaves `values` to the next start, if that can go by them and all that is kept."""
        for key in values:
            if self.sources.get(key) in _OVERRULING:
                raise OverruledSetting(key, _OVERRULING[self.sources[key]])
        path = self.store.kept_settings
        before = bytes_of(path)
        kept = read_toml(path) if before is not None else {}
        kept |= {key: getattr(value, "value", value) for key, value in values.items()}
        check_kept(self.start, self.sources, kept)
        write_atomically(path, _toml_of(kept))
        try:
            return self.install(changed)
        except Exception as error:
            restore_previous(path, before, error)
            raise

    def _answer(self, asked: Path, said: Mapping[str, Any]) -> None:
        try:
            for done in (asked, asked.with_suffix(".taken")):
                done.unlink(missing_ok=True)
            write_atomically(asked.with_suffix(".done"), json.dumps(said).encode())
        except (TowlineError, OSError) as error:  # who asked looks for itself what holds
            self.log.error("who asked for a change of settings gets no answer: %s", error)

    def _forget_answers(self) -> None:
        """Of those who were ended while they waited. Raises OSError."""
        for left in self.store.changes.iterdir():
            try:
                if left.suffix != ".json" and time.time() - left.stat().st_mtime > LEFT_MAX_S:
                    left.unlink()
            except FileNotFoundError:  # it was fetched just now
                continue


def _take(asked: Path) -> dict[str, Any] | None:
    """What is asked for; None where nobody waits for it any more."""
    try:
        question: dict[str, Any] = json.loads(asked.read_bytes())
        if time.monotonic() > question["deadline"]:
            with suppress(OSError):  # on a disk that cannot be written it stays, and is passed over each time
                asked.unlink()
            return None
        asked.rename(asked.with_suffix(".taken"))
    except FileNotFoundError:
        return None
    return question


def _toml_of(kept: Mapping[str, Any]) -> bytes:
    """The content of kept.toml. A string of JSON is one of TOML but for DEL, and so are numbers and switches."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in sorted(kept.items())]
    return (_HEAD + "".join(lines).replace("\x7f", "\\u007f")).encode()
