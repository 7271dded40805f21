"""Stores as a node leaves them, whose settings tell tools the sizes of their files."""

from pathlib import Path

from tests.log.sound import state_files
from tests.log.stores import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, StoreMaker
from towline.places import Store
from towline.runtime.settings import Settings

from .logs import DELAYS


def sound_node(root: Path, count: int = 300) -> StoreMaker:
    """Of a node that was stopped: three segments, queues and index."""
    maker = StoreMaker(root)
    shape(maker.store)
    maker.fill(count)
    maker.dispatch(maker.end)
    state_files(maker)
    return maker


def shape(store: Store) -> None:
    """What a node leaves of its settings, so that tools know the sizes."""
    for directory in (store.consumequeue, store.index, store.run, store.config):
        directory.mkdir(parents=True, exist_ok=True)
    known = Settings(
        store_path_root_dir=store.root,
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=QUEUE_FILE,
        max_hash_slot_num=SLOTS,
        max_index_num=INDEXES,
        message_delay_level=DELAYS,
    )
    store.settings.write_text(known.to_json(), encoding="utf-8")
