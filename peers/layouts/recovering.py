"""What a start has to do after a kill -9, before it may acknowledge: every layout by its own recovery."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover as recover_partition
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.queue_build import QueueBuild, build_queues
from towline.log.recovery.recovery import RecoverySettings, recover
from towline.places import Store

from .one_log import QUEUE_FILE

THREADS: Final = 2  # num.recovery.threads.per.data.dir of a broker


def recover_one_log(directory: Path, segment: int) -> tuple[float, int]:
    """Recovery of a node's start, behind which it may acknowledge; then all queues are derived from the log again.

    No queue was ever synced, so none is believed. A node derives while it runs. Seconds of the first part; how many
    messages there are.
    """
    store, began = Store(directory), time.perf_counter()
    found = recover(
        store,
        RecoverySettings(segment_size=segment, queue_file_size=QUEUE_FILE, index_slots=None, index_indexes=0),
    )
    first_s = time.perf_counter() - began
    log = CommitLogReader(store.commitlog, segment)
    log.load()
    build, files = QueueBuild(log, ()), ConsumeQueueFiles(store.consumequeue, QUEUE_FILE, 1)
    for _ in build_queues(build, files, found.dispatched, found.end):
        pass
    files.sync_all()
    files.close()
    log.close()
    return first_s, sum(stretch.end for stretch in build.stretches())


def recover_partitions(directory: Path) -> int:
    """Every partition as a clean stop would have left it. How many messages there are."""
    with ThreadPoolExecutor(THREADS) as threads:
        return sum(found.end for found in threads.map(recover_partition, sorted(directory.iterdir())))


def walk_partitions(directory: Path) -> int:
    """The part of it that reads: every batch of every partition is checked, nothing is written."""
    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(_walked, sorted(directory.iterdir())))


def _walked(directory: Path) -> int:
    return sum(int(batches["record_count"].sum()) for _, _, batches in Partition(directory).scans(check_crcs=True))
