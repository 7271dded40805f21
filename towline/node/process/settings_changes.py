"""Changes of settings while a node runs, as they are asked for.

    run/changes/NUMBER.json   {"settings": {key: value}, "keep": bool, "deadline": monotonic s}, by who asks; then the
                              supervisor's bell rings. After the deadline nobody waits for it, and it is not made.
                              Or {"forget": [key], "deadline"}: what was kept of these, of all without a key, goes
    run/changes/NUMBER.taken  the same, while the supervisor carries it out
    run/changes/NUMBER.done   what came of it, by the supervisor; who asked deletes it, or after a minute the supervisor
    kept.toml                 what is to hold at the next start too, by the supervisor (`kept_settings`)

The supervisor checks a change, writes kept.toml, run/settings.json and SETTINGS, in this order, and rings every bell.
Each process looks at SETTINGS between two cycles (`live_settings`), and says in its line which change it has taken. Who
asks waits for that, so a change holds when the answer is there.
"""

import itertools
import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from towline.errors import ChangeUndone, NodeNotRunning, PositionsUnusable
from towline.log.files.store_files import write_atomically
from towline.places import Store
from towline.runtime.locks import StoreLock, store_holder, store_is_held
from towline.runtime.positions import DutyLine, Positions, State
from towline.runtime.settings import LIVE, SNAKES, Settings, unknown_setting

from .context import runtime_in_use
from .duties import MODULES
from .failure import error_of
from .kept_settings import read_kept, without, write_kept
from .supervisor_bell import ring_supervisor

WAIT_S: Final = 10.0
_STEP_S: Final = 0.005
_numbers: Final = itertools.count()


def read_node_settings(store_root: Path) -> list[dict[str, Any]]:
    """What the running node works by: key, value, default, live (the processes that take a change at run time, "" where
    only a start does), kept (whether it was changed and kept). Raises NodeNotRunning, UnreadableSettings."""
    store = Store(store_root.resolve())
    if not store_holder(store.lock):
        raise NodeNotRunning(str(store.root))
    values = json.loads(store.settings.read_text(encoding="utf-8"))
    kept = read_kept(store)
    defaults = json.loads(Settings.model_validate({}).to_json())
    return [
        {"key": key, "value": value, "default": defaults[key], "live": LIVE.get(key, ""), "kept": key in kept}
        for key, value in sorted(values.items())
        if key != "ignored"
    ]


def change_settings(
    store_root: Path, settings: Mapping[str, object], *, keep: bool, timeout_s: float = WAIT_S
) -> dict[str, Any]:
    """Changes settings of the running node. settings: as they are then, by key; kept: whether they hold at the next
    start too; waiting: processes that have not taken them yet, as they are in one long call, and will; node: whose
    they are, with broker_name, broker_id, role and store.

    Raises what the supervisor refuses it with (UnknownSetting, BadSetting, FixedSetting, OverruledSetting, DiskFull,
    StoreNotWritable, SyncFailed, UnreadableSettings, ChangeFailed), NodeNotRunning, ChangeUndone.
    """
    return _ask(Store(store_root.resolve()), {"settings": dict(settings), "keep": keep}, timeout_s)


def forget_settings(store_root: Path, keys: Sequence[str], *, timeout_s: float = WAIT_S) -> dict[str, Any]:
    """Takes back what `change_settings` did to these keys, to all that is kept without a key, whether the node runs or
    not. forgotten: what was kept of them, by key; where the node runs also settings: as they are then; next: as they
    are after its next start; waiting and node as `change_settings` has them.

    Raises UnknownSetting, and what the next start would refuse it with (BadSetting); UnreadableSettings where keys are
    named; StoreTaken, NodeNotRunning where a node begins or ends meanwhile; DiskFull, StoreNotWritable, SyncFailed,
    ChangeFailed, ChangeUndone.
    """
    store = Store(store_root.resolve())
    if store_is_held(store.lock):
        return _ask(store, {"forget": list(keys)}, timeout_s)
    if not store.kept_settings.exists():
        return {"forgotten": {}}
    lock = StoreLock(store.lock)  # no node starts meanwhile
    try:
        kept, gone = without(store, keys)
        if unknown := [key for key in keys if key not in SNAKES and key not in gone]:
            raise unknown_setting(unknown[0], "the change")
        write_kept(store, kept)
    finally:
        lock.release()
    return {"forgotten": gone}


def _ask(store: Store, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """What came of a question that the supervisor answers. Raises NodeNotRunning, ChangeUndone, what it refuses."""
    if not store_holder(store.lock):
        raise NodeNotRunning(str(store.root))
    store.changes.mkdir(exist_ok=True)
    asked = store.changes / f"{time.time_ns()}-{os.getpid()}-{next(_numbers)}.json"
    deadline = time.monotonic() + timeout_s
    try:
        write_atomically(asked, json.dumps({**question, "deadline": deadline}).encode())
        ring_supervisor(store)
        said = _await_outcome(store, asked, deadline)
    finally:
        with suppress(OSError):  # what nobody has begun yet is not made later; if it stays, its deadline says so
            asked.unlink(missing_ok=True)
    number = said.pop("number")
    return said | {"waiting": _await_taken(store, number, deadline), "node": _named(store)}


def _await_outcome(store: Store, asked: Path, deadline: float) -> dict[str, Any]:
    done = asked.with_suffix(".done")
    while not done.exists():
        if not store_holder(store.lock):
            raise NodeNotRunning(str(store.root))
        if time.monotonic() > deadline:
            raise ChangeUndone(str(store.root))
        select.select([], [], [], _STEP_S)
    said: dict[str, Any] = json.loads(done.read_bytes())
    done.unlink()
    if "error" in said:
        raise error_of(said["error"], "the node")
    return said


def _await_taken(store: Store, number: int, deadline: float) -> list[str]:
    """Waits until every process works by change `number`; labels of those that do not until the deadline."""
    try:
        positions = Positions.open(runtime_in_use(store.root).positions, writable=False)
    except PositionsUnusable:  # a new generation begins, with the new settings
        return []
    generation = positions.generation
    try:
        while True:
            behind = [duty.label for duty in MODULES if _is_behind(positions.duty(duty), number)]
            if not behind or positions.generation != generation or not generation:
                return []
            if time.monotonic() > deadline:
                return behind
            select.select([], [], [], _STEP_S)
    finally:
        positions.close()


def _named(store: Store) -> dict[str, Any]:
    settings = json.loads(store.settings.read_text(encoding="utf-8"))
    role = json.loads(store.node.read_text(encoding="utf-8"))["role"]
    return {key: settings[key] for key in ("broker_name", "broker_id")} | {"role": role, "store": str(store.root)}


def _is_behind(line: DutyLine, number: int) -> bool:
    """Of one that was killed nothing is waited for: whoever takes its place starts with the change."""
    return (
        line.state not in (State.ABSENT, State.STOPPED) and line.taken < number and Path(f"/proc/{line.pid}").exists()
    )
