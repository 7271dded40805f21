"""Queues and index that were built beside the old ones take their places, and the state files say so."""

from collections.abc import Callable
from pathlib import Path

from towline.format.files import durable_slots
from towline.format.files.durable import Durable
from towline.log.files.segment_files import exchange, sync_directory, sync_file
from towline.log.files.store_files import write_atomically
from towline.places import Store


def put_in_place(
    made: Path, target: Path, take: Callable[[Path], object], note: Callable[[str], None] = lambda _: None
) -> None:
    """`made` becomes `target`; what stood there is handed to `take`, wherever it stands by then.

    At one stroke where the file system can: queues of records that are deleted stand nowhere else. `note` hears of each
    step.
    """
    note(f"swap {target.name}")
    if target.exists() and exchange(made, target):
        sync_directory(target.parent)
        note(f"swapped out {target.name}")
        take(made)
        return
    if target.exists():
        take(target)
    note(f"swapped out {target.name}")
    made.rename(target)
    sync_directory(target.parent)


def sync_files(*directories: Path) -> None:
    """Makes everything in these directories durable, names included. Raises SyncFailed."""
    for directory in directories:
        for path in sorted(directory.rglob("*")) if directory.is_dir() else ():
            sync_directory(path) if path.is_dir() else sync_file(path)


def save_derived(store: Store, segment_size: int, log_min: int, end: int) -> None:
    """Log, queues and index were read or built to `end`, and all of it was synced: `durable` says so."""
    state = Durable(flushed=end, segment_base=end - end % segment_size, queues_durable=end, log_min=log_min)
    write_atomically(store.durable, durable_slots.first(state))
