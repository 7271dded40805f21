"""The flush process: makes appended bytes durable; with a transient pool copies them into the segment files first.

owns     flush: COMMITTED, FLUSHED, SYNC_FAILED, DERIVED_SYNC_FAILED; the durable-offset file and the checkpoint
reads    APPENDED, STORE_TIMESTAMP, INDEXED, DISPATCHED, DISPATCHED_TIMESTAMP, CONFIRMED, ALLOCATED, LOG_MIN, queue ends
asks     nobody
answers  nobody; who waits for durability watches FLUSHED
dies     safely at any point: FLUSHED only ever trails the disk
"""
