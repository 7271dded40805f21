"""What makes up a slave: receive appends the master's log, follow keeps its metadata.

owns     receive: APPENDED, CONFIRMED, WANTED, EPOCH, IN_SYNC, and LOG_MIN while its log is empty; CommitLog bytes,
         epochFileCheckpoint, ha/in_sync.json, ha/truncate.json and run/link.json of a slave;
         follow: PROMISED; ha/promise.json; of config/ topics.json, subscriptionGroup.json, consumerOffset.json,
         consumerFilter.json, messageRequestMode.json, delayOffset.json, timerOffset.json, transactionOffset.json and
         queueFloors.json
reads    receive: FLUSHED, PROMISED; follow: APPENDED, FLUSHED, LOG_MIN, EPOCH
asks     receive the master's send for its log: it greets with its end, and grants credit with every acknowledgement;
         follow the master's send for the files that changed; a master that is a broker of RocketMQ is asked by its own
         protocols (`rocketmq`)
answers  follow: peers, who this node is, and promises
dies     safely at any point: receive appends only at its own end, and greets again after every broken link; each file
         is replaced whole, with its previous generation kept
"""
