"""Orders to a running node: a file for its supervisor and a ring of its bell, from the command or one of its pieces.

An order stands in run/order.json until the node has agreed on its role, so a supervisor that is killed in the middle of
a promotion goes on with it at the next start. What came of it stands in run/order_result.json.
"""

import json
import os
import select
import time
from pathlib import Path
from typing import Any, Final

from towline.errors import NodeNotRunning, NothingToGiveUp, OrderTooOld, OrderUndone, PositionsUnusable
from towline.log.files.store_files import write_atomically
from towline.log.state.in_sync_file import InSyncFile
from towline.node.process.context import runtime_in_use
from towline.node.process.failure import error_of
from towline.places import Store
from towline.runtime.doorbell import Ringer
from towline.runtime.locks import store_holder
from towline.runtime.positions import Duty, Positions

from .promise import load_promise
from .roles import MASTER

PROMOTE: Final = "promote"  # {"accept_loss"?: bool, "elected"?: by etcd, "floor"?: of its set, "epoch"?: least number}
AGREE: Final = "agree"  # the role is asked anew
TRUNCATE: Final = "truncate"  # ha/truncate.json is there
OUTCOME_MAX_S: Final = 60.0
_STEP_S: Final = 0.01
_NO_NEWS: Final = (FileNotFoundError, ValueError)


def give_order(store_root: Path, order: dict[str, Any]) -> int:
    """Writes the order and rings; returns its number, for `await_outcome`.

    Of a node that has an order already, a promotion takes its place, anything else changes nothing: every order makes
    the node look at its role and at a truncation anew. Raises DiskFull, StoreNotWritable, SyncFailed.
    """
    store = Store(store_root.resolve())
    standing = pending(store)
    if standing is not None and order["order"] != PROMOTE:
        number = int(standing["number"])
    else:
        given, before = time.time_ns(), (standing, read_json_file(store.order_result))
        # A clock may go back: what came of an earlier order must not be taken for the outcome of this one.
        number = max([given, *(int(found.get("number", 0)) + 1 for found in before if found is not None)])
        write_atomically(store.order, json.dumps(order | {"number": number, "given": given}).encode())
    _ring(store)
    return number


def order_of(store_root: Path, order: dict[str, Any], timeout_s: float = OUTCOME_MAX_S) -> dict[str, Any]:
    """`give_order` to a node that must run, and its outcome. Raises NodeNotRunning and what `await_outcome` does."""
    if not store_holder(Store(store_root.resolve()).lock):
        raise NodeNotRunning(str(store_root))
    return await_outcome(store_root, give_order(store_root, order), timeout_s)


def await_outcome(store_root: Path, number: int, timeout_s: float = OUTCOME_MAX_S) -> dict[str, Any]:
    """{"role", "epoch", "stages_ms", ...} once the node serves again. Not for the node's own pieces, which it stops.

    Raises the TowlineError that the order ended with, OrderUndone, NodeNotRunning when its supervisor has gone.
    """
    store = Store(store_root.resolve())
    deadline = time.monotonic() + timeout_s
    while True:
        said = read_json_file(store.order_result)
        if said is not None and int(said["number"]) >= number:
            break
        if not store_holder(store.lock):
            raise NodeNotRunning(str(store.root))
        if time.monotonic() > deadline:
            raise OrderUndone(str(store.root), str((pending(store) or {}).get("order", "change")), timeout_s)
        select.select([], [], [], _STEP_S)
    if "error" in said:
        raise error_of(said["error"], "the node")
    return said


def pending(store: Store) -> dict[str, Any] | None:
    """The order that has no outcome yet."""
    found = read_json_file(store.order)
    return found if found is not None and isinstance(found.get("order"), str) else None


def too_old(store: Store, order: dict[str, Any], own: int) -> OrderTooOld | None:
    """Of an order that a start of node `own` finds: a promotion, for which nobody waits any more.

    Not of one that came so far that its in-sync set is recorded: nobody else can be master before it is done.
    """
    age_s = abs(time.time_ns() - int(order.get("given", order["number"]))) / 1e9
    if order["order"] != PROMOTE or age_s <= OUTCOME_MAX_S:
        return None
    record, promise = InSyncFile(store).load(), load_promise(store)
    if record is not None and (record.epoch, record.master) == (promise.epoch, own):
        return None
    return OrderTooOld(str(store.root), age_s)


def drop_order(store: Store, number: int) -> None:
    """By the supervisor, before pieces start that may give the next one; a newer one that stands is not touched."""
    standing = pending(store)
    if standing is not None and int(standing["number"]) == number:
        store.order.unlink(missing_ok=True)


def settle_order(store: Store, number: int, outcome: dict[str, Any]) -> None:
    """By the supervisor: how the order ended."""
    drop_order(store, number)
    write_atomically(store.order_result, json.dumps(outcome | {"number": number}).encode())


def allow_loss(store: Store) -> None:
    """An operator's word: what was confirmed on this node may be cut off where its master has another log.

    The next time that it follows a master, cut or not, takes the word back; so does becoming one. Raises
    NothingToGiveUp, StoreNotWritable, SyncFailed, DiskFull.
    """
    if store_holder(store.lock):
        role, link = (read_json_file(store.node) or {}).get("role"), read_json_file(store.link) or {}
        if role == MASTER or link.get("connected"):
            raise NothingToGiveUp(str(store.root), "is the master" if role == MASTER else "follows its master")
    store.ha.mkdir(parents=True, exist_ok=True)
    write_atomically(store.accept_loss, b"")


def read_json_file(path: Path) -> dict[str, Any] | None:
    """None for a file that is not there or holds no object: these files are news, not the truth."""
    try:
        found = json.loads(path.read_bytes())
    except _NO_NEWS:
        return None
    return found if isinstance(found, dict) else None


def _ring(store: Store) -> None:
    runtime = runtime_in_use(store.root)
    try:
        positions = Positions.open(runtime.positions, writable=False)
    except PositionsUnusable:  # it is just starting, or stopping: it looks by itself
        return
    bell = runtime.bell(Duty.SUPERVISE.label)
    if bell.exists() and os.access(bell, os.W_OK):
        ringer = Ringer(positions, {Duty.SUPERVISE: bell})
        ringer.ring()
        ringer.close()
    positions.close()
