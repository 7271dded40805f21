"""Properties of a message that came from Kafka: what of a record of Kafka a message has no field for.

Topic, partition and offset are topic, queue and queue offset; the value is the body, the time the born timestamp.

    name                  value
    KEYS                  the key where it is UTF-8 and neither empty nor with a space or a control character
    KAFKA_KEY             base64 of any other key; = for the empty one. A null key has neither
    (headers)             each header by its own name, in order, where all of a record are plain
    KAFKA_HEADERS         base64 of the record's headers as they stand in a batch, from their count on, where one is not
    KAFKA_TOMBSTONE       true: the value is null
    KAFKA_TIMESTAMP       the time where it is below 0, as -1 for none; the born timestamp is 0 then
    KAFKA_TIMESTAMP_TYPE  LogAppendTime, where it is the time of the append; none for CreateTime
    KAFKA_PRODUCER        id:epoch:sequence, where the batch has a producer's id
    KAFKA_TRANSACTIONAL   true: of a transaction that was committed

Headers are plain when there are 32 at most, whose names differ, are UTF-8 of 255 bytes at most, no names of RocketMQ or
Towline (`RESERVED`) and do not begin with KAFKA_ or `__`, and whose values are UTF-8. Names and values are not empty
and have no 0x00, 0x01 and 0x02.

Offsets that no record has, as those of control batches and of what compaction removed, are no property: a record of
`towline.format.record.skipped` says them in the log, before the next record and at the partition's end.
"""

from typing import Final

from towline.format.record import properties, transactions

KEYS: Final = properties.KEYS
KEY: Final = "KAFKA_KEY"
HEADERS: Final = "KAFKA_HEADERS"
TOMBSTONE: Final = "KAFKA_TOMBSTONE"
TIMESTAMP: Final = "KAFKA_TIMESTAMP"
TIMESTAMP_TYPE: Final = "KAFKA_TIMESTAMP_TYPE"
PRODUCER: Final = "KAFKA_PRODUCER"
TRANSACTIONAL: Final = "KAFKA_TRANSACTIONAL"

PREFIX: Final = "KAFKA_"  # of the names above
SYSTEM_PREFIX: Final = "__"  # RocketMQ's own: __SHARDINGKEY, __RMQ.TRANSIENT., __CRC32#
TRUE: Final = "true"
LOG_APPEND_TIME: Final = "LogAppendTime"
EMPTY_KEY: Final = "="  # base64 has no form of nothing that a property could hold
HEADER_NAME_MAX: Final = 255  # bytes

RESERVED: Final = frozenset(properties.RESERVED) | {
    properties.KEYS,
    properties.TAGS,
    properties.UNIQ_KEY,
    properties.WAIT,
    properties.PRODUCER_GROUP,
    properties.RETRY_TOPIC,
    properties.ORIGIN_MESSAGE_ID,
    properties.RECONSUME_TIME,
    properties.MAX_RECONSUME_TIMES,
    properties.MESSAGE_TYPE,
    transactions.CHECK_TIMES,
    transactions.FIRST_OFFSET,
    transactions.IMMUNITY,
    transactions.STORED,
    transactions.OUTCOME,
}
