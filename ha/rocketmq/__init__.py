"""A master's log for slaves that are brokers of RocketMQ, by the protocol of their HAService (spec 9.1 to 9.3).

owns     rocketmq_ha: one line per such slave
reads    what is confirmed, FLUSHED, REPLICATED; LOG_MIN, EPOCH, PROMISED; segments of the log
asks     nobody
answers  slaves: frames of the log as it stands, up to what is confirmed, on disk and in sync
dies     safely at any point: a slave connects again within 5 s and says how far it is
"""
