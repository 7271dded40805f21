"""The put process, and what makes up a master.

owns     APPENDED, STORE_TIMESTAMP, WANTED; CommitLog bytes, the queue-offset table, config/topics.json
reads    FLUSHED, REPLICATED, ALLOCATED, SYNC_FAILED, DISPATCH_STOPPED; queue ends and DISPATCHED when it starts
asks     allocate for the next segments (WANTED and a ring)
answers  producers: a put is acknowledged when FLUSHED and REPLICATED have passed its end, as the settings demand
dies     safely at any point: what lies beyond APPENDED is zeroed by the next start before anything is appended
"""
