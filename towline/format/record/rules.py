"""The rules that a record must keep, by number: kernels return the number, people read the sentence.

A rule is named the same in a put's refusal, in recovery's verdict and in `towline inspect`.
"""

from enum import IntEnum


class Rule(IntEnum):
    """Why a record, or the request that carries it, is refused. OK is 0; the order is part of the wire protocol."""

    OK = 0
    SIZE_TOO_SMALL = 1
    SIZE_PAST_END = 2
    MAGIC = 3
    PARTS_DO_NOT_ADD_UP = 4
    BODY_TOO_LARGE = 5
    TOPIC_LENGTH = 6
    TOPIC_MISMATCH = 7
    QUEUE_ID = 8
    BODY_CRC = 9
    PROPERTIES_TOO_LARGE = 10
    PROPERTIES_FORM = 11
    STORE_HOST_FLAG = 12
    PHYSICAL_OFFSET = 13
    COUNT_MISMATCH = 14
    GROUP_SIZE = 15
    STORE_TIMESTAMP = 16
    RECORD_TOO_LARGE = 17
    TOPIC_FORM = 18
    ENDS_INSIDE = 19
    PROPERTY_CRC = 20
    PROPERTY_CRC_MISSING = 21
    PROPERTY_CRC_MISPLACED = 22
    PROPERTY_OF_THE_BROKER = 23
    PROPERTY_OF_ANOTHER_BROKER = 24
    PROPERTY_NEVER_STORED = 25
    DELAY_MISPLACED = 26
    TIMER_MISPLACED = 27
    TRANSACTION_MISPLACED = 28
    SYS_FLAG = 29
    REAL_TOPIC = 30
    REAL_QUEUE = 31
    DELAY_LEVEL = 32
    HALF_FORM = 33
    TIMER_FORM = 34
    TIMER_TOO_FAR = 35
    CANCEL_FORM = 36
    CANCEL_TOO_LATE = 37
    HALF_TOO_LARGE = 38
    SEQUENCE_MISPLACED = 39
    SEQUENCE_ORDER = 40

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Rule.OK: "the record keeps every rule",
    Rule.SIZE_TOO_SMALL: "TOTALSIZE is smaller than the smallest possible record",
    Rule.SIZE_PAST_END: "TOTALSIZE reaches past the end of the bytes that hold it",
    Rule.MAGIC: "MAGICCODE is neither DAA320A7 (V1) nor DAA320AB (V2)",
    Rule.PARTS_DO_NOT_ADD_UP: "TOTALSIZE is not the sum of the parts",
    Rule.BODY_TOO_LARGE: "the body is longer than max_message_size",
    Rule.TOPIC_LENGTH: "the topic is empty or longer than 127 bytes (%RETRY% topics: 255)",
    Rule.TOPIC_MISMATCH: "the record's topic is not the topic its group was sent for",
    Rule.QUEUE_ID: "QUEUEID is negative, or not the queue the record's group was sent for",
    Rule.BODY_CRC: "BODYCRC differs from the CRC-32 of the body",
    Rule.PROPERTIES_TOO_LARGE: "the properties are longer than 32767 bytes",
    Rule.PROPERTIES_FORM: "the properties hold a NUL byte or do not parse as name 0x01 value 0x02",
    Rule.STORE_HOST_FLAG: "SYSFLAG's store host bit (0x20) does not fit the broker's address family",
    Rule.PHYSICAL_OFFSET: "PHYSICALOFFSET is not where the record stands",
    Rule.COUNT_MISMATCH: "the number of records is not the number the request announced",
    Rule.GROUP_SIZE: "the group's records do not end where the request announced",
    Rule.STORE_TIMESTAMP: "STORETIMESTAMP is not positive",
    Rule.RECORD_TOO_LARGE: "the record is longer than max_message_size + 65536",
    Rule.TOPIC_FORM: "the topic cannot be a directory: it holds a NUL byte or a slash, or is . or ..",
    Rule.ENDS_INSIDE: "the bytes end inside the record",
    Rule.PROPERTY_CRC: "the __CRC32# that ends the properties differs from the CRC-32 of the record before it",
    Rule.PROPERTY_CRC_MISSING: "the properties do not end with the 20 bytes of a __CRC32#, which this store wants",
    Rule.PROPERTY_CRC_MISPLACED: "a property is called __CRC32#, where this store keeps none",
    Rule.PROPERTY_OF_THE_BROKER: "REAL_TOPIC, REAL_QID, TIMER_OUT_MS and INNER_* are a broker's, or of another form",
    Rule.PROPERTY_OF_ANOTHER_BROKER: "CLUSTER, MSG_REGION or TRACE_ON is not what this broker would write",
    Rule.PROPERTY_NEVER_STORED: "POP_CK, MIN_OFFSET, MAX_OFFSET and __RMQ.TRANSIENT.* are never stored",
    Rule.DELAY_MISPLACED: "DELAY stands in records for SCHEDULE_TOPIC_XXXX alone: elsewhere nothing would delay them",
    Rule.TIMER_MISPLACED: "a TIMER_ property that only records for rmq_sys_wheel_timer carry, or not this one",
    Rule.TRANSACTION_MISPLACED: "TRAN_MSG stands in records for RMQ_SYS_TRANS_HALF_TOPIC alone: all see the others",
    Rule.SYS_FLAG: "SYSFLAG has bits of a transaction (0x0C) or an inner batch (0xC0), which no client may set here",
    Rule.REAL_TOPIC: "REAL_TOPIC is missing, or no topic of this node that clients may write to",
    Rule.REAL_QUEUE: "REAL_QID is missing, or no queue of REAL_TOPIC",
    Rule.DELAY_LEVEL: "DELAY is missing, or not the level of the record's queue, which is the queue's number plus 1",
    Rule.HALF_FORM: "a half message has TRAN_MSG=true and the PGROUP of its producer",
    Rule.TIMER_FORM: "TIMER_DELIVER_MS and TIMER_OUT_MS are not the same time in ms since 1970",
    Rule.TIMER_TOO_FAR: "the time of delivery is further away than timer_max_delay_sec",
    Rule.CANCEL_FORM: "a cancellation has the TIMER_DEL_UNIQKEY of what it cancels",
    Rule.HALF_TOO_LARGE: "a half message leaves no room for its checks: 128 bytes of properties, 2048 of its request",
    Rule.CANCEL_TOO_LATE: "the time of delivery has come: nothing is left to cancel",
    Rule.SEQUENCE_MISPLACED: "__PSEQ__ ends the properties of all records of an idempotent producer, and of no others",
    Rule.SEQUENCE_ORDER: "the __PSEQ__ of a request's records are not numbers in a row, of one producer and epoch",
}
assert len(_SENTENCES) == len(Rule)
