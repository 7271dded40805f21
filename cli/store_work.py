"""Does the work of `towline store mend` and `towline store clean`."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from towline.errors import MalformedFile, StartFailed
from towline.log.repair.clear_sync_failure import clear_sync_failure
from towline.log.state.durable_file import DurableFile
from towline.log.state.identity import IdentityFile
from towline.node.report.running import open_running
from towline.places import Store
from towline.runtime.locks import StoreLock
from towline.runtime.positions import Position
from towline.runtime.settings import Settings

from .output import show


def mend_store(root: Path, yes: bool, as_json: bool) -> None:
    """Raises StoreTaken while a node runs, StoreOfAnotherVersion, SyncFailed while the disk still fails."""
    store = Store(root.resolve())
    lock = StoreLock(store.lock)
    try:
        with suppress(MalformedFile):  # `store repair` heals that
            IdentityFile(store.root).load()
        state = DurableFile(store.root).load()
        failed = state is not None and state.sync_failed
        rewritten = 0
        if failed and yes:
            settings = Settings.from_json(store.settings.read_text(encoding="utf-8"))
            rewritten = clear_sync_failure(store, settings.mapped_file_size_commit_log)
    finally:
        lock.release()
    flushed = state.flushed if state is not None else 0
    result = {"sync_failed": failed, "durable": flushed, "mended": failed and yes, "rewritten_bytes": rewritten}

    def render(console: Console) -> None:
        if not failed:
            console.print("no sync has failed on this store: there is nothing to mend")
        elif not yes:
            console.print(f"a sync failed behind offset {flushed:,}; run it again with --yes to write that range anew")
        else:
            console.print(f"{rewritten:,} bytes behind offset {flushed:,} were written anew and synced")

    show(result, as_json, render)


# --- clean


TAKEN_MAX_S: Final = 5.0
STEP_S: Final = 0.05


def clean_store(root: Path, as_json: bool) -> None:
    """Asks allocate, and waits until it has heard. Raises NodeNotRunning; StartFailed when nobody hears it."""
    _, node = open_running(root)
    low = node.positions.get(Position.LOG_MIN)
    node.store.clean.touch()
    deadline = time.monotonic() + TAKEN_MAX_S
    while node.store.clean.exists():
        if time.monotonic() > deadline:
            node.store.clean.unlink(missing_ok=True)
            raise StartFailed(
                "cleaning", f"allocate did not hear of it within {TAKEN_MAX_S:.0f} s: `towline master status` says why"
            )
        time.sleep(STEP_S)
    hours = node.settings.file_reserved_time
    result = {"asked": True, "log_min": low, "file_reserved_time": hours}
    sentence = f"segments older than {hours} h go now, the log began at {low:,}; {node.store.node_log} names each"
    show(result, as_json, lambda console: console.print(sentence))
