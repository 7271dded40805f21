"""What the supervisor does with changes of settings: see `settings_changes` for the files and their order."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from towline.errors import ChangeFailed, OverruledSetting, StoreNotWritable, TowlineError
from towline.log.files.store_files import bytes_of, restore_previous, write_atomically
from towline.node.process.failure import facts_of
from towline.node.process.kept_settings import read_kept, without, write_kept
from towline.places import Store
from towline.runtime.settings import (
    ENVIRONMENT_SOURCE,
    FLAGS_SOURCE,
    LIVE,
    SNAKES,
    Settings,
    change_of,
    check_kept,
    unknown_setting,
)

LEFT_MAX_S: Final = 60.0  # an answer that nobody has fetched by then is deleted
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
    `beneath`: of keys that were kept then, what they would have had without that; `install` makes others those of the
    node, and returns the number of the change."""

    store: Store
    start: Settings
    sources: Mapping[str, str]
    install: Install
    log: logging.Logger
    beneath: Mapping[str, Any] = field(default_factory=dict)

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
                if (forgotten := question.get("forget")) is not None:
                    given, said = self._take_back(forgotten, given)
                else:
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
        kept = read_kept(self.store) | {key: getattr(value, "value", value) for key, value in values.items()}
        check_kept(self._base, self.sources, kept)
        return self._save(kept, changed)

    def _take_back(self, keys: Sequence[str], given: Settings) -> tuple[Settings, dict[str, Any]]:
        """What was kept of these keys, of all that is kept without keys, is not kept any more, and those that change
        while the node runs have the value again that it was started with, or would have been."""
        kept, gone = without(self.store, keys)
        named = [SNAKES.get(key, key) for key in keys or gone]
        if unknown := [key for key in named if key not in Settings.model_fields and key not in gone]:
            raise unknown_setting(unknown[0], "the change")
        after = check_kept(self._base, self.sources, kept)
        values = change_of(given, {key: self._base[key] for key in named if key in LIVE})
        changed = given.model_copy(update=values)
        number = self._save(kept, changed)
        self.log.info("settings are not kept any more: %s", ", ".join(gone) or "none was")
        said = {"forgotten": gone, "settings": _told(changed, named), "next": _told(after, named), "number": number}
        return changed, said

    @property
    def _base(self) -> dict[str, Any]:
        """What the next start goes by where nothing is kept."""
        return {**self.start.model_dump(), **self.beneath}

    def _save(self, kept: Mapping[str, Any], changed: Settings) -> int:
        """Leaves `kept` to the next start, and installs `changed`: both, or neither."""
        path = self.store.kept_settings
        before = bytes_of(path)
        write_kept(self.store, kept)
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


def _told(settings: Settings, keys: Sequence[str]) -> dict[str, Any]:
    """These of them, as JSON carries them."""
    told = json.loads(settings.to_json())
    return {key: told[key] for key in keys if key in told}


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
