"""Replication: the sender on a master, the receiver on a slave.

owns     send: REPLICATED, IN_SYNC, IN_SYNC_WANTED, PROMISED, one line per slave; ha/in_sync.json, ha/promise.json;
         receive: APPENDED, CONFIRMED, WANTED, EPOCH, IN_SYNC, and LOG_MIN while its log is empty; CommitLog bytes,
         epochFileCheckpoint, ha/in_sync.json, ha/truncate.json and run/link.json of a slave;
         lease: LEASE_UNTIL, IN_SYNC_KEPT; the keys of its group in etcd;
         agree: epochFileCheckpoint and ha/role.json, before put starts
reads    sender: APPENDED, FLUSHED; receiver: FLUSHED
asks     the receiver asks the sender: it greets with the end of its log, and grants credit with every acknowledgement
answers  slaves: slices of the log as they stand, and the master's metadata
dies     safely at any point: a slave appends only at its own end, and greets again after every broken link
"""
