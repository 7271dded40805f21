"""The flush process: makes appended bytes durable.

owns     COMMITTED, FLUSHED, SYNC_FAILED; the durable-offset file and the checkpoint
reads    APPENDED, STORE_TIMESTAMP, DISPATCHED, DISPATCHED_TIMESTAMP, queue ends
asks     nobody
answers  nobody; who waits for durability watches FLUSHED
dies     safely at any point: FLUSHED only ever trails the disk
"""
