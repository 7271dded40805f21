"""Prepares a new slave's first log and shows its progress: `towline slave start --seed`, `--wait`."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from towline.errors import NodeNotRunning, StartFailed
from towline.format.files.seed import SeedFrom, parse_seed
from towline.log.backup.backup_manifest import BackupDirectory
from towline.log.backup.restore import is_empty
from towline.log.files.segment_files import segment_base
from towline.node.peers.peer_client import ask_peers
from towline.node.peers.peer_server import STATE
from towline.node.process.context import open_node
from towline.node.report.running import node_facts
from towline.places import Store
from towline.runtime.positions import Position

from .interrupts import Interrupts
from .output import progress_console
from .store_backup import restore_into

BACKUP: Final = "backup"
STEP_S: Final = 0.1
MS: Final = 1000


def settings_of(root: Path, seed: str | None, limit: int) -> list[str]:
    """Arguments of the slave's start, `limit` in bytes a second. A backup is restored first, into an empty store.

    A store that has a log already goes on where it ends, whatever is said here.
    """
    flags = ["--set", f"seed_byte_in_second={limit}"] if limit else []
    if seed is None:
        return flags
    word, _, rest = seed.partition(":")
    store = Store(root.resolve())
    if word == BACKUP and rest:
        if is_empty(store):
            restore_into(store, BackupDirectory(Path(rest)))
        elif not _has_log(store):
            raise StartFailed("seeding", f"{store.root} is not empty and holds no log: a backup needs a new directory")
        return flags
    if word == SeedFrom.TIME and not rest.isdecimal():
        seed = f"{SeedFrom.TIME}:{_time_of(rest)}"
    try:
        return [*flags, "--set", f"seed={parse_seed(seed)}"]
    except ValueError:
        raise typer.BadParameter(f"{seed!r} is none of oldest, last, offset:N, time:T and backup:DIR") from None


def await_level(root: Path, timeout: float) -> dict[str, Any]:
    """Until the slave has all that its master had when it was first asked; a bar shows the way there.

    Raises NodeNotRunning, StartFailed when `timeout` seconds pass without a byte.
    """
    node_facts(root)
    columns = (TextColumn("catching up"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Interrupts(), Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("", total=None)
        started, goal, moved, last = time.monotonic(), -1, time.monotonic(), -1
        while True:
            node = open_node(root)  # a truncation begins a new generation
            at, low = node.positions.get(Position.APPENDED), node.positions.get(Position.LOG_MIN)
            known = node.positions.get(Position.CONFIRMED)
            node.positions.close()
            if goal < 0:
                goal = _masters_end(root)
            if at != last:
                moved, last = time.monotonic(), at
            bar.update(task, completed=at - low, total=max(at, known, goal) - low)
            if 0 <= goal <= at:
                return {"from": low, "at": at, "goal": goal, "seconds": round(time.monotonic() - started, 3)}
            if time.monotonic() - moved > timeout:
                raise StartFailed("catching up", f"no byte came for {timeout:.0f} s; {_why(root)}")
            time.sleep(STEP_S)


def _masters_end(root: Path) -> int:
    """The confirmed end of the master that is followed; -1 while none is."""
    link = _link(root)
    if not link.get("connected"):
        return -1
    node = open_node(root)
    try:
        if node.settings.rocketmq_master_address is not None:  # no peer: receive has asked it
            return node.positions.get(Position.CONFIRMED)
        answers, _ = ask_peers(node, {"master": str(link["address"])}, {"op": STATE})
    finally:
        node.positions.close()
    return int(answers["master"]["confirmed"]) if "master" in answers else -1


def _why(root: Path) -> str:
    link = _link(root)
    return f"it follows {link['address']}" if link.get("connected") else f"it follows nobody: {link.get('why', '')}"


def _link(root: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Store(root.resolve()).link.read_text(encoding="utf-8"))
    except (FileNotFoundError, NodeNotRunning):
        return {}
    return found


def _has_log(store: Store) -> bool:
    return store.commitlog.is_dir() and any(segment_base(path.name) is not None for path in store.commitlog.iterdir())


def _time_of(text: str) -> int:
    """ms since 1970 of an ISO 8601 time, which is local where it names no zone."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * MS)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time, such as 2026-11-21T10:00:00Z, and no ms since 1970") from None
