"""What the supervisor does with changes of settings: see `settings_changes` for the files and their order."""

import json
import logging
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.errors import DiskFull, OverruledSetting, StoreNotWritable, SyncFailed, TowlineError, UnreadableSettings
from towline.log.files.store_files import write_atomically
from towline.node.process.failure import facts_of
from towline.places import Store
from towline.runtime.settings import ENVIRONMENT_SOURCE, FLAGS_SOURCE, Settings, change_of

_HEAD: Final = """\
# Changed while the node ran, by `towline config set --keep`. Read at each start of the node: what stands here wins over
# the node's file of settings, the environment and flags win over what stands here.
"""
_OVERRULING: Final = {FLAGS_SOURCE: "the command that starts it", ENVIRONMENT_SOURCE: "its environment"}
Install = Callable[[Settings], int]


def carry_out(store: Store, given: Settings, sources: Mapping[str, str], install: Install, log: logging.Logger) -> None:
    """Carries out every change that is asked for. `given` are the node's settings without what its role makes of them,
    `sources` where they came from; `install` makes others those of the node, and returns the number of the change."""
    for asked in sorted(store.changes.glob("*.json")) if store.changes.is_dir() else ():
        try:
            taken = asked.rename(asked.with_suffix(".taken"))
        except FileNotFoundError:  # who asked has given up
            continue
        try:
            question = json.loads(taken.read_bytes())
            values = change_of(given, question["settings"])
            changed = given.model_copy(update=values)
            number = _put_in_place(store, sources, values if question["keep"] else {}, changed, install)
            told = json.loads(changed.to_json())
            said: dict[str, Any] = {"number": number, "kept": question["keep"]}
            said["settings"] = {key: told[key] for key in values}
            given = changed
            message = "settings are changed, %s: %s"
            until = "and kept" if question["keep"] else "until the node ends"
            log.info(message, until, ", ".join(f"{key} = {value}" for key, value in said["settings"].items()))
        except TowlineError as error:
            said = {"error": facts_of(error)}
        taken.unlink()
        try:
            write_atomically(asked.with_suffix(".done"), json.dumps(said).encode())
        except (DiskFull, StoreNotWritable, SyncFailed) as error:  # who asked looks for itself what holds
            log.error("who asked for a change of settings gets no answer: %s", error)


def forget_changes(store: Store) -> None:
    """Deletes what was asked of a node before."""
    for leftover in store.changes.iterdir() if store.changes.is_dir() else ():
        leftover.unlink()


def _put_in_place(
    store: Store, sources: Mapping[str, str], kept: Mapping[str, Any], changed: Settings, install: Install
) -> int:
    """Nothing has changed where this raises."""
    for key in kept:
        if sources.get(key) in _OVERRULING:
            raise OverruledSetting(key, _OVERRULING[sources[key]])
    if not kept:
        return install(changed)
    path = store.kept_settings
    before = path.read_bytes() if path.exists() else None
    write_atomically(path, _with_kept(before, kept, str(path)))
    try:
        return install(changed)
    except (DiskFull, StoreNotWritable, SyncFailed):
        if before is None:
            path.unlink()
        else:
            write_atomically(path, before)
        raise


def _with_kept(before: bytes | None, kept: Mapping[str, Any], path: str) -> bytes:
    """The content of kept.toml. A string of JSON is one of TOML, and so are numbers and switches."""
    try:
        known: dict[str, Any] = tomllib.loads((before or b"").decode())
    except ValueError as error:
        raise UnreadableSettings(path, str(error)) from None
    known |= {key: getattr(value, "value", value) for key, value in kept.items()}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in sorted(known.items())]
    return (_HEAD + "".join(lines)).encode()
