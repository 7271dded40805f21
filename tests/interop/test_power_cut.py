"""A power cut takes queue entries that were not yet on the disk; the checkpoint tells the real store how many."""

import numpy as np

from tests.processes.waiting import await_
from towline.format.files.checkpoint import decode
from towline.format.files.consume_queue import ENTRY
from towline.log.state.checkpoint_file import CheckpointFile

from .checks import mixture
from .model import check_all
from .towlines import TowlineStore


def lose_queue_entries(store: TowlineStore, behind: int) -> int:
    """Zeroes every entry of a record that begins behind this byte of the log; how many."""
    lost = 0
    for path in (store.root / "consumequeue").rglob("*/*/*"):
        entries = np.fromfile(path, dtype=ENTRY)
        gone = (entries["physical_offset"] > behind) & (entries["record_size"] > 0)
        lost += int(gone.sum())
        entries[gone] = 0
        entries.tofile(path)
    return lost


def test_the_real_store_dispatches_again_what_the_queues_lost(release, real, tmp_path):
    towline = TowlineStore(
        real.root,
        flush_interval_consume_queue=100,
        flush_consume_queue_thorough_interval=200,
        flush_interval_commit_log=50,
    )
    messages = mixture(6, release)
    try:
        towline.start()
        sent = messages.take(600)
        towline.send(sent)

        def known() -> int:
            checkpoint = CheckpointFile(towline.root).load()
            return checkpoint.logics_physical_offset if checkpoint else 0

        await_(known, 20.0, "a thorough flush of the queues")
        checkpoint = towline.node.store.checkpoint.read_bytes()
        behind = decode(checkpoint, "checkpoint").logics_physical_offset
        more = messages.take(600)
        towline.send(more)
        sent += more
        towline.await_dispatched()
        towline.kill(seed=3)
    finally:
        towline.end()
    towline.node.store.checkpoint.write_bytes(checkpoint)
    assert lose_queue_entries(towline, behind) >= 500

    real.open()
    check_all(sent, real.read())
    real.close()
