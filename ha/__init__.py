"""Replication on a master's side, and who is master: the processes send (sender), agree and lease (leader). A log for
brokers of RocketMQ is the duty of `rocketmq`, with a contract of its own.

owns     send: REPLICATED, IN_SYNC, IN_SYNC_WANTED, PROMISED, one line per slave; ha/in_sync.json, ha/promise.json;
         lease: LEASE_UNTIL, IN_SYNC_KEPT; the keys of its group in etcd;
         agree: before put starts epochFileCheckpoint, ha/role.json, ha/promise.json and ha/in_sync.json
reads    send: APPENDED, FLUSHED; lease: EPOCH, IN_SYNC_WANTED
asks     agree asks the peers who is master, lease asks etcd
answers  slaves: slices of the log as they stand, and the master's metadata; peers: who this node is, and promises
dies     safely at any point: slaves greet again after every broken link, and a recorded set is never smaller than what
         acknowledgements waited for
"""
