"""The work of `towline store`."""

from pathlib import Path

from rich.console import Console

from towline.log.repair.clear_sync_failure import clear_sync_failure
from towline.log.state.durable_file import DurableFile
from towline.places import Store
from towline.runtime.locks import StoreLock
from towline.runtime.settings import Settings

from .output import show


def mend_store(root: Path, yes: bool, as_json: bool) -> None:
    """Raises StoreTaken while a node runs, SyncFailed while the disk still fails."""
    store = Store(root.resolve())
    lock = StoreLock(store.lock)
    try:
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
