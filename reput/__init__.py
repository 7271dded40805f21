"""ReputMessageService: scans what was confirmed and derives ConsumeQueues and IndexFiles from it.

owns     reput: DISPATCHED, DISPATCHED_TIMESTAMP, INDEXED, DISPATCH_STOPPED, DISPATCH_STOPPED_WHY, FILTERS, the flags
         LOGIC_QUEUE_ERROR, INDEX_ERROR, LOGIC_DISK_FULL and RUNTIME_FULL; ConsumeQueue, ConsumeQueueExt and IndexFile
         bytes and files, the table of queue ends, config/queueMinima.json; on a slave put_stats of the runtime
         directory
reads    the confirmed end: APPENDED, FLUSHED and REPLICATED or CONFIRMED, as role and settings demand; LOG_MIN;
         topics.json, which says how long messages are kept
asks     nobody
answers  nobody; serve is rung when DISPATCHED moved
dies     safely at any point: it starts again at DISPATCHED, and what it wrote beyond that is written again or cut
"""
