"""The put process, the schedule process, and what makes up a master. Here put; schedule's duty stands in `schedule`.

owns     put: APPENDED, STORE_TIMESTAMP, WANTED; CommitLog bytes, the queue-offset table, config/topics.json,
         put_stats of the runtime directory; what it refused, by cause
reads    FLUSHED, REPLICATED, ALLOCATED, SYNC_FAILED, DISPATCH_STOPPED, running flags; queue ends and DISPATCHED when it
         starts
asks     allocate for the next segments (WANTED and a ring)
answers  producers: a put is acknowledged when FLUSHED and REPLICATED have passed its end, as the settings demand;
         who cannot be served is refused with a cause and its numbers, by the front while an append is stuck;
         schedule, which shows the secret of the runtime directory: it may say what no client may
dies     safely at any point: what lies beyond APPENDED is zeroed by the next start before anything is appended
"""
