"""The operator's remedy after a failed sync (hazard H5).

The kernel reports a failed sync once and calls the pages clean, so syncing again proves nothing: every byte behind the
last durable offset is written anew, which makes its page dirty, and then synced.
"""

import os

from towline.log.files.mapped_file_queue import MappedFileQueue
from towline.log.files.segment_files import sync_directory, sync_file
from towline.log.files.sparse_file import written
from towline.log.state.durable_file import DurableFile
from towline.places import Store


def clear_sync_failure(store: Store, segment_size: int) -> int:
    """Rewrites bytes that may not be on the disk and clears the flag; the next start recovers. Returns how many bytes.

    No process runs on the store. Raises SyncFailed if the disk still fails: then the flag stays.
    """
    durable_file = DurableFile(store.root)
    state = durable_file.load()
    if state is None or not state.sync_failed:
        return 0
    segments = MappedFileQueue(store.commitlog, segment_size)
    segments.load()
    count = 0
    for base in segments.bases:
        if base + segment_size <= state.flushed:
            continue
        path = segments.path_of(base)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for first, end in list(written(fd, max(0, state.flushed - base), segment_size)):
                count += os.pwrite(fd, os.pread(fd, end - first, first), first)
        finally:
            os.close(fd)
        sync_file(path)
    sync_directory(store.commitlog)
    durable_file.clear_sync_failed()
    durable_file.close()
    return count
