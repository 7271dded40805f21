"""Commands to a running node that may change its role: a file for its supervisor, and a ring of its doorbell.

A command stays in run/order.json until the node has agreed on its role, so a supervisor that is killed in the middle of
a promotion continues it at the next start. Its result is in run/order_result.json.
"""

import json
import select
import time
from pathlib import Path
from typing import Any, Final

from towline.errors import NodeNotRunning, NothingToGiveUp, OrderTooOld, OrderUndone
from towline.log.files.store_files import write_atomically
from towline.log.state.in_sync_file import InSyncFile
from towline.log.state.role_file import MASTER
from towline.node.process.failure import error_of
from towline.node.process.supervisor_bell import ring_supervisor
from towline.places import Store
from towline.runtime.locks import store_holder

from .promise import load_promise

PROMOTE: Final = "promote"  # {"accept_loss"?: bool, "elected"?: by etcd, "floor"?: of its set, "epoch"?: least number}
AGREE: Final = "agree"  # the role is asked anew
TRUNCATE: Final = "truncate"  # ha/truncate.json is there
OUTCOME_MAX_S: Final = 60.0
_STEP_S: Final = 0.01
_NO_NEWS: Final = (FileNotFoundError, ValueError)


def submit_command(store_root: Path, order: dict[str, Any]) -> int:
    """Writes the command and rings; returns its number, for `await_result`.

    A promotion replaces a pending command; any other command changes nothing then, for each makes the node check its
    role and a truncation anew. Raises DiskFull, StoreNotWritable, SyncFailed.
    """
    store = Store(store_root.resolve())
    standing = pending_command(store)
    if standing is not None and order["order"] != PROMOTE:
        number = int(standing["number"])
    else:
        given, before = time.time_ns(), (standing, read_json_file(store.order_result))
        # A clock may go back: the result of an earlier command must not be taken for this one's.
        number = max([given, *(int(found.get("number", 0)) + 1 for found in before if found is not None)])
        write_atomically(store.order, json.dumps(order | {"number": number, "given": given}).encode())
    ring_supervisor(store)
    return number


def run_command(store_root: Path, order: dict[str, Any], timeout_s: float = OUTCOME_MAX_S) -> dict[str, Any]:
    """`submit_command` to a node that must run, and its outcome. Raises NodeNotRunning and what `await_result` does."""
    if not store_holder(Store(store_root.resolve()).lock):
        raise NodeNotRunning(str(store_root))
    return await_result(store_root, submit_command(store_root, order), timeout_s)


def await_result(store_root: Path, number: int, timeout_s: float = OUTCOME_MAX_S) -> dict[str, Any]:
    """{"role", "epoch", "stages_ms", ...} once the node serves again. Not for the node's own processes, which it stops.

    Raises the TowlineError that the command ended with, OrderUndone, NodeNotRunning when its supervisor has gone.
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
            raise OrderUndone(str(store.root), str((pending_command(store) or {}).get("order", "change")), timeout_s)
        select.select([], [], [], _STEP_S)
    if "error" in said:
        raise error_of(said["error"], "the node")
    return said


def pending_command(store: Store) -> dict[str, Any] | None:
    """The command that has no result yet."""
    found = read_json_file(store.order)
    return found if found is not None and isinstance(found.get("order"), str) else None


def expired_command(store: Store, order: dict[str, Any], own: int) -> OrderTooOld | None:
    """The error of a promotion that a start of node `own` finds too late: its caller has given up.

    None for one whose in-sync set is recorded: no other node can be master before it is done.
    """
    age_s = abs(time.time_ns() - int(order.get("given", order["number"]))) / 1e9
    if order["order"] != PROMOTE or age_s <= OUTCOME_MAX_S:
        return None
    record, promise = InSyncFile(store).load(), load_promise(store)
    if record is not None and (record.epoch, record.master) == (promise.epoch, own):
        return None
    return OrderTooOld(str(store.root), age_s)


def drop_command(store: Store, number: int) -> None:
    """Deletes a command, by the supervisor before processes start that may submit the next; not a newer one."""
    standing = pending_command(store)
    if standing is not None and int(standing["number"]) == number:
        store.order.unlink(missing_ok=True)


def finish_command(store: Store, number: int, outcome: dict[str, Any]) -> None:
    """Writes the result of a command, by the supervisor."""
    drop_command(store, number)
    write_atomically(store.order_result, json.dumps(outcome | {"number": number}).encode())


def accept_loss_once(store: Store) -> None:
    """Records an operator's consent: what this node confirmed may be cut off where its master has another log.

    The consent ends when the node next follows a master, cut or not, or becomes one. Raises
    NothingToGiveUp, StoreNotWritable, SyncFailed, DiskFull.
    """
    if store_holder(store.lock):
        role, link = (read_json_file(store.node) or {}).get("role"), read_json_file(store.link) or {}
        if role == MASTER or link.get("connected"):
            raise NothingToGiveUp(str(store.root), "is the master" if role == MASTER else "follows its master")
    store.ha.mkdir(parents=True, exist_ok=True)
    write_atomically(store.accept_loss, b"")


def read_json_file(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing or holds no object: nothing durable depends on these files."""
    try:
        found = json.loads(path.read_bytes())
    except _NO_NEWS:
        return None
    return found if isinstance(found, dict) else None
